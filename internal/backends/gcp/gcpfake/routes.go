package gcpfake

// handler carries out one call with the state locked. What it answers is copied before the
// lock is given up.
type handler func(*call) (object, error)

// handlers are the methods that are modelled, by their id in the discovery documents;
// "v3." tells Resource Manager's versions apart.
var handlers = map[string]handler{
	"compute.projects.get": getProject,
	"compute.zones.get":    getZone,
	"compute.zones.list":   listAll("zones", "zone"),
	"compute.regions.get":  getRegion,
	"compute.regions.list": listAll("regions", "region"),

	"compute.instances.insert":              insertInstance,
	"compute.instances.get":                 get("instances", "instance"),
	"compute.instances.list":                listAll("instances", "instance"),
	"compute.instances.aggregatedList":      aggregated("instances", "instance", "zones"),
	"compute.instances.delete":              deleteInstance,
	"compute.instances.start":               startInstance,
	"compute.instances.stop":                stopInstance,
	"compute.instances.suspend":             suspendInstance,
	"compute.instances.resume":              resumeInstance,
	"compute.instances.reset":               resetInstance,
	"compute.instances.setLabels":           setInstanceLabels,
	"compute.instances.setMetadata":         setMetadata,
	"compute.instances.setTags":             setTags,
	"compute.instances.testIamPermissions":  testInstancePermissions,
	"compute.instances.getSerialPortOutput": getSerialPort,

	"compute.zoneOperations.get":              getOperation,
	"compute.zoneOperations.list":             listAll("operations", "operation"),
	"compute.zoneOperations.wait":             waitOperation,
	"compute.regionOperations.get":            getOperation,
	"compute.regionOperations.list":           listAll("operations", "operation"),
	"compute.regionOperations.wait":           waitOperation,
	"compute.globalOperations.get":            getOperation,
	"compute.globalOperations.list":           listAll("operations", "operation"),
	"compute.globalOperations.wait":           waitOperation,
	"compute.globalOperations.aggregatedList": aggregated("operations", "operation", "global", "regions", "zones"),

	"compute.disks.insert":         insertDisk,
	"compute.disks.get":            get("disks", "disk"),
	"compute.disks.list":           listAll("disks", "disk"),
	"compute.disks.aggregatedList": aggregated("disks", "disk", "regions", "zones"),
	"compute.disks.delete":         deleteDisk,
	"compute.disks.resize":         resizeDisk,
	"compute.disks.setLabels":      setDiskLabels,

	"compute.images.get":           get("images", "image"),
	"compute.images.getFromFamily": getFromFamily,
	"compute.images.list":          listAll("images", "image"),

	"compute.machineTypes.get":            get("machineTypes", "machineType"),
	"compute.machineTypes.list":           listAll("machineTypes", "machineType"),
	"compute.machineTypes.aggregatedList": aggregated("machineTypes", "machineType", "zones"),
	"compute.diskTypes.get":               get("diskTypes", "diskType"),
	"compute.diskTypes.list":              listAll("diskTypes", "diskType"),

	"compute.addresses.insert":         insertAddress,
	"compute.addresses.get":            get("addresses", "address"),
	"compute.addresses.list":           listAll("addresses", "address"),
	"compute.addresses.aggregatedList": aggregated("addresses", "address", "global", "regions"),
	"compute.addresses.delete":         deleteAddress,
	"compute.addresses.setLabels":      setAddressLabels,

	"compute.firewalls.insert": insertFirewall,
	"compute.firewalls.get":    get("firewalls", "firewall"),
	"compute.firewalls.list":   listAll("firewalls", "firewall"),
	"compute.firewalls.patch":  patchFirewall,
	"compute.firewalls.update": updateFirewall,
	"compute.firewalls.delete": deleteFirewall,

	"compute.networks.get":               get("networks", "network"),
	"compute.networks.list":              listAll("networks", "network"),
	"compute.subnetworks.get":            get("subnetworks", "subnetwork"),
	"compute.subnetworks.list":           listAll("subnetworks", "subnetwork"),
	"compute.subnetworks.aggregatedList": aggregated("subnetworks", "subnetwork", "regions"),

	"cloudresourcemanager.projects.testIamPermissions":            testProjectPermissions,
	"v3.cloudresourcemanager.projects.testIamPermissions":         testProjectPermissions,
	"iamcredentials.projects.serviceAccounts.generateAccessToken": generateAccessToken,
}
