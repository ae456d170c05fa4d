package gcpfake

import (
	"fmt"
	"net/netip"
)

// wire gives a machine that starts its addresses.
func (s *Server) wire(project, region string, r *resource) *OperationError {
	for _, nic := range each(r.doc, "networkInterfaces") {
		subnet := s.resources[text(nic, "subnetwork")[len(selfBase):]]
		if text(nic, "networkIP") == "" {
			nic["networkIP"] = s.nextIP(text(subnet.doc, "ipCidrRange"))
		} else if err := s.occupy(project, region, text(nic, "networkIP"), r); err != nil {
			return err
		}
		for _, a := range each(nic, "accessConfigs") {
			ip := text(a, "natIP")
			if ip == "" {
				a["natIP"] = s.nextIP("34.122.0.0/16")
				continue
			}
			if err := s.occupy(project, region, ip, r); err != nil {
				return err
			}
		}
		if text(nic, "stackType") == "IPV4_ONLY" {
			continue
		}
		ip := s.nextIP(text(subnet.doc, "ipv6CidrRange"))
		if text(subnet.doc, "ipv6AccessType") == "INTERNAL" {
			nic["ipv6Address"], nic["internalIpv6PrefixLength"], nic["ipv6AccessType"] = ip, 96, "INTERNAL"
			continue
		}
		nic["ipv6AccessType"] = "EXTERNAL"
		for _, a := range each(nic, "ipv6AccessConfigs") {
			a["externalIpv6"], a["externalIpv6PrefixLength"], a["kind"] = ip, 96, "compute#accessConfig"
			if text(a, "name") == "" {
				a["name"] = "external-ipv6"
			}
		}
	}
	return nil
}

// occupy takes a reserved address for a machine. One that is not reserved is the machine's own, kept
// through a suspension.
func (s *Server) occupy(project, region, ip string, r *resource) *OperationError {
	address := s.addressOf(project, region, ip)
	if address == nil {
		return nil
	}
	if users := list(address.doc, "users"); len(users) > 0 && users[0] != r.doc["selfLink"] {
		return &OperationError{Code: "IP_IN_USE_BY_ANOTHER_RESOURCE", HTTP: 400, HTTPText: "BAD REQUEST",
			Message: fmt.Sprintf("IP '%s' is already being used by another resource.", ip)}
	}
	address.doc["status"], address.doc["users"] = "IN_USE", []any{r.doc["selfLink"]}
	return nil
}

// unwire takes the ephemeral external addresses of a machine that goes off.
func (s *Server) unwire(r *resource) {
	project, region := r.project(), regionOfScope(scopeOf(r.key))
	for _, a := range externalConfigs(r.doc) {
		if s.addressOf(project, region, text(a, "natIP")) == nil {
			delete(a, "natIP")
		}
	}
}

// detach frees the static addresses and the disks of a machine that is no more.
func (s *Server) detach(r *resource) {
	for _, other := range s.resources {
		users := list(other.doc, "users")
		if len(users) == 0 || users[0] != r.doc["selfLink"] {
			continue
		}
		delete(other.doc, "users")
		if other.collection == "addresses" {
			other.doc["status"] = "RESERVED"
		}
	}
}

// externalConfigs are a machine's access configs.
func externalConfigs(instance object) []object {
	var out []object
	for _, nic := range each(instance, "networkInterfaces") {
		out = append(out, each(nic, "accessConfigs")...)
	}
	return out
}

// nextIP gives out the next address of a range that was never given out.
func (s *Server) nextIP(cidr string) string {
	prefix := netip.MustParsePrefix(cidr)
	for {
		s.lastIP[cidr]++
		n := s.lastIP[cidr] + 1
		bytes := prefix.Addr().AsSlice()
		at := len(bytes) - 1
		if prefix.Addr().Is6() {
			at = 11 // machines get a /96
		}
		for ; n > 0; at-- {
			n += int(bytes[at])
			bytes[at] = byte(n)
			n >>= 8
		}
		addr, _ := netip.AddrFromSlice(bytes)
		if s.addressAnywhere(addr.String()) == nil {
			return addr.String()
		}
	}
}
