package gcpfake

import "strings"

// Instance is a machine as it is now, for tests to look at.
type Instance struct {
	Project, Zone, Name string
	Status              string // "RUNNING"
	MachineType         string // "e2-small"
	Spot                bool
	Labels              map[string]string
	Metadata            map[string]string
	Tags                []string
	InternalIP          string
	ExternalIP          string
	IPv6                string // external or internal
	// Document is all of it, a copy.
	Document map[string]any
}

// Instances are all machines of all projects, those that are being made included, by project,
// zone and name.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	var out []Instance
	for _, key := range sortedKeys(s.resources) {
		if r := s.resources[key]; r.collection == "instances" {
			out = append(out, r.asInstance())
		}
	}
	return out
}

func (r *resource) asInstance() Instance {
	i := Instance{Project: r.project(), Zone: strings.TrimPrefix(scopeOf(r.key), "zones/"), Name: r.name, Status: text(r.doc, "status"),
		MachineType: lastPart(text(r.doc, "machineType")), Spot: isSpot(r.doc), Labels: map[string]string{}, Metadata: map[string]string{}, Document: clone(r.doc)}
	for k := range sub(r.doc, "labels") {
		i.Labels[k] = text(r.doc, "labels", k)
	}
	for _, item := range each(sub(r.doc, "metadata"), "items") {
		i.Metadata[text(item, "key")] = text(item, "value")
	}
	for _, t := range list(sub(r.doc, "tags"), "items") {
		i.Tags = append(i.Tags, t.(string))
	}
	for _, nic := range each(r.doc, "networkInterfaces") {
		i.InternalIP, i.IPv6 = text(nic, "networkIP"), text(nic, "ipv6Address")
		for _, a := range each(nic, "accessConfigs") {
			i.ExternalIP = text(a, "natIP")
		}
		for _, a := range each(nic, "ipv6AccessConfigs") {
			i.IPv6 = text(a, "externalIpv6")
		}
	}
	return i
}

// Keys are the resources of a collection in all projects: "disks" gives
// projects/p/zones/z/disks/d, and so on.
func (s *Server) Keys(collection string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	var out []string
	for _, key := range sortedKeys(s.resources) {
		if s.resources[key].collection == collection {
			out = append(out, key)
		}
	}
	return out
}

// Document is a copy of one resource by its key, nil where there is none.
func (s *Server) Document(key string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	if r := s.resources[key]; r != nil {
		return clone(r.doc)
	}
	return nil
}

// Edit changes a resource behind everyone's back, as another client does.
func (s *Server) Edit(key string, change func(document map[string]any)) {
	s.locked(func() {
		r := s.resources[key]
		if r == nil {
			s.t.Errorf("gcpfake: no resource %s", key)
			return
		}
		change(r.doc)
		if r.collection == "instances" {
			setFingerprints(r.doc)
		}
	})
}

// Remove takes a resource away behind everyone's back; a machine takes its autoDelete disks along.
func (s *Server) Remove(key string) {
	s.locked(func() {
		r := s.resources[key]
		switch {
		case r == nil:
			s.t.Errorf("gcpfake: no resource %s", key)
		case r.collection == "instances":
			s.removeInstance(r)
		default:
			delete(s.resources, key)
		}
	})
}
