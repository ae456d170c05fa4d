package gcp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/googleapi"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends"
)

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	good := func() Config { return Config{Project: "p", Zones: []string{"us-central1-a"}} }
	if err := good().withDefaults().validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"project: ":              func(c *Config) { c.Project = "P" },
		"zones: there":           func(c *Config) { c.Zones = nil },
		`zones: "Zone"`:          func(c *Config) { c.Zones = []string{"Zone"} },
		"credentialsFile: ":      func(c *Config) { c.CredentialsFile = "x.json" },
		"network: ":              func(c *Config) { c.Network = "projects/p/networks/x" },
		"subnetwork: ":           func(c *Config) { c.Subnetwork = "a/b" },
		"address: ":              func(c *Config) { c.Address = "both" },
		"preemption: ":           func(c *Config) { c.Preemption = "cry" },
		"diskType: ":             func(c *Config) { c.DiskType = "pd/ssd" },
		"serviceAccount.email: ": func(c *Config) { c.ServiceAccount.Email = "me" },
		"firewall.priority: ":    func(c *Config) { n := 65536; c.Firewall.Priority = &n },
		"requestTimeout: ":       func(c *Config) { c.RequestTimeout = time.Millisecond },
		"impersonate: ":          func(c *Config) { c.Delegates = []string{"me"} },
		"tags: ":                 func(c *Config) { c.Tags = []string{"Crawl"} },
		"labels: ":               func(c *Config) { c.Labels = map[string]string{labelUID: "x"} },
		"endpoints.compute: ":    func(c *Config) { c.Endpoints.Compute = "compute" },
	} {
		c := good()
		change(&c)
		if err := c.withDefaults().validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q…", err, want)
		}
	}
	for want, h := range map[string]backends.HostConfig{
		"images.x.family: ":     {Images: map[string]backends.Image{"x": {Family: "debian-cloud/debian-13"}}},
		"vendorData: image x ":  {VendorData: "#!/bin/sh\n", Images: map[string]backends.Image{"x": {Family: "debian-13", CloudInit: new(bool)}}},
		"machineTypes.x.name: ": {MachineTypes: map[string]backends.MachineType{"x": {VCPUs: 1, MemoryMiB: 512}}},
	} {
		if err := validateHost(h); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q…", err, want)
		}
	}
}

func TestLabelsAreMadeToFitAndStayApart(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"", "a", "A", "a b", "a.b", "a-b", "a_b", "ä", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 65), "01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		got := label(s)
		if !labelValue.MatchString(got) || got != label(s) {
			t.Errorf("%q became %q", s, got)
		}
		if other, twice := seen[got]; twice {
			t.Errorf("%q and %q are both %q", s, other, got)
		}
		seen[got] = s
	}
	if label("crawl-1") != "crawl-1" || label("Crawl Team") != "crawl-team-hwbjczf4" {
		t.Errorf("got %q and %q: what exists would not be found", label("crawl-1"), label("Crawl Team"))
	}
}

var someMark = backends.Mark{Installation: "01k0000000000000000000000a", HostID: "Host 1", Proxy: "crawl-1", UID: "01k0000000000000000000000c", CreatedAt: time.Unix(1790000000, 0).UTC()}

func TestMarksAreReadBack(t *testing.T) {
	o := backends.Owner{Installation: someMark.Installation, HostID: someMark.HostID}
	got, ok := readLabels(markLabels(someMark), o)
	if diff := cmp.Diff(someMark, got); !ok || diff != "" {
		t.Errorf("labels: %v %s", ok, diff)
	}
	if got, ok := readLabels(markLabels(someMark), backends.Owner{Installation: o.Installation, HostID: "Host 2"}); !ok || got.Owned(backends.Owner{Installation: o.Installation, HostID: "Host 2"}) {
		t.Errorf("another host takes %+v for its own", got)
	}
	bad := markLabels(someMark)
	bad[labelUID] = "x"
	if _, ok := readLabels(bad, o); ok {
		t.Error("a mark without a uid was read")
	}
	m := someMark
	m.HostID = "01k0000000000000000000000b"
	if got, ok := readDescription(describe(m)); !ok || got != m {
		t.Errorf("description: %v %+v", ok, got)
	}
	if _, ok := readDescription("hello"); ok {
		t.Error("somebody's description is a mark")
	}
}

func FuzzReadDescription(f *testing.F) {
	f.Add(describe(someMark))
	f.Add(markHead + "uid=")
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := readDescription(text)
		if !ok {
			return
		}
		if again, ok := readDescription(describe(m)); !ok || again != m {
			t.Errorf("%q was read as %+v, and that as %+v", text, m, again)
		}
	})
}

func TestRequestIDsAreOfAnAttempt(t *testing.T) {
	const uid = "01k0000000000000000000000c"
	a := requestID(uid, "us-central1-a", 1)
	if a != requestID(uid, "us-central1-a", 1) || a == requestID(uid, "us-central1-a", 2) || a == requestID(uid, "us-central1-b", 1) || a == requestID("x", "us-central1-a", 1) {
		t.Error("requestIds do not follow from uid, zone and attempt alone")
	}
	if a[14] != '5' {
		t.Errorf("%s is no UUID of version 5", a)
	}
	now := time.Now()
	var r record
	r.begin("a", now)
	first := r.Attempt
	r.begin("b", now)
	r.begin("b", now)
	if r.Attempt != first+2 || !slices.Equal(r.Zones, []string{"a", "b"}) {
		t.Errorf("got %+v", r)
	}
	var lost record
	if lost.begin("a", now.Add(time.Second)); lost.Attempt <= r.Attempt {
		t.Error("an attempt after a lost record has the number of an older one")
	}
}

func TestTroubleHasItsClass(t *testing.T) {
	for _, c := range []struct {
		status int
		reason string
		text   string
		want   trouble
		class  error
	}{
		{403, "quotaExceeded", "", quota, backends.ErrNoCapacity},
		{403, "rateLimitExceeded", "", rateLimited, backends.ErrTransient},
		{429, "", "", rateLimited, backends.ErrTransient},
		{403, "forbidden", "Required 'x' permission", denied, backends.ErrHostFault},
		{403, "accessNotConfigured", "", apiOff, backends.ErrHostFault},
		{401, "required", "Login Required", unauthorized, backends.ErrHostFault},
		{400, "required", "Required field", invalid, backends.ErrPermanent},
		{400, "resourceNotReady", "", busy, backends.ErrTransient},
		{404, "notFound", "", absent, backends.ErrNotFound},
		{409, "alreadyExists", "", exists, backends.ErrConflict},
		{412, "conditionNotMet", "", stale, backends.ErrTransient},
		{412, "conditionNotMet", "Constraint constraints/compute.x violated", policy, backends.ErrHostFault},
		{503, "backendError", "", server, backends.ErrTransient},
		{503, "ZONE_RESOURCE_POOL_EXHAUSTED", "", stockOut, backends.ErrNoCapacity},
		{418, "", "", unknown, backends.ErrTransient},
	} {
		err := heard(t.Context(), &googleapi.Error{Code: c.status, Message: c.text, Errors: []googleapi.ErrorItem{{Reason: c.reason}}})
		if got := troubleOf(err); got != c.want || !errors.Is(classOf(got), c.class) {
			t.Errorf("%d %s: got %v (%v), want %v (%v)", c.status, c.reason, got, classOf(got), c.want, c.class)
		}
	}
}

func TestOnlyUnknownAttemptsStayOpen(t *testing.T) {
	for status, want := range map[int]bool{400: true, 403: true, 404: true, 408: false, 409: true, 429: false, 500: false, 503: false} {
		if got := isDefinite(&refusal{Status: status}); got != want {
			t.Errorf("%d: got %v, want %v", status, got, want)
		}
	}
	if isDefinite(&silence{cause: errors.New("EOF")}) {
		t.Error("no answer is taken for a refusal")
	}
}

func TestAFailureSaysAllItsErrorsAndNoSecret(t *testing.T) {
	op := &computepb.Operation{Name: proto.String("operation-1"), HttpErrorStatusCode: proto.Int32(503), Error: &computepb.Error{Errors: []*computepb.Errors{
		{Code: proto.String("A"), Message: proto.String("Invalid value for field 'resource.metadata.items[0].value': 'secret\nlines'. Bad.")},
		{Code: proto.String("B"), Message: proto.String("b"), ErrorDetails: []*computepb.ErrorDetails{{ErrorInfo: &computepb.ErrorInfo{Metadatas: map[string]string{"zonesAvailable": "x-a, x-b"}}}}}}}}
	const want = "operation operation-1 failed: A: Invalid value for field 'resource.metadata.items[0].value': '(not shown)'. Bad.; B: b [room in x-a, x-b]"
	if got := outcome(op); got == nil || got.Error() != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if err := outcome(&computepb.Operation{HttpErrorStatusCode: proto.Int32(200)}); err != nil {
		t.Error(err)
	}
}

func TestRequestsChooseAmongTheHostsZones(t *testing.T) {
	allowed := []string{"us-central1-a", "us-central1-b", "europe-west1-b"}
	for asked, want := range map[string]string{
		"": "us-central1-a us-central1-b europe-west1-b", "europe-west1 us-central1-b": "europe-west1-b us-central1-b",
		"us-central1": "us-central1-a us-central1-b", "us-central1-b us-central1": "us-central1-b us-central1-a", "asia-east1": "", "us": "",
	} {
		if got := strings.Join(choose(allowed, strings.Fields(asked)), " "); got != want {
			t.Errorf("%q: got %q, want %q", asked, got, want)
		}
	}
}

func TestProcessorsCountForTheirFamilysQuota(t *testing.T) {
	for name, want := range map[string]string{"e2-small": "CPUS", "n1-standard-1": "CPUS", "f1-micro": "CPUS", "n2-standard-2": "N2_CPUS", "t2d-standard-1": "T2D_CPUS"} {
		if got := cpuQuota(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestRecordsSurviveAndGo(t *testing.T) {
	r := &records{dir: filepath.Join(t.TempDir(), "r")}
	rec := &record{Proxy: "a", UID: "01k0000000000000000000000c", CreatedAt: someMark.CreatedAt}
	rec.begin("us-central1-a", time.Now())
	if err := r.put(t.Context(), "x", rec); err != nil {
		t.Fatal(err)
	}
	got, err := r.get(rec.UID)
	if diff := cmp.Diff(rec, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if info, err := os.Stat(r.path(rec.UID)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := errors.Join(r.remove(t.Context(), rec.UID), r.remove(t.Context(), rec.UID)); err != nil {
		t.Error(err)
	}
	if got, err := r.get(rec.UID); got != nil || err != nil {
		t.Errorf("got %+v %v", got, err)
	}
}
