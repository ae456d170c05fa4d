package pvefake

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// SchemaEnv names the environment variable with the directory of the schema
// files api-schema-9.1.json and api-schema-8.4.json.
const SchemaEnv = "PROXYFLEET_PVE_SCHEMA"

// Version selects the API the cluster speaks.
type Version int

const (
	// V9 is Proxmox VE 9: schema 9.1, version 9.2.11. The default.
	V9 Version = iota
	// V8 is Proxmox VE 8: schema 8.4, VM.Monitor in place of VM.GuestAgent.*.
	V8
)

// String is the version that GET /version answers.
func (v Version) String() string {
	if v == V8 {
		return "8.4.14"
	}
	return "9.2.11"
}

func (v Version) file() string {
	if v == V8 {
		return "api-schema-8.4.json"
	}
	return "api-schema-9.1.json"
}

// FindSchema returns the directory of the schema files: the one SchemaEnv
// names, else shared/pve beside the module's folder. Its error says where to
// get the files.
func FindSchema() (string, error) {
	dir := os.Getenv(SchemaEnv)
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "..", "shared", "pve")
	}
	for _, v := range []Version{V9, V8} {
		if _, err := os.Stat(filepath.Join(dir, v.file())); err != nil {
			return "", fmt.Errorf("the Proxmox API schema %s is not in %s: set %s to a directory that has it; "+
				"its content is the apidoc of a Proxmox VE node (/usr/share/pve-docs/api-viewer/apidoc.js) "+
				"as one object of \"METHOD /path\" to method", v.file(), dir, SchemaEnv)
		}
	}
	return dir, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory: set " + SchemaEnv)
		}
		dir = up
	}
}

// method is one entry of the schema: one HTTP method on one path.
type method struct {
	Verb       string     `json:"method"`
	Parameters object     `json:"parameters"`
	Perms      permission `json:"permissions"`
	Protected  int        `json:"protected"`
	ProxyTo    string     `json:"proxyto"`

	template string // path with {placeholders}
}

// key is the entry's name in the schema: "METHOD /path/{x}".
func (m *method) key() string { return m.Verb + " " + m.template }

// permission is what a caller must hold; see Cluster.checkMethod.
type permission struct {
	User  string          `json:"user"`
	Check json.RawMessage `json:"check"`
}

type object struct {
	Properties map[string]*property `json:"properties"`
}

// property is a Proxmox JSON schema property. Numbers come both quoted and
// bare, and format is a name or an object of sub-properties.
type property struct {
	Type       string          `json:"type"`
	Optional   flag            `json:"optional"`
	RawFormat  json.RawMessage `json:"format"`
	Pattern    string          `json:"pattern"`
	Enum       []string        `json:"enum"`
	Minimum    *number         `json:"minimum"`
	Maximum    *number         `json:"maximum"`
	MinLength  *int            `json:"minLength"`
	MaxLength  *int            `json:"maxLength"`
	Requires   string          `json:"requires"`
	DefaultKey flag            `json:"default_key"`
	Alias      string          `json:"alias"`
	KeyAlias   string          `json:"keyAlias"`

	Format string               `json:"-"` // named format
	Sub    map[string]*property `json:"-"` // property string
}

type flag bool

func (f *flag) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	*f = s == "1" || s == "true"
	return nil
}

type number float64

func (n *number) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal([]byte(strings.Trim(string(b), `"`)), &f); err != nil {
		return err
	}
	*n = number(f)
	return nil
}

func (p *property) resolve() error {
	if p.Type == "" && p.Alias == "" {
		p.Type = "string"
	}
	if len(p.RawFormat) == 0 {
		return nil
	}
	if p.RawFormat[0] == '"' {
		return json.Unmarshal(p.RawFormat, &p.Format)
	}
	if err := json.Unmarshal(p.RawFormat, &p.Sub); err != nil {
		return err
	}
	for _, s := range p.Sub {
		if err := s.resolve(); err != nil {
			return err
		}
	}
	return nil
}

// indexed is how many keys a property written name[n] stands for. The schema
// does not say; the numbers are those of qemu-server's own constants.
var indexed = map[string]int{
	"ide": 4, "sata": 6, "scsi": 31, "virtio": 16, "net": 32, "serial": 4, "parallel": 3,
	"usb": 14, "hostpci": 16, "numa": 8, "unused": 256, "ipconfig": 32, "virtiofs": 10,
}

type schema map[string]*method

// schemas keeps what was parsed: half a megabyte that never changes while the
// process lives and that every test of every package needs.
var schemas struct {
	sync.Mutex
	loaded map[string]schema
}

// loadSchema reads one version's schema, once per process.
func loadSchema(dir string, v Version) (schema, error) {
	path := filepath.Join(dir, v.file())
	schemas.Lock()
	defer schemas.Unlock()
	if s := schemas.loaded[path]; s != nil {
		return s, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := parseSchema(raw)
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", path, err)
	}
	if schemas.loaded == nil {
		schemas.loaded = map[string]schema{}
	}
	schemas.loaded[path] = s
	return s, nil
}

func parseSchema(raw []byte) (schema, error) {
	var s schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	for key, m := range s {
		_, m.template, _ = strings.Cut(key, " ")
		all := map[string]*property{}
		ide := m.Parameters.Properties["ide[n]"]
		for name, p := range m.Parameters.Properties {
			if err := p.resolve(); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", key, name, err)
			}
		}
		for name, p := range m.Parameters.Properties {
			if p.Format == "pve-qm-ide" && ide != nil { // cdrom, an alias of ide2
				p.Format, p.Sub = "", ide.Sub
			}
			base, ok := strings.CutSuffix(name, "[n]")
			if !ok {
				all[name] = p
				continue
			}
			for i := range indexed[base] {
				all[fmt.Sprintf("%s%d", base, i)] = p
			}
		}
		m.Parameters.Properties = all
	}
	return s, nil
}

// find returns the method for a decoded path and the values of its
// placeholders, or nil. {volume} takes the rest of the path, slashes and all,
// as Proxmox's own router does for it.
func (s schema) find(verb, path string) (*method, map[string]string) {
	var best *method
	var vars map[string]string
	for _, m := range s {
		if m.Verb != verb {
			continue
		}
		if v, ok := matchPath(m.template, path); ok && (best == nil || literals(m.template) > literals(best.template)) {
			best, vars = m, v
		}
	}
	return best, vars
}

func literals(template string) int { return -strings.Count(template, "{") }

func matchPath(template, path string) (map[string]string, bool) {
	want := strings.Split(strings.Trim(template, "/"), "/")
	got := strings.Split(strings.Trim(path, "/"), "/")
	vars := map[string]string{}
	for i, w := range want {
		if i >= len(got) {
			return nil, false
		}
		if w == "{volume}" && i == len(want)-1 {
			vars["volume"] = strings.Join(got[i:], "/")
			return vars, vars["volume"] != ""
		}
		if strings.HasPrefix(w, "{") {
			vars[strings.Trim(w, "{}")] = got[i]
			continue
		}
		if w != got[i] {
			return nil, false
		}
	}
	return vars, len(want) == len(got)
}
