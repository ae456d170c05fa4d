package gcpfake

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write discovery.json anew")

// documents are the services and where the module has their discovery documents.
var documents = map[string]string{
	"compute":                "compute/v1/compute-api.json",
	"cloudresourcemanager":   "cloudresourcemanager/v1/cloudresourcemanager-api.json",
	"cloudresourcemanagerV3": "cloudresourcemanager/v3/cloudresourcemanager-api.json",
	"iamcredentials":         "iamcredentials/v1/iamcredentials-api.json",
}

// published is a discovery document as Google writes it.
type published struct {
	Revision    string
	ServicePath string
	Resources   map[string]*publishedResource
	Schemas     map[string]*schema
}

type publishedResource struct {
	Methods   map[string]*publishedMethod
	Resources map[string]*publishedResource
}

type publishedMethod struct {
	ID, HTTPMethod, Path, FlatPath string
	Parameters                     map[string]*schema
	Request, Response              *schema
}

func (r *publishedResource) all() []*publishedMethod {
	all := slices.Collect(maps.Values(r.Methods))
	for _, sub := range r.Resources {
		all = append(all, sub.all()...)
	}
	return all
}

// trim keeps the methods that have a handler and the schemas they lead to.
func trim(name string, raw []byte) (*service, error) {
	var doc published
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	out := &service{Revision: doc.Revision, Methods: map[string]*method{}, Schemas: map[string]*schema{}}
	root := publishedResource{Resources: doc.Resources}
	for _, m := range root.all() {
		id := m.ID
		if name == "cloudresourcemanagerV3" {
			id = "v3." + id
		}
		if handlers[id] == nil {
			continue
		}
		path := m.FlatPath
		if path == "" {
			path = m.Path
		}
		kept := &method{ID: id, HTTPMethod: m.HTTPMethod, Path: doc.ServicePath + path, Parameters: m.Parameters, Request: m.Request, Response: m.Response}
		out.Methods[id] = kept
		keep(&doc, out, m.Request)
		keep(&doc, out, m.Response)
	}
	return out, nil
}

func keep(doc *published, out *service, s *schema) {
	if s == nil {
		return
	}
	if s.Ref != "" && out.Schemas[s.Ref] == nil {
		out.Schemas[s.Ref] = doc.Schemas[s.Ref]
		keep(doc, out, doc.Schemas[s.Ref])
	}
	keep(doc, out, s.Items)
	keep(doc, out, s.Additional)
	for _, p := range s.Properties {
		keep(doc, out, p)
	}
}

// render writes a line for each method and schema, so that a new version of the module shows
// in a diff what it changed.
func render(services map[string]*service) ([]byte, error) {
	var b bytes.Buffer
	lines := func(name, end string, entries map[string]any) error {
		fmt.Fprintf(&b, "    %q: {\n", name)
		keys := slices.Sorted(maps.Keys(entries))
		for i, k := range keys {
			text, err := json.Marshal(entries[k])
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "      %q: %s%s\n", k, text, map[bool]string{true: ","}[i < len(keys)-1])
		}
		fmt.Fprintf(&b, "    }%s\n", end)
		return nil
	}
	b.WriteString("{\n")
	names := slices.Sorted(maps.Keys(services))
	for i, name := range names {
		s := services[name]
		fmt.Fprintf(&b, "  %q: {\n    \"revision\": %q,\n", name, s.Revision)
		methods, schemas := map[string]any{}, map[string]any{}
		for k, v := range s.Methods {
			methods[k] = v
		}
		for k, v := range s.Schemas {
			schemas[k] = v
		}
		if err := lines("methods", ",", methods); err != nil {
			return nil, err
		}
		if err := lines("schemas", "", schemas); err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "  }%s\n", map[bool]string{true: ","}[i < len(names)-1])
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

func TestTheCopyIsWhatTheModuleSays(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/api").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	services := map[string]*service{}
	for name, path := range documents {
		raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), path))
		if err != nil {
			t.Fatal(err)
		}
		if services[name], err = trim(name, raw); err != nil {
			t.Fatal(err)
		}
	}
	want, err := render(services)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("discovery.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(discoveryJSON, want) {
		t.Error("discovery.json differs from the documents in google.golang.org/api: run go generate, and read what changed")
	}
}

func TestEveryHandlerIsAMethodOfTheAPI(t *testing.T) {
	d, err := loadDiscovery()
	if err != nil {
		t.Fatal(err)
	}
	for id := range handlers {
		if d.methods[id] == nil {
			t.Errorf("%s is no method of the API", id)
		}
	}
	if len(d.methods) != len(handlers) {
		t.Errorf("%d methods and %d handlers", len(d.methods), len(handlers))
	}
}
