package gcpfake

import (
	"fmt"
	"strings"
	"time"
)

// Deny takes permissions away: "compute.instances.create".
func (s *Server) Deny(permissions ...string) {
	s.locked(func() {
		for _, p := range permissions {
			s.denied[p] = true
		}
	})
}

// Allow gives permissions back; without any, all of them.
func (s *Server) Allow(permissions ...string) {
	s.locked(func() {
		if len(permissions) == 0 {
			clear(s.denied)
			s.granted = nil
		}
		for _, p := range permissions {
			delete(s.denied, p)
		}
	})
}

// AllowOnly takes every permission away but these, so that a test shows that they suffice.
// Allow without arguments ends it.
func (s *Server) AllowOnly(permissions ...string) {
	s.locked(func() {
		clear(s.denied)
		s.granted = map[string]bool{}
		for _, p := range permissions {
			s.granted[p] = true
		}
	})
}

// may reports whether the caller has a permission.
func (s *Server) may(permission string) bool {
	return !s.denied[permission] && (s.granted == nil || s.granted[permission])
}

// verbs are the parts of permissions that differ from the method's name.
// https://cloud.google.com/compute/docs/access/iam-permissions
var verbs = map[string]string{
	"insert": "create", "aggregatedList": "list", "patch": "update", "wait": "get", "getFromFamily": "getFromFamily",
}

// permission is what a method asks for on its own resource; "" for methods that anyone may call.
func permission(id string) string {
	parts := strings.Split(id, ".")
	if parts[0] != "compute" {
		return ""
	}
	collection, verb := parts[1], parts[2]
	if verb == "testIamPermissions" {
		return ""
	}
	if v, ok := verbs[verb]; ok {
		verb = v
	}
	return "compute." + collection + "." + verb
}

// permitted checks the method's own permission. Images of other projects may be read by all.
func (c *call) permitted() error {
	p := permission(c.m.ID)
	if p == "" || strings.HasPrefix(p, "compute.images.") && c.project != c.s.options.Project {
		return nil
	}
	return c.need(p, c.subject())
}

// subject is what a permission is asked on: the project for a list, what is to be made for an
// insert, else the path up to its last variable.
func (c *call) subject() string {
	verb := lastPart(strings.ReplaceAll(c.m.ID, ".", "/"))
	if verb == "list" || verb == "aggregatedList" {
		return "projects/" + c.project
	}
	filled, named := make([]string, len(c.m.segments)), 0
	for i, seg := range c.m.segments {
		filled[i] = seg
		if name, ok := strings.CutPrefix(seg, "{"); ok {
			filled[i], named = c.vars[strings.TrimSuffix(name, "}")], i+1
		}
	}
	if verb == "insert" {
		filled, named = append(filled, text(c.body, "name")), len(filled)+1
	}
	return strings.TrimPrefix(strings.Join(filled[:named], "/"), "compute/v1/")
}

func (c *call) need(permission, key string) error {
	if !c.s.may(permission) {
		return forbidden(permission, key)
	}
	return nil
}

// testPermissions answers those of the permissions that the caller has.
func (c *call) testPermissions() (object, error) {
	out := object{}
	var held []any
	for _, p := range list(c.body, "permissions") {
		name := fmt.Sprint(p)
		if strings.Contains(name, "*") || strings.Count(name, ".") < 2 {
			return nil, &Error{Code: 400, Reason: "badRequest", Status: "INVALID_ARGUMENT", Message: fmt.Sprintf("Permission %s is not valid for this resource.", name)}
		}
		if c.s.may(name) {
			held = append(held, name)
		}
	}
	if held != nil {
		out["permissions"] = held
	}
	return out, nil
}

func testInstancePermissions(c *call) (object, error) {
	if _, err := c.find("instances", c.vars["resource"]); err != nil {
		return nil, err
	}
	return c.testPermissions()
}

func testProjectPermissions(c *call) (object, error) {
	project := c.vars["resource"] + c.vars["projectsId"]
	if !c.s.projects[project] {
		return nil, &Error{Code: 403, Reason: "forbidden", Status: "PERMISSION_DENIED", Message: "The caller does not have permission"}
	}
	return c.testPermissions()
}

// rate is how many requests are let through in a time.
type rate struct {
	requests int
	per      time.Duration
}

// LimitRate lets only so many requests through in a time; the others get RateLimited. Zero
// requests end the limit.
func (s *Server) LimitRate(requests int, per time.Duration) {
	s.locked(func() { s.rate, s.rateRecent = rate{requests, per}, nil })
}

func (s *Server) limit(c *call) error {
	if s.rate.requests == 0 {
		return nil
	}
	kept := s.rateRecent[:0]
	for _, at := range s.rateRecent {
		if c.now.Sub(at) < s.rate.per {
			kept = append(kept, at)
		}
	}
	s.rateRecent = kept
	if len(kept) >= s.rate.requests {
		return RateLimited("Queries")
	}
	s.rateRecent = append(s.rateRecent, c.now)
	return nil
}
