package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"proxyfleet/internal/backends/gcp"
	"proxyfleet/internal/backends/kubernetes"
	"proxyfleet/internal/backends/libvirt"
	"proxyfleet/internal/backends/local"
	"proxyfleet/internal/backends/proxmox"
	"proxyfleet/internal/backends/sim"
)

const minimal = "host: {name: h}\nbackend: {type: sim}\n"

func TestTheSampleSaysTheDefaults(t *testing.T) {
	sample, err := Parse(Sample())
	if err != nil {
		t.Fatal(err)
	}
	// The blocks that show defaults, uncommented, change nothing.
	spelt := uncomment(string(Sample()), "root:", "installGuestAgent:", "allowImageURLs:", "concurrency:", "intervals:", "probe:", "log:")
	full, err := Parse([]byte(spelt))
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	sample.InstallGuestAgent = &yes // which is what leaving it out means
	if diff := cmp.Diff(sample, full, cmpopts.IgnoreUnexported(BackendConfig{})); diff != "" {
		t.Errorf("the sample says other defaults than there are (-are +says):\n%s", diff)
	}
	if n := strings.Count(string(Sample()), "\n# ") - strings.Count(spelt, "\n# "); n < 20 {
		t.Errorf("only %d lines were uncommented: the test looks for what is not there", n)
	}
}

// uncomment uncomments the top-level blocks that begin with one of keys.
func uncomment(text string, keys ...string) string {
	var out []string
	in := false
	for _, line := range strings.Split(text, "\n") {
		bare, commented := strings.CutPrefix(line, "# ")
		begins := slices.ContainsFunc(keys, func(k string) bool { return commented && strings.HasPrefix(bare, k) })
		in = begins || in && commented && strings.HasPrefix(bare, "  ")
		if in {
			line = bare
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func TestEveryBackendOfTheSampleLoads(t *testing.T) {
	head, rest, _ := strings.Cut(string(Sample()), "\nbackend:")
	_, rest, _ = strings.Cut(rest, "\n# backend:")
	rest = "\n# backend:" + rest
	for _, name := range []string{"local", "proxmox", "gcp", "kubernetes", "sim"} {
		at := strings.Index(rest, "# backend:\n#   type: "+name)
		if at < 0 {
			t.Fatalf("no backend %s in the sample", name)
		}
		block, _, _ := strings.Cut(rest[at:], "\n\n")
		block = regexp.MustCompile(`(?m)^# ?`).ReplaceAllString(block, "")
		c, err := Parse([]byte(head + "\n" + block + "\n"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.Backend.Type != name {
			t.Errorf("type is %q, want %q", c.Backend.Type, name)
		}
	}
}

func TestTheSampleHasEveryField(t *testing.T) {
	text := string(Sample())
	var walk func(t reflect.Type, path string) []string
	walk = func(typ reflect.Type, path string) []string {
		var missing []string
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Duration]() {
			return nil
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if f.Anonymous {
				missing = append(missing, walk(f.Type, path)...)
				continue
			}
			if tag == "" {
				continue
			}
			if !regexp.MustCompile(`(?m)^[# ]*` + tag + `:`).MatchString(text) {
				missing = append(missing, path+tag)
			}
			missing = append(missing, walk(f.Type, path+tag+".")...)
		}
		return missing
	}
	for path, typ := range map[string]reflect.Type{"": reflect.TypeFor[Config](), "backend libvirt: ": reflect.TypeFor[libvirt.Config](),
		"backend local: ":   reflect.TypeFor[local.Config](),
		"backend proxmox: ": reflect.TypeFor[proxmox.Config](), "backend gcp: ": reflect.TypeFor[gcp.Config](), "backend kubernetes: ": reflect.TypeFor[kubernetes.Config](), "backend sim: ": reflect.TypeFor[sim.Config]()} {
		if missing := walk(typ, path); len(missing) > 0 {
			t.Errorf("missing in the sample: %s", strings.Join(missing, ", "))
		}
	}
}

func TestWhatIsWrongIsSaidWithItsPlace(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"a misspelt field":           {"host:\n  nmae: h\n", `[2:3] unknown field "nmae"`},
		"a misspelt shared field":    {minimal + "imagse: {}\n", `[3:1] unknown field "imagse"`},
		"a repeated field":           {minimal + "root: a\nroot: b\n", `[4:1]`},
		"a wrong type":               {minimal + "concurrency: {ensure: many}\n", `[3:23]`},
		"no YAML":                    {"host: [", `[1:7]`},
		"a backend's misspelt field": {"host: {name: h}\nbackend:\n  type: sim\n  slosts: 3\n", `[4:3] unknown field "slosts"`},
		"a backend that is no map":   {"host: {name: h}\nbackend: sim\n", "want a mapping with a type"},
		"no backend":                 {"host: {name: h}\n", `backend.type: "" is not one of local, libvirt, proxmox`},
		"an FQDN for a name":         {"host: {name: h.example.org}\nbackend: {type: sim}\n", "host.name: \"h.example.org\" is not a DNS label"},
		"an upper-case name":         {"host: {name: H}\nbackend: {type: sim}\n", "host.name"},
		"a relative state directory": {minimal + "stateDir: var\n", "stateDir"},
		"an image without a source":  {minimal + "images: {a: {}}\n", "images.a: needs exactly one of"},
		"an image with two sources":  {minimal + "images: {a: {url: 'https://x/y', file: /x}}\n", "has 2"},
		"a bad digest":               {minimal + "images: {a: {file: /x, digest: 'sha256:12'}}\n", "images.a.digest"},
		"an unknown format":          {minimal + "images: {a: {file: /x, format: vmdk}}\n", "images.a.format"},
		"an unknown firmware":        {minimal + "images: {a: {file: /x, firmware: coreboot}}\n", "images.a.firmware"},
		"an ftp image":               {minimal + "images: {a: {url: 'ftp://x/y'}}\n", "images.a.url"},
		"a bad image key":            {minimal + "images: {'A b': {file: /x}}\n", "images.A b"},
		"a shape without memory":     {minimal + "machineTypes: {s: {vcpus: 1}}\n", "machineTypes.s"},
		"a default that is not there": {minimal + "defaults: {image: x, machineType: y}\n",
			"defaults.image: \"x\" is not one of images\ndefaults.machineType: \"y\" is not one of machineTypes"},
		"negative limits":        {minimal + "limits: {slots: -1}\n", "limits.slots"},
		"retryMax below":         {minimal + "intervals: {retryMin: 2s, retryMax: 1s}\n", "intervals.retryMax"},
		"no slots for calls":     {minimal + "concurrency: {delete: -1}\n", "concurrency.delete"},
		"a bad listener":         {minimal + "http: {address: '9464'}\n", "http.address"},
		"a bad level of the log": {minimal + "log: {level: loud}\n", "log.level"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.yaml))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %s", err, c.want)
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: got %v", err)
	}
	if err := os.WriteFile(path, []byte("x: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+": [1:1]") {
		t.Errorf("bad file: got %v", err)
	}
	if err := os.WriteFile(path, []byte(minimal), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.StateDir != DefaultStateDir || c.Root != "fleet" || c.Intervals.Beat != 5*time.Second {
		t.Errorf("defaults: %+v", c)
	}
}

func TestTheBackendsOwnKeysReachIt(t *testing.T) {
	c, err := Parse([]byte("host: {name: h}\nbackend: {type: sim, slots: 7, network: 198.18.0.0/24}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var own sim.Config
	if err := c.Backend.decode(&own); err != nil {
		t.Fatal(err)
	}
	if own.Slots != 7 || own.Network != "198.18.0.0/24" {
		t.Errorf("got %+v", own)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Sample())
	f.Add([]byte(minimal))
	f.Fuzz(func(_ *testing.T, raw []byte) { _, _ = Parse(raw) })
}
