package pvefake

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Storage describes a storage of the cluster.
type Storage struct {
	ID      string
	Type    string // dir, nfs, lvmthin
	Path    string // of dir and nfs
	Shared  bool   // one content for all nodes
	Content []string
	Nodes   []string // where it exists; empty: everywhere
	Total   int64    // bytes, per node when not shared
	Used    int64    // bytes taken by things that are not listed
	// Disabled storages refuse everything. Inactive ones are enabled but not
	// mounted: their status says active 0, the rest fails.
	Disabled, Inactive bool
}

type storage struct {
	Storage
	stores map[string]map[string]*volume // node, or "" when shared → volume name → volume
}

// volume is a file or logical volume. Its name is the part of the volume ID
// after the storage, without the base of a linked clone.
type volume struct {
	name, format, content string
	parent                string // name of the base, for a linked clone on files
	vmid                  int
	size, used            int64
	ctime                 int64
	data                  []byte // of an ISO
}

func (c *Cluster) addDefaultStorages() {
	c.setStorage(Storage{ID: "local", Type: "dir", Path: "/var/lib/vz", Total: 100 << 30, Used: 6 << 30,
		Content: []string{"backup", "images", "import", "iso", "snippets", "vztmpl"}})
	c.setStorage(Storage{ID: "local-lvm", Type: "lvmthin", Total: 200 << 30, Content: []string{"images", "rootdir"}})
	c.setStorage(Storage{ID: "shared", Type: "nfs", Path: "/mnt/pve/shared", Shared: true, Total: 500 << 30,
		Content: []string{"images", "iso"}})
}

// SetStorage adds a storage or changes one; what is on it stays. A cluster
// begins with local (dir) and local-lvm (lvmthin), each node's own, and shared
// (nfs).
func (c *Cluster) SetStorage(s Storage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setStorage(s)
}

func (c *Cluster) setStorage(s Storage) {
	if old := c.storages[s.ID]; old != nil {
		old.Storage = s
		return
	}
	c.storages[s.ID] = &storage{Storage: s, stores: map[string]map[string]*volume{}}
}

// Storage is a storage's description, to be changed and set again.
func (c *Cluster) Storage(id string) Storage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.storages[id].Storage
}

// AddISO puts an ISO on a storage and returns its volume ID.
func (c *Cluster) AddISO(node, storageID, name string, data []byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.storages[storageID]
	st.put(node, &volume{name: "iso/" + name, format: "iso", content: "iso", size: int64(len(data)),
		used: int64(len(data)), ctime: c.clock.now().Unix(), data: data})
	return storageID + ":iso/" + name
}

// Volume is a volume's bytes (of an uploaded ISO; nil for others) and whether
// it exists, as seen from a node.
func (c *Cluster) Volume(node, volid string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, v := c.lookup(node, volid); v != nil {
		return v.data, true
	}
	return nil, false
}

// Volumes are the IDs of all volumes that a node sees on a storage, sorted.
func (c *Cluster) Volumes(node, storageID string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.storages[storageID]
	var out []string
	for _, v := range st.on(node) {
		out = append(out, st.volid(v))
	}
	slices.Sort(out)
	return out
}

func (s *storage) on(node string) map[string]*volume {
	if s.Shared {
		node = ""
	}
	if s.stores[node] == nil {
		s.stores[node] = map[string]*volume{}
	}
	return s.stores[node]
}

func (s *storage) put(node string, v *volume) { s.on(node)[v.name] = v }

func (s *storage) used(node string) int64 {
	n := s.Used
	for _, v := range s.on(node) {
		n += v.used
	}
	return min(n, s.Total)
}

func (s *storage) avail(node string) int64 { return s.Total - s.used(node) }

func (s *storage) files() bool { return s.Path != "" }

func (s *storage) here(node string) bool {
	return len(s.Nodes) == 0 || slices.Contains(s.Nodes, node)
}

// volid names a volume; a linked clone on files is named with its base.
func (s *storage) volid(v *volume) string {
	if v.parent != "" {
		return s.ID + ":" + v.parent + "/" + v.name
	}
	return s.ID + ":" + v.name
}

// path is where a volume lies on the node.
func (s *storage) path(v string) string {
	switch {
	case strings.HasPrefix(v, "iso/"):
		return s.Path + "/template/" + v
	case s.files():
		return s.Path + "/images/" + v
	}
	return "/dev/" + s.ID + "/" + v
}

var (
	fileVolumeRE = regexp.MustCompile(`^(?:(\d+/base-[^/]+)/)?(\d+/(?:vm|base)-\d+-[^/]+)$`)
	lvmVolumeRE  = regexp.MustCompile(`^(?:vm|base)-\d+-[^/]+$`)
	isoVolumeRE  = regexp.MustCompile(`^iso/[^/]+\.(?i:iso|img)$`)
	otherFileRE  = regexp.MustCompile(`^(vztmpl|backup|snippets|import)/[^/]+$`)
)

// parse splits a volume ID into its storage and the name the volume is kept
// under. The errors are those of PVE::Storage::parse_volname.
func (c *Cluster) parse(volid string) (*storage, string, error) {
	id, name, ok := strings.Cut(volid, ":")
	if !ok {
		return nil, "", die("unable to parse volume ID '%s'", volid)
	}
	st := c.storages[id]
	if st == nil {
		return nil, "", die("storage '%s' does not exist", id)
	}
	if !st.files() {
		if !lvmVolumeRE.MatchString(name) {
			return nil, "", die("unable to parse lvm volume name '%s'", name)
		}
		return st, name, nil
	}
	if isoVolumeRE.MatchString(name) || otherFileRE.MatchString(name) {
		return st, name, nil
	}
	m := fileVolumeRE.FindStringSubmatch(name)
	if m == nil {
		return nil, "", die("unable to parse directory volume name '%s'", name)
	}
	return st, m[2], nil
}

func (c *Cluster) lookup(node, volid string) (*storage, *volume) {
	st, name, err := c.parse(volid)
	if err != nil {
		return nil, nil
	}
	return st, st.on(node)[name]
}

// usable fails when the storage cannot be used on the node.
func (c *Cluster) usable(id, node string) (*storage, error) {
	st := c.storages[id]
	switch {
	case st == nil:
		return nil, die("storage '%s' does not exist", id)
	case st.Disabled:
		return nil, die("storage '%s' is disabled", id)
	case !st.here(node):
		return nil, die("storage '%s' is not available on node '%s'", id, node)
	case st.Inactive:
		return nil, die("unable to activate storage '%s' - directory is expected to be a mount point but is not mounted: '%s'", id, st.Path)
	}
	return st, nil
}

// newDisk makes an empty disk for a VM and returns it.
func (c *Cluster) newDisk(st *storage, node string, vmid int, size int64, format string) *volume {
	v := &volume{vmid: vmid, size: size, used: 4096, content: "images", ctime: c.clock.now().Unix()}
	v.format, v.name = st.freeName(node, vmid, format)
	st.put(node, v)
	return v
}

// newCloudDrive makes a VM's cloud-init drive.
func (c *Cluster) newCloudDrive(st *storage, node string, vmid int) *volume {
	v := &volume{name: fmt.Sprintf("vm-%d-cloudinit", vmid), format: "raw", content: "images", vmid: vmid, size: 4 << 20, used: 4 << 20}
	if st.files() {
		v.format, v.name = "qcow2", fmt.Sprintf("%d/%s.qcow2", vmid, v.name)
	}
	st.put(node, v)
	return v
}

// freeName is the first free disk name of a VM on the storage.
func (s *storage) freeName(node string, vmid int, format string) (string, string) {
	for i := 0; ; i++ {
		stem := fmt.Sprintf("vm-%d-disk-%d", vmid, i)
		taken := slices.ContainsFunc(slices.Collect(maps.Keys(s.on(node))), func(n string) bool {
			n = n[strings.LastIndex(n, "/")+1:]
			n = strings.Replace(n, "base-", "vm-", 1)
			return n == stem || strings.HasPrefix(n, stem+".")
		})
		if taken {
			continue
		}
		if !s.files() {
			return "raw", stem
		}
		if format == "" {
			format = "raw"
		}
		return format, fmt.Sprintf("%d/%s.%s", vmid, stem, format)
	}
}

// children are the linked clones of a base volume.
func (s *storage) children(node, base string) bool {
	for _, v := range s.on(node) {
		if v.parent == base {
			return true
		}
	}
	return false
}

var sizeRE = regexp.MustCompile(`^(\d+(?:\.\d+)?)([KMGT]?)$`)

// parseSize reads a disk size as Proxmox writes it: 1024, 366K, 2.5G.
func parseSize(s string) (int64, bool) {
	m := sizeRE.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	f, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, false
	}
	return int64(f * float64(int64(1)<<(10*strings.Index(" KMGT", m[2]+"")))), true
}

// printSize is the shortest exact form, as PVE::JSONSchema::format_size.
func printSize(n int64) string {
	unit := ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, u
	}
	return strconv.FormatInt(n, 10) + unit
}
