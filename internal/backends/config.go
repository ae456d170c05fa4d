package backends

// HostConfig is the part of agent.yaml that every backend that makes machines shares. The
// agent decodes and validates it (names are DNS labels, one default at most).
type HostConfig struct {
	Images            map[string]Image       `yaml:"images"`
	PrePull           []string               `yaml:"prePull"` // keys of Images that are fetched before a proxy asks for them
	MachineTypes      map[string]MachineType `yaml:"machineTypes"`
	Defaults          Defaults               `yaml:"defaults"`
	VendorData        string                 `yaml:"vendorData"`        // cloud-init vendor-data of the operator, beside our bootstrap
	InstallGuestAgent *bool                  `yaml:"installGuestAgent"` // default true
	AllowImageURLs    bool                   `yaml:"allowImageURLs"`    // intents may name image URLs
	Limits            Limits                 `yaml:"limits"`
}

// Image is where a base image comes from. Exactly one of URL, File, Template, Family,
// Container.
type Image struct {
	URL      string `yaml:"url"`
	File     string `yaml:"file"`     // absolute path on the host
	Template string `yaml:"template"` // proxmox
	Family   string `yaml:"family"`   // gcp
	// Container is an image reference as a kubelet takes it, without a digest. kubernetes.
	Container string `yaml:"container"`
	// CloudInit says whether the image has cloud-init, where it need not; default true. gcp.
	CloudInit *bool  `yaml:"cloudInit"`
	Digest    string `yaml:"digest"`   // "sha256:<hex>" or "sha512:<hex>"; without it the first content pins the key
	Format    string `yaml:"format"`   // "qcow2" (default) or "raw"
	Firmware  string `yaml:"firmware"` // "uefi" (default) or "bios"
}

// MachineType is a shape under its key.
type MachineType struct {
	VCPUs     int    `yaml:"vcpus"`
	MemoryMiB int    `yaml:"memoryMiB"`
	Name      string `yaml:"name"` // the backend's own, where it has machine types
	Spot      bool   `yaml:"spot"` // cheap, and may be taken away at any time; gcp
}

// Defaults fill what an intent leaves out.
type Defaults struct {
	Image       string `yaml:"image"`
	MachineType string `yaml:"machineType"`
	DiskGiB     int    `yaml:"diskGiB"`
}

// Limits keep proxies from taking the whole host. Overcommit factors default to 1.
type Limits struct {
	Overcommit struct {
		VCPUs  float64 `yaml:"vcpus"`
		Memory float64 `yaml:"memory"`
		Disk   float64 `yaml:"disk"`
	} `yaml:"overcommit"`
	Reserve struct {
		MemoryMiB int `yaml:"memoryMiB"`
		DiskGiB   int `yaml:"diskGiB"`
	} `yaml:"reserve"`
	Slots         int `yaml:"slots"`         // proxies at most; 0: no limit
	ImageCacheGiB int `yaml:"imageCacheGiB"` // 0: no cap
}
