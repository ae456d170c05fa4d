package gcp

import "slices"

// always are the permissions that every agent needs on its project.
// https://cloud.google.com/compute/docs/access/iam-permissions
var always = []string{
	"compute.disks.create", "compute.disks.delete", "compute.disks.get", "compute.disks.list", "compute.disks.setLabels",
	"compute.firewalls.get", "compute.firewalls.list",
	"compute.addresses.list",
	"compute.instances.create", "compute.instances.delete", "compute.instances.get", "compute.instances.list",
	"compute.instances.resume", "compute.instances.setLabels", "compute.instances.setMetadata", "compute.instances.setTags",
	"compute.instances.start", "compute.instances.stop",
	"compute.machineTypes.get",
	"compute.projects.get", "compute.regions.get", "compute.zones.get",
	"compute.subnetworks.get", "compute.subnetworks.use",
	"compute.zoneOperations.get", "compute.zoneOperations.list",
}

// permissions are those that this configuration needs on the project. What belongs to another
// project (a shared network, images) cannot be asked here.
func (b *Backend) permissions() []string {
	out := slices.Clone(always)
	if *b.conf.Firewall.Manage {
		out = append(out, "compute.firewalls.create", "compute.firewalls.delete", "compute.firewalls.update", "compute.networks.updatePolicy", "compute.globalOperations.get")
	}
	if b.conf.Address == external {
		out = append(out, "compute.subnetworks.useExternalIp")
	}
	if b.conf.ReservedAddress {
		out = append(out, "compute.addresses.create", "compute.addresses.delete", "compute.addresses.get", "compute.addresses.use", "compute.regionOperations.get")
		if b.conf.Address == internal {
			out = append(out, "compute.addresses.createInternal", "compute.addresses.deleteInternal", "compute.addresses.useInternal")
		}
	}
	if b.conf.ServiceAccount.Email != "" {
		out = append(out, "compute.instances.setServiceAccount", "iam.serviceAccounts.actAs")
	}
	slices.Sort(out)
	return out
}
