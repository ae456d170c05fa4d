package gcpfake

import (
	"fmt"
	"strings"
)

// planNetwork looks up networks and addresses.
func (c *call) planNetwork(doc object) error {
	nics := each(doc, "networkInterfaces")
	if len(nics) == 0 {
		return invalid("resource.networkInterfaces", "", "At least one network interface is required.")
	}
	for i, nic := range nics {
		if err := c.planNIC(fmt.Sprintf("resource.networkInterfaces[%d]", i), nic); err != nil {
			return err
		}
		nic["name"] = fmt.Sprintf("nic%d", i)
		nic["kind"] = "compute#networkInterface"
	}
	return nil
}

func (c *call) planNIC(path string, nic object) error {
	subnet, err := c.subnetOf(path, nic)
	if err != nil {
		return err
	}
	nic["subnetwork"], nic["network"] = selfBase+subnet.key, subnet.doc["network"]
	if err := c.need("compute.subnetworks.use", subnet.key); err != nil {
		return err
	}
	if text(nic, "stackType") == "" {
		nic["stackType"] = "IPV4_ONLY"
	}
	six := text(nic, "stackType") != "IPV4_ONLY"
	if six && text(subnet.doc, "stackType") == "IPV4_ONLY" {
		return invalid(path+".stackType", text(nic, "stackType"), fmt.Sprintf("The stack type of the network interface must be compatible with that of the subnetwork '%s'.", subnet.key))
	}
	if len(list(nic, "ipv6AccessConfigs")) > 0 && (!six || text(subnet.doc, "ipv6AccessType") != "EXTERNAL") {
		return invalid(path+".ipv6AccessConfigs", "", "External IPv6 access configs need a subnetwork with external IPv6 access.")
	}
	if err := c.planAccess(path, nic, subnet); err != nil {
		return err
	}
	if ip := text(nic, "networkIP"); ip != "" {
		return c.mayUseInside(path+".networkIP", ip, subnet)
	}
	return nil
}

// planAccess looks up what gives a machine its external IPv4 address.
func (c *call) planAccess(path string, nic object, subnet *resource) error {
	configs := each(nic, "accessConfigs")
	if len(configs) > 1 {
		return invalid(path+".accessConfigs", "", "At most one access config is allowed.")
	}
	for _, a := range configs {
		if err := c.need("compute.subnetworks.useExternalIp", subnet.key); err != nil {
			return err
		}
		if text(a, "type") == "" {
			a["type"] = "ONE_TO_ONE_NAT"
		}
		if text(a, "name") == "" {
			a["name"] = "external-nat"
		}
		if text(a, "networkTier") == "" {
			a["networkTier"] = "PREMIUM"
		}
		a["kind"] = "compute#accessConfig"
		if ip := text(a, "natIP"); ip != "" {
			if err := c.mayUse(path+".accessConfigs[0].natIP", ip); err != nil {
				return err
			}
		}
	}
	return nil
}

// subnetOf is the subnetwork that a network interface or an address names, or the one that a
// network has in the call's region.
func (c *call) subnetOf(path string, nic object) (*resource, error) {
	link, network := text(nic, "subnetwork"), text(nic, "network")
	if link == "" && network == "" {
		network = "global/networks/default"
	}
	if link == "" {
		n := c.s.resources[c.resolve(network)]
		if n == nil {
			return nil, invalid(path+".network", network, "The referenced network resource cannot be found.")
		}
		if n.doc["autoCreateSubnetworks"] != true {
			return nil, invalid(path+".subnetwork", "", "Subnetwork should be specified for custom subnetmode network")
		}
		link = "regions/" + c.region() + "/subnetworks/" + n.name
	}
	subnet := c.s.resources[c.resolve(link)]
	if subnet == nil {
		return nil, invalid(path+".subnetwork", link, "The referenced subnetwork resource cannot be found.")
	}
	if regionOfScope(scopeOf(subnet.key)) != c.region() {
		return nil, invalid(path+".subnetwork", link, "Subnetwork is not in the region of the instance.")
	}
	if network != "" && c.resolve(network) != strings.TrimPrefix(text(subnet.doc, "network"), selfBase) {
		return nil, invalid(path+".network", network, "The network of the subnetwork is another one.")
	}
	return subnet, nil
}
