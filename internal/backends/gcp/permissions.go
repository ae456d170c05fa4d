package gcp

import "slices"

// always are the permissions that every agent needs on its own project.
// https://cloud.google.com/compute/docs/access/iam-permissions
var always = []string{
	"compute.disks.create", "compute.disks.delete", "compute.disks.get", "compute.disks.list", "compute.disks.setLabels",
	"compute.addresses.list",
	"compute.instances.create", "compute.instances.delete", "compute.instances.get", "compute.instances.list",
	"compute.instances.resume", "compute.instances.setLabels", "compute.instances.setMetadata", "compute.instances.setTags",
	"compute.instances.start", "compute.instances.stop",
	"compute.machineTypes.get",
	"compute.projects.get", "compute.regions.get", "compute.zones.get",
	"compute.zoneOperations.get", "compute.zoneOperations.list",
}

// permissions are those that this configuration needs, by project. Those on a shared subnetwork are
// left out, which are mostly given on it alone; images of other projects are open to all.
func (b *Backend) permissions() map[string][]string {
	own := slices.Clone(always)
	if b.conf.ReservedAddress {
		own = append(own, "compute.addresses.create", "compute.addresses.delete", "compute.addresses.get", "compute.addresses.use", "compute.regionOperations.get")
		if b.conf.Address == internal {
			own = append(own, "compute.addresses.createInternal", "compute.addresses.deleteInternal", "compute.addresses.useInternal")
		}
	}
	if b.conf.ServiceAccount.Email != "" {
		own = append(own, "compute.instances.setServiceAccount", "iam.serviceAccounts.actAs")
	}
	if b.networkProject() == b.conf.Project {
		own = append(own, "compute.subnetworks.get", "compute.subnetworks.use")
		if b.conf.Address == external {
			own = append(own, "compute.subnetworks.useExternalIp")
		}
	}
	out := map[string][]string{b.conf.Project: own}
	network := []string{"compute.firewalls.get", "compute.firewalls.list"}
	if *b.conf.Firewall.Manage {
		network = append(network, "compute.firewalls.create", "compute.firewalls.delete", "compute.firewalls.update", "compute.networks.updatePolicy", "compute.globalOperations.get")
	}
	out[b.networkProject()] = append(out[b.networkProject()], network...)
	for _, p := range out {
		slices.Sort(p)
	}
	return out
}
