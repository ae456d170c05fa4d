package gcpfake

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// discoveryJSON is what Google's discovery documents say about the methods that are
// modelled, without their prose. TestTheCopyIsWhatTheModuleSays writes it and holds it
// against the documents in the module google.golang.org/api.
//
//go:generate go test -run TestTheCopyIsWhatTheModuleSays -update
//go:embed discovery.json
var discoveryJSON []byte

// service is one API: its methods by id and its schemas by name.
type service struct {
	Revision string             `json:"revision"`
	Methods  map[string]*method `json:"methods"`
	Schemas  map[string]*schema `json:"schemas"`
}

// method is one call as a discovery document describes it; Path includes the service path.
type method struct {
	ID         string             `json:"id"`
	HTTPMethod string             `json:"httpMethod"`
	Path       string             `json:"path"`
	Parameters map[string]*schema `json:"parameters"`
	Request    *schema            `json:"request,omitempty"`
	Response   *schema            `json:"response,omitempty"`

	service  *service
	segments []string
}

// schema describes one value.
type schema struct {
	Type        string              `json:"type,omitempty"`
	Ref         string              `json:"$ref,omitempty"`
	Format      string              `json:"format,omitempty"`
	Pattern     string              `json:"pattern,omitempty"`
	Enum        []string            `json:"enum,omitempty"`
	Minimum     string              `json:"minimum,omitempty"`
	Maximum     string              `json:"maximum,omitempty"`
	ReadOnly    bool                `json:"readOnly,omitempty"`
	Location    string              `json:"location,omitempty"`
	Required    bool                `json:"required,omitempty"`
	Repeated    bool                `json:"repeated,omitempty"`
	Items       *schema             `json:"items,omitempty"`
	Properties  map[string]*schema  `json:"properties,omitempty"`
	Additional  *schema             `json:"additionalProperties,omitempty"`
	Annotations map[string][]string `json:"annotations,omitempty"`
}

// discovery is everything that is modelled.
type discovery struct {
	services map[string]*service
	methods  map[string]*method // by id
}

// loadDiscovery reads the embedded copy once for all servers; nothing changes it.
var loadDiscovery = sync.OnceValues(func() (*discovery, error) {
	d := &discovery{methods: map[string]*method{}}
	if err := json.Unmarshal(discoveryJSON, &d.services); err != nil {
		return nil, fmt.Errorf("discovery.json: %w", err)
	}
	for _, s := range d.services {
		for id, m := range s.Methods {
			m.service = s
			m.segments = strings.Split(m.Path, "/")
			d.methods[id] = m
		}
	}
	return d, nil
})

// find is the method of a request and the values in its path. pathKnown says whether the
// path exists under another HTTP method.
func (d *discovery) find(httpMethod string, u *url.URL) (m *method, vars map[string]string, pathKnown bool) {
	segments := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for _, candidate := range d.methods {
		got, ok := candidate.match(segments)
		if !ok {
			continue
		}
		pathKnown = true
		if candidate.HTTPMethod == httpMethod {
			return candidate, got, true
		}
	}
	return nil, nil, pathKnown
}

// match takes the variables out of a path. A segment may hold a variable and a verb:
// "{projectsId}:testIamPermissions".
func (m *method) match(segments []string) (map[string]string, bool) {
	if len(segments) != len(m.segments) {
		return nil, false
	}
	vars := map[string]string{}
	for i, want := range m.segments {
		got, err := url.PathUnescape(segments[i])
		if err != nil {
			return nil, false
		}
		if !strings.HasPrefix(want, "{") {
			if want != got {
				return nil, false
			}
			continue
		}
		name, verb, _ := strings.Cut(strings.TrimPrefix(want, "{"), "}")
		value, ok := strings.CutSuffix(got, verb)
		if !ok || value == "" || verb == "" && strings.Contains(value, ":") {
			return nil, false
		}
		vars[name] = value
	}
	return vars, true
}

// pattern compiles a document's pattern for a whole value; RE2 is what Google uses too.
func (d *schema) pattern() *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + d.Pattern + `)$`)
}
