package gcpfake

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// selfBase is how Google writes links, whatever the endpoint.
const selfBase = "https://www.googleapis.com/compute/v1/"

// resource is one object with its place: projects/p/zones/z/instances/n.
type resource struct {
	key        string
	collection string
	name       string
	doc        object
	// pending is true while the operation that makes it runs.
	pending bool
}

// add puts a resource into the state and gives it what every resource has.
func (s *Server) add(key, kind string, doc object) *resource {
	parts := strings.Split(key, "/")
	r := &resource{key: key, name: parts[len(parts)-1], collection: parts[len(parts)-2], doc: doc}
	if doc == nil {
		r.doc = object{}
	}
	r.doc["kind"] = "compute#" + kind
	r.doc["id"] = s.nextID()
	r.doc["name"] = r.name
	r.doc["creationTimestamp"] = stamp(time.Now())
	r.doc["selfLink"] = selfBase + key
	switch parts[2] {
	case "zones":
		if r.collection != "zones" {
			r.doc["zone"] = selfBase + strings.Join(parts[:4], "/")
		}
	case "regions":
		if r.collection != "regions" {
			r.doc["region"] = selfBase + strings.Join(parts[:4], "/")
		}
	}
	s.resources[key] = r
	return r
}

// scopeOf is the part of a key between the project and the collection.
func scopeOf(key string) string {
	parts := strings.Split(key, "/")
	if parts[2] == "global" {
		return "global"
	}
	return parts[2] + "/" + parts[3]
}

func (s *Server) nextID() string {
	s.lastID += 1_000_003
	return fmt.Sprint(s.lastID)
}

func stamp(t time.Time) string {
	return t.In(time.FixedZone("PST", -8*3600)).Format("2006-01-02T15:04:05.000-07:00")
}

// in are the resources of a collection in a scope ("" for all of the project's), by name.
func (s *Server) in(project, scope, collection string) []*resource {
	var out []*resource
	for _, key := range sortedKeys(s.resources) {
		r := s.resources[key]
		if r.collection == collection && strings.HasPrefix(key, "projects/"+project+"/"+scope) && (scope == "" || scopeOf(key) == scope) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *resource) int { return strings.Compare(scopeOf(a.key)+"/"+a.name, scopeOf(b.key)+"/"+b.name) })
	return out
}

// resolve turns a link, whole or partial, into a key: "zones/z/machineTypes/t",
// "global/networks/default", "https://…/compute/v1/projects/…".
func (c *call) resolve(link string) string {
	if u, err := url.Parse(link); err == nil && u.Host != "" {
		_, after, _ := strings.Cut(u.Path, "/compute/v1/")
		link = after
	}
	switch first, _, _ := strings.Cut(link, "/"); first {
	case "projects":
		return link
	case "zones", "regions", "global":
		return "projects/" + c.project + "/" + link
	}
	return ""
}

// find reads a resource of the call's scope by the value in its path.
func (c *call) find(collection, name string) (*resource, error) {
	key := c.key(collection, name)
	if r := c.s.resources[key]; r != nil {
		return r, nil
	}
	for _, r := range c.s.in(c.project, c.scope, collection) {
		if r.doc["id"] == name {
			return r, nil
		}
	}
	return nil, notFound(key)
}

// text, list and sub read a document; a missing part is empty.
func text(o object, path ...string) string {
	for _, p := range path[:len(path)-1] {
		o = sub(o, p)
	}
	switch v := o[path[len(path)-1]].(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case nil:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

func sub(o object, name string) object {
	v, _ := o[name].(object)
	return v
}

func list(o object, name string) []any {
	v, _ := o[name].([]any)
	return v
}

// each are the objects in a list of a document.
func each(o object, name string) []object {
	var out []object
	for _, v := range list(o, name) {
		if e, ok := v.(object); ok {
			out = append(out, e)
		}
	}
	return out
}

func lastPart(link string) string { return link[strings.LastIndex(link, "/")+1:] }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// fingerprint is a hash of a value, as the service gives it out for optimistic locking.
func fingerprint(v any) string {
	raw, _ := json.Marshal(v) // maps of strings always marshal
	h := fnv.New64a()
	_, _ = h.Write(raw)
	return base64.URLEncoding.EncodeToString(h.Sum(nil))
}

// clone copies a document, so that what a test or an operation keeps does not change later.
func clone(o object) object {
	out := make(object, len(o))
	for k, v := range o {
		out[k] = cloneValue(v)
	}
	return out
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case object:
		return clone(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = cloneValue(e)
		}
		return out
	}
	return v
}

func (r *resource) project() string { return strings.Split(r.key, "/")[1] }
