package gcpfake

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

func insertFirewall(c *call) (object, error) {
	name := text(c.body, "name")
	key := c.key("firewalls", name)
	if c.s.resources[key] != nil {
		return nil, alreadyExists(key)
	}
	doc := clone(c.body)
	if text(doc, "network") == "" {
		doc["network"] = "global/networks/default"
	}
	network := c.resolve(text(doc, "network"))
	if c.s.resources[network] == nil {
		return nil, invalid("resource.network", text(doc, "network"), "The referenced network resource cannot be found.")
	}
	if err := c.need("compute.networks.updatePolicy", network); err != nil {
		return nil, err
	}
	doc["network"] = selfBase + network
	if err := c.finishFirewall(doc); err != nil {
		return nil, err
	}
	if err := c.s.overQuota(c.project, "", map[string]float64{"FIREWALLS": 1}).refused(); err != nil {
		return nil, err
	}
	r := c.s.add(key, "firewall", doc)
	r.pending = true
	return c.begin("insert", r, func() *OperationError {
		r.pending = false
		return nil
	}, func() { delete(c.s.resources, key) })
}

// finishFirewall checks a rule and fills in its defaults.
func (c *call) finishFirewall(doc object) error {
	if text(doc, "direction") == "" {
		doc["direction"] = "INGRESS"
	}
	if text(doc, "priority") == "" {
		doc["priority"] = 1000
	}
	allowed, denied := each(doc, "allowed"), each(doc, "denied")
	if len(allowed) == 0 && len(denied) == 0 {
		return invalid("resource.allowed", "", "Must specify exactly one of allowed or denied.")
	}
	for i, a := range append(allowed, denied...) {
		if text(a, "IPProtocol") == "" {
			return missing(fmt.Sprintf("resource.allowed[%d].IPProtocol", i))
		}
		for j, p := range list(a, "ports") {
			if err := checkPorts(fmt.Sprintf("resource.allowed[%d].ports[%d]", i, j), fmt.Sprint(p)); err != nil {
				return err
			}
		}
	}
	if text(doc, "direction") == "INGRESS" && len(list(doc, "sourceRanges"))+len(list(doc, "sourceTags"))+len(list(doc, "sourceServiceAccounts")) == 0 {
		doc["sourceRanges"] = []any{"0.0.0.0/0"}
	}
	families := map[bool]bool{}
	for i, r := range list(doc, "sourceRanges") {
		path := fmt.Sprintf("resource.sourceRanges[%d]", i)
		prefix, err := netip.ParsePrefix(fmt.Sprint(r))
		if err != nil {
			return invalid(path, r, "Must be a valid CIDR range.")
		}
		if prefix != prefix.Masked() {
			return invalid(path, r, "Range must have no bits set outside of the mask.")
		}
		families[prefix.Addr().Is4()] = true
	}
	if len(families) > 1 {
		return invalid("resource.sourceRanges", "", "IPv4 and IPv6 ranges cannot be mixed in one firewall rule.")
	}
	if n := len(list(doc, "sourceRanges")); n > 5000 {
		return invalid("resource.sourceRanges", n, "At most 5000 ranges are allowed.")
	}
	for i, t := range append(list(doc, "targetTags"), list(doc, "sourceTags")...) {
		if !tag.MatchString(fmt.Sprint(t)) {
			return invalid(fmt.Sprintf("resource.targetTags[%d]", i), t, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		}
	}
	return nil
}

func checkPorts(path, ports string) error {
	low, high, ranged := strings.Cut(ports, "-")
	a, err := strconv.ParseUint(low, 10, 16)
	b := a
	if err == nil && ranged {
		b, err = strconv.ParseUint(high, 10, 16)
	}
	if err != nil || a > b {
		return invalid(path, ports, "Ports may only be specified as a number or a range of numbers between 0 and 65535.")
	}
	return nil
}

// patchFirewall changes the fields that the body has, updateFirewall all of them.
func patchFirewall(c *call) (object, error) { return c.changeFirewall("patch") }

func updateFirewall(c *call) (object, error) { return c.changeFirewall("update") }

func (c *call) changeFirewall(kind string) (object, error) {
	r, err := c.find("firewalls", c.vars["firewall"])
	if err != nil {
		return nil, err
	}
	if name := text(c.body, "name"); name != "" && name != r.name {
		return nil, invalid("resource.name", name, "Name cannot be changed.")
	}
	doc := clone(r.doc)
	if kind == "update" {
		for k := range doc {
			switch k {
			case "kind", "id", "name", "creationTimestamp", "selfLink", "network":
			default:
				delete(doc, k)
			}
		}
	}
	for k, v := range clone(c.body) {
		doc[k] = v
	}
	if link := text(doc, "network"); c.resolve(link) != strings.TrimPrefix(text(r.doc, "network"), selfBase) {
		return nil, invalid("resource.network", link, "Network cannot be changed.")
	}
	doc["network"] = r.doc["network"]
	if err := c.need("compute.networks.updatePolicy", c.resolve(text(doc, "network"))); err != nil {
		return nil, err
	}
	if err := c.finishFirewall(doc); err != nil {
		return nil, err
	}
	return c.begin(kind, r, func() *OperationError {
		if c.s.resources[r.key] != r {
			return gone(r.key)
		}
		r.doc = doc
		return nil
	}, nil)
}

func deleteFirewall(c *call) (object, error) {
	r, err := c.find("firewalls", c.vars["firewall"])
	if err != nil {
		return nil, err
	}
	if err := c.need("compute.networks.updatePolicy", c.resolve(text(r.doc, "network"))); err != nil {
		return nil, err
	}
	return c.begin("delete", r, func() *OperationError { return c.s.remove(r) }, nil)
}
