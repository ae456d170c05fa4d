package gcpfake

import (
	"fmt"
	"net/netip"
	"strings"
)

func insertAddress(c *call) (object, error) {
	name := text(c.body, "name")
	key := c.key("addresses", name)
	if c.s.resources[key] != nil {
		return nil, alreadyExists(key)
	}
	doc := clone(c.body)
	if text(doc, "addressType") == "" {
		doc["addressType"] = "EXTERNAL"
	}
	if text(doc, "networkTier") == "" {
		doc["networkTier"] = "PREMIUM"
	}
	if text(doc, "ipVersion") == "IPV6" {
		return nil, c.notModelled("a reserved address of IPv6")
	}
	delete(doc, "ipVersion")
	rng := "35.188.0.0/16"
	if text(doc, "addressType") == "INTERNAL" {
		subnet, err := c.internal(doc)
		if err != nil {
			return nil, err
		}
		rng = text(subnet.doc, "ipCidrRange")
	}
	if err := checkLabels("resource.labels", sub(doc, "labels")); err != nil {
		return nil, err
	}
	if ip := text(doc, "address"); ip != "" && c.s.addressAnywhere(ip) != nil {
		return nil, invalid("resource.address", ip, "Specified IP address is in-use and would result in a conflict.")
	}
	// The quota of addresses is asked before the call is accepted.
	if text(doc, "addressType") == "EXTERNAL" {
		if err := c.s.overQuota(c.project, c.region(), map[string]float64{"STATIC_ADDRESSES": 1}).refused(); err != nil {
			return nil, err
		}
	}
	doc["status"], doc["labelFingerprint"] = "RESERVING", fingerprint(doc["labels"])
	r := c.s.add(key, "address", doc)
	return c.begin("insert", r, func() *OperationError {
		if text(doc, "address") == "" {
			doc["address"] = c.s.nextIP(rng)
		}
		doc["status"] = "RESERVED"
		return nil
	}, func() { delete(c.s.resources, key) })
}

// internal prepares an address of a subnetwork.
func (c *call) internal(doc object) (*resource, error) {
	delete(doc, "networkTier")
	if text(doc, "purpose") == "" {
		doc["purpose"] = "GCE_ENDPOINT"
	}
	if err := c.need("compute.addresses.createInternal", c.key("addresses", text(doc, "name"))); err != nil {
		return nil, err
	}
	subnet, err := c.subnetOf("resource", doc)
	if err != nil {
		return nil, err
	}
	delete(doc, "network")
	doc["subnetwork"] = selfBase + subnet.key
	return subnet, c.need("compute.subnetworks.use", subnet.key)
}

func deleteAddress(c *call) (object, error) {
	r, err := c.find("addresses", c.vars["address"])
	if err != nil {
		return nil, err
	}
	if users := list(r.doc, "users"); len(users) > 0 {
		return nil, inUse("address", r.key, strings.TrimPrefix(fmt.Sprint(users[0]), selfBase))
	}
	if text(r.doc, "addressType") == "INTERNAL" {
		if err := c.need("compute.addresses.deleteInternal", r.key); err != nil {
			return nil, err
		}
	}
	return c.begin("delete", r, func() *OperationError { return c.s.remove(r) }, nil)
}

func setAddressLabels(c *call) (object, error) { return c.setLabels("addresses", c.vars["resource"]) }

// mayUse checks that an external address is reserved in the region and free.
func (c *call) mayUse(path, ip string) error {
	r := c.s.addressOf(c.project, c.region(), ip)
	if r == nil || text(r.doc, "addressType") != "EXTERNAL" {
		return invalid(path, ip, fmt.Sprintf("The specified external IP address '%s' was not found in region '%s'.", ip, c.region()))
	}
	if err := free(path, r); err != nil {
		return err
	}
	return c.need("compute.addresses.use", r.key)
}

// mayUseInside checks an internal address that a machine asks for: in the subnetwork, and free.
func (c *call) mayUseInside(path, ip string, subnet *resource) error {
	addr, err := netip.ParseAddr(ip)
	prefix, _ := netip.ParsePrefix(text(subnet.doc, "ipCidrRange"))
	if err != nil || !prefix.Contains(addr) {
		return invalid(path, ip, "Requested internal IP address is outside the subnetwork's range.")
	}
	r := c.s.addressOf(c.project, c.region(), ip)
	if r == nil {
		return nil
	}
	if err := free(path, r); err != nil {
		return err
	}
	return c.need("compute.addresses.useInternal", r.key)
}

func free(path string, r *resource) error {
	if users := list(r.doc, "users"); len(users) > 0 {
		return invalid(path, text(r.doc, "address"), fmt.Sprintf("The specified IP address is already in use by '%s'.", strings.TrimPrefix(fmt.Sprint(users[0]), selfBase)))
	}
	return nil
}

// addressOf is the reservation of an address in a region, if any.
func (s *Server) addressOf(project, region, ip string) *resource {
	for _, r := range s.in(project, "regions/"+region, "addresses") {
		if text(r.doc, "address") == ip {
			return r
		}
	}
	return nil
}

func (s *Server) addressAnywhere(ip string) *resource {
	for _, r := range s.resources {
		if r.collection == "addresses" && text(r.doc, "address") == ip {
			return r
		}
	}
	return nil
}
