//go:build pve || proxmox_real

package pvefake

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

func bothVersions(t *testing.T, test func(*testing.T, *Cluster, *client)) {
	for _, v := range []Version{V9, V8} {
		t.Run(v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, cl := newTestCluster(t, Options{Version: v, Speed: 1, InProcess: true})
				test(t, c, cl)
			})
		})
	}
}

func TestWhatTheSchemaRejectsIsRejected(t *testing.T) {
	config, clone := "/nodes/pve1/qemu/9000/config", "/nodes/pve1/qemu/9000/clone"
	unknown := "property is not defined in schema and the schema does not allow additional properties"
	tests := map[string]struct {
		method, path string
		params       url.Values
		want         string
	}{
		"an unknown parameter":          {"PUT", config, form("corez", "2"), `{"corez":"` + unknown},
		"an unknown query parameter":    {"GET", config, form("verbose", "1"), `{"verbose":"` + unknown},
		"tags in a clone":               {"POST", clone, form("newid", "101", "tags", "a"), `{"tags":"` + unknown},
		"a missing parameter":           {"POST", clone, form("name", "x"), `{"newid":"property is missing and it is not optional"}`},
		"a word for an integer":         {"PUT", config, form("cores", "two"), `{"cores":"type check ('integer') failed - got 'two'"}`},
		"a fraction for an integer":     {"PUT", config, form("cores", "1.5"), `{"cores":"type check ('integer') failed - got '1.5'"}`},
		"a word for a number":           {"PUT", config, form("cpulimit", "much"), `{"cpulimit":"type check ('number') failed`},
		"a word for a boolean":          {"PUT", config, form("onboot", "maybe"), `{"onboot":"type check ('boolean') failed`},
		"too little":                    {"PUT", config, form("cores", "0"), `{"cores":"value must have a minimum value of 1"}`},
		"too much":                      {"PUT", config, form("cpulimit", "129"), `{"cpulimit":"value must have a maximum value of 128"}`},
		"a text that is too long":       {"PUT", config, form("description", strings.Repeat("x", 8193)), `{"description":"value may only be 8192 characters long"}`},
		"a value outside the enum":      {"PUT", config, form("ostype", "bsd"), `{"ostype":"value 'bsd' does not have a value in the enumeration 'other, wxp`},
		"a pattern that does not match": {"PUT", "/nodes/pve1/qemu/9000/resize", form("disk", "scsi0", "size", "2GB"), `{"size":"value does not match the regex pattern"}`},
		"a newline after a pattern":     {"PUT", config, form("serial0", "socket\n\n"), `{"serial0":"value does not match`},
		"a VMID that is too small":      {"GET", "/cluster/nextid", form("vmid", "42"), `{"vmid":"invalid format - value does not look like a valid VM ID`},
		"a name that is no DNS name":    {"PUT", config, form("name", "bad_name"), `{"name":"invalid format - value does not look like a valid DNS name`},
		"a tag with a slash":            {"PUT", config, form("tags", "a/b"), `{"tags":"invalid format - invalid characters in tag`},
		"a MAC of a group":              {"PUT", config, form("net0", "virtio=01:00:00:00:00:01"), `net0.macaddr: invalid format - value does not look like a valid unicast MAC address`},
		"a NIC key misspelt":            {"PUT", config, form("net0", "virtio,brigde=vmbr0"), `net0.brigde: ` + unknown},
		"a NIC key twice":               {"PUT", config, form("net0", "virtio,bridge=vmbr0,bridge=vmbr1"), `duplicate key in comma-separated list property: bridge`},
		"a VLAN out of range":           {"PUT", config, form("net0", "virtio,tag=4095"), `net0.tag: value must have a maximum value of 4094`},
		"a NIC beyond the last":         {"PUT", config, form("net32", "virtio"), `{"net32":"` + unknown},
		"memory below the least":        {"PUT", config, form("memory", "15"), `memory.current: value must have a minimum value of 16`},
		"an alias with a bad value":     {"PUT", config, form("cdrom", "x,media=tape"), `cdrom.`},
		"force without delete":          {"PUT", config, form("force", "1", "cores", "1"), `{"delete":"missing property - 'force' requires this property"}`},
		"a boot device of no kind":      {"PUT", config, form("boot", "order=sda"), `{"boot":"invalid format - invalid boot device 'sda'`},
		"a path against a parameter":    {"PUT", config, form("cores", "1", "vmid", "7"), `{"vmid":"duplicate parameter (already defined in URI) with conflicting values!"}`},
		"a number for a path's VMID":    {"GET", "/nodes/pve1/qemu/abc/config", nil, `{"vmid":"type check ('integer') failed - got 'abc'"}`},
	}
	bothVersions(t, func(t *testing.T, c *Cluster, cl *client) {
		before, _ := c.VM(9000)
		for name, x := range tests {
			t.Log(name)
			cl.expect(400, strings.ReplaceAll(x.want, "\n", `\n`), x.method, x.path, x.params)
		}
		if after, _ := c.VM(9000); !maps.Equal(before.Config, after.Config) || len(c.VMs()) != 1 {
			t.Errorf("a rejected request changed something: %v", after)
		}
		if n := len(c.Tasks()); n != 0 {
			t.Errorf("a rejected request started %d tasks", n)
		}
	})
}

func TestWhatTheVersionsDifferInIsTakenFromTheirSchemas(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *Cluster, cl *client) {
		params := form("cores", "1", "allow-ksm", "0") // new in 9
		if c.Version() == V8 {
			cl.expect(400, `{"allow-ksm":"property is not defined`, "PUT", "/nodes/pve1/qemu/9000/config", params)
		} else {
			cl.expect(200, "OK", "PUT", "/nodes/pve1/qemu/9000/config", params)
		}
		cl.expect(501, "Method 'POST /nodes/pve1/qemu/9000/resize' not implemented", "POST", "/nodes/pve1/qemu/9000/resize", nil)
		cl.expect(501, "Method 'GET /nope' not implemented", "GET", "/nope", nil)
	})
}

// unchecked are the named formats of modelled calls that are accepted as they
// come: what they describe, a proxy backend never sends.
var unchecked = []string{"bridge-pair", "pve-qemu-sev-fmt", "pve-qemu-tdx-fmt", "pve-qm-hostpci"}

func TestEveryFormatOfAModelledCallIsCheckedOrListed(t *testing.T) {
	dir, err := FindSchema()
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	var visit func(props map[string]*property)
	visit = func(props map[string]*property) {
		for _, p := range props {
			base := strings.TrimSuffix(p.Format, "-list")
			if p.Format != "" && formats[p.Format] == nil && formats[base] == nil {
				missing[base] = true
			}
			if p.Pattern != "" {
				perlPattern(p.Pattern) // panics on one that is not for Go
			}
			visit(p.Sub)
		}
	}
	for _, v := range []Version{V9, V8} {
		s, err := loadSchema(dir, v)
		if err != nil {
			t.Fatal(err)
		}
		for key := range handlers {
			m := s[key]
			if m == nil {
				t.Errorf("%s %s: a handler without a method in the schema", v, key)
				continue
			}
			visit(m.Parameters.Properties)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(missing)) {
		if !slices.Contains(unchecked, f) {
			t.Errorf("format %s is neither checked nor listed", f)
		}
	}
	for _, f := range unchecked {
		if !missing[f] && f != "bridge-pair" {
			t.Errorf("format %s is listed and no call needs it", f)
		}
	}
}

func TestAMissingSchemaSaysWhereToGetIt(t *testing.T) {
	t.Setenv(SchemaEnv, filepath.Join(t.TempDir(), "gone"))
	_, err := FindSchema()
	for _, want := range []string{"api-schema-9.1.json", SchemaEnv, "/usr/share/pve-docs/api-viewer/apidoc.js"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}

func TestTheSchemaIsFoundBesideTheModule(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "shared", "pve")
	deep := filepath.Join(root, "main", "a", "b")
	for _, d := range []string{dir, deep} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(root, "main", "go.mod"), filepath.Join(dir, V8.file()), filepath.Join(dir, V9.file())} {
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(SchemaEnv, "")
	t.Chdir(deep)
	got, err := FindSchema()
	if err != nil || !strings.HasSuffix(got, filepath.Join("shared", "pve")) {
		t.Errorf("got %q, %v; want the directory beside the module", got, err)
	}
}

func FuzzValuesAreCheckedWithoutPanic(f *testing.F) {
	dir, err := FindSchema()
	if err != nil {
		f.Fatal(err)
	}
	s, err := loadSchema(dir, V9)
	if err != nil {
		f.Fatal(err)
	}
	m := s["PUT /nodes/{node}/qemu/{vmid}/config"]
	for _, seed := range []string{"virtio=BC:24:11:00:00:01,bridge=vmbr0", "local:iso/a.iso,media=cdrom", "1", "order=scsi0;net0", "a=b,=,,x"} {
		for _, key := range []string{"net0", "ide2", "agent", "boot", "tags"} {
			f.Add(key, seed)
		}
	}
	f.Fuzz(func(t *testing.T, key, val string) {
		params := map[string]string{"node": "pve1", "vmid": "100", key: val}
		if m.validate(params) != nil {
			return
		}
		// What passes once passes again in its normal form.
		if err := m.validate(params); err != nil {
			t.Errorf("%s=%q passed and then did not: %v", key, val, err)
		}
	})
}
