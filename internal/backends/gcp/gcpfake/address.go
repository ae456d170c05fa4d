package gcpfake

import (
	"fmt"
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
	if text(doc, "addressType") != "EXTERNAL" || text(doc, "ipVersion") == "IPV6" {
		return nil, c.notModelled("an address that is internal or of IPv6")
	}
	delete(doc, "ipVersion")
	if err := checkLabels("resource.labels", sub(doc, "labels")); err != nil {
		return nil, err
	}
	if ip := text(doc, "address"); ip != "" && c.s.addressAnywhere(ip) != nil {
		return nil, invalid("resource.address", ip, "Specified IP address is in-use and would result in a conflict.")
	}
	// The quota of addresses is asked before the call is accepted.
	if err := c.s.overQuota(c.project, c.region(), map[string]float64{"STATIC_ADDRESSES": 1}).refused(); err != nil {
		return nil, err
	}
	doc["status"], doc["labelFingerprint"] = "RESERVING", fingerprint(doc["labels"])
	r := c.s.add(key, "address", doc)
	return c.begin("insert", r, func() *OperationError {
		if text(doc, "address") == "" {
			doc["address"] = c.s.nextIP("35.188.0.0/16")
		}
		doc["status"] = "RESERVED"
		return nil
	}, func() { delete(c.s.resources, key) })
}

func deleteAddress(c *call) (object, error) {
	r, err := c.find("addresses", c.vars["address"])
	if err != nil {
		return nil, err
	}
	if users := list(r.doc, "users"); len(users) > 0 {
		return nil, inUse("address", r.key, strings.TrimPrefix(fmt.Sprint(users[0]), selfBase))
	}
	return c.begin("delete", r, func() *OperationError { return c.s.remove(r) }, nil)
}

func setAddressLabels(c *call) (object, error) { return c.setLabels("addresses", c.vars["resource"]) }

// mayUse checks that an external address is reserved in the region and free.
func (c *call) mayUse(path, ip string) error {
	r := c.s.addressOf(c.project, c.region(), ip)
	if r == nil {
		return invalid(path, ip, fmt.Sprintf("The specified external IP address '%s' was not found in region '%s'.", ip, c.region()))
	}
	if users := list(r.doc, "users"); len(users) > 0 {
		return invalid(path, ip, fmt.Sprintf("The specified external IP address '%s' is already in use by '%s'.", ip, strings.TrimPrefix(fmt.Sprint(users[0]), selfBase)))
	}
	return c.need("compute.addresses.use", r.key)
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
