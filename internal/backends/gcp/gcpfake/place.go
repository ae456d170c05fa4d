package gcpfake

import "strings"

// stock is a zone without room.
type stock struct {
	machineTypes []string // nil: every one
	room         []string // the zones that have some; nil: the answer has no details
}

// StockOut leaves a zone without room for new machines. With room, the error names the zones that
// have some (ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS).
func (s *Server) StockOut(zone string, room ...string) {
	s.locked(func() { s.stockOut[zone] = &stock{room: room} })
}

// StockOutOf leaves a zone without room for one machine type.
func (s *Server) StockOutOf(zone, machineType string, room ...string) {
	s.locked(func() { s.stockOut[zone] = &stock{machineTypes: []string{machineType}, room: room} })
}

// Restock gives a zone room again.
func (s *Server) Restock(zone string) {
	s.locked(func() { delete(s.stockOut, zone) })
}

// Unreachable makes a zone or a region silent: aggregated lists lack it, calls to it fail with
// 503. What is in it stays as it is.
func (s *Server) Unreachable(name string, silent bool) {
	s.locked(func() {
		for _, kind := range []string{"zones/", "regions/"} {
			s.silent[kind+name] = silent && s.resources["projects/"+s.options.Project+"/"+kind+name] != nil
		}
		if silent && !s.silent["zones/"+name] && !s.silent["regions/"+name] {
			s.t.Errorf("gcpfake: no zone or region %s", name)
		}
	})
}

// soldOut is the error of a machine type that a zone has no room for, nil where it has some.
func (s *Server) soldOut(project, zone, machineType string) *OperationError {
	out := s.stockOut[zone]
	if out == nil || out.machineTypes != nil && out.machineTypes[0] != machineType {
		return nil
	}
	if out.room == nil {
		return stockOut(project, zone)
	}
	return stockOutWithDetails(project, zone, machineType, out.room...)
}

func getZone(c *call) (object, error) {
	key := "projects/" + c.project + "/zones/" + c.vars["zone"]
	r := c.s.resources[key]
	if r == nil {
		return nil, notFound(key)
	}
	return r.doc, nil
}

// zone is the name of the call's zone.
func (c *call) zone() string { return strings.TrimPrefix(c.scope, "zones/") }

// region is the name of the region that the call's zone or region is of.
func (c *call) region() string { return regionOfScope(c.scope) }
