package gcp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/gcp/gcpfake"
)

// verdict is the check of one target.
func (r *rig) verdict(target string) backends.TargetHealth {
	r.Helper()
	for _, c := range r.b.Check(r.ctx()) {
		if c.Target == target {
			return c
		}
	}
	r.Fatalf("nothing is said about %s: %+v", target, r.b.Check(r.ctx()))
	return backends.TargetHealth{}
}

func (r *rig) expectVerdict(target, code string, texts ...string) {
	r.Helper()
	c := r.verdict(target)
	if c.Code != code {
		r.Errorf("%s: got %s (%s), want %s", target, c.Code, c.Message, code)
	}
	for _, text := range texts {
		if !strings.Contains(c.Message, text) {
			r.Errorf("%s: the message does not say %q: %s", target, text, c.Message)
		}
	}
}

func TestAHealthyProjectIsWell(t *testing.T) {
	r := newRig(t)
	for _, c := range r.b.Check(r.ctx()) {
		if c.Code != backends.CheckOK {
			t.Errorf("%+v", c)
		}
	}
	q := r.verdict("quota/us-central1").Details
	if q["CPUS"] != "24 of 24 left" || q["IN_USE_ADDRESSES"] != "8 of 8 left" || q["INSTANCES"] != "24 of 24 left" {
		t.Errorf("details are %v", q)
	}
}

func TestTheCheckNamesWhatIsMissing(t *testing.T) {
	r := newRig(t, func(c *Config, h *backends.HostConfig) {
		c.Zones = []string{"us-central1-a", "us-central1-x"}
		h.Images["gone"] = backends.Image{Family: "projects/debian-cloud/global/images/nobodys"}
		h.Images["a template"] = backends.Image{Template: "9000"}
		h.MachineTypes["odd"] = backends.MachineType{Name: "q9-huge", VCPUs: 1, MemoryMiB: 1}
	})
	r.s.Deny("compute.instances.create", "compute.networks.updatePolicy")
	r.s.SetQuota("us-central1", "IN_USE_ADDRESSES", 0)
	r.s.SetQuota("", "FIREWALLS", 0)
	r.expectVerdict("permissions", backends.CheckForbidden, "lacks compute.instances.create, compute.networks.updatePolicy on project fleet-test")
	r.expectVerdict("quota/us-central1", backends.CheckQuotaExhausted, "IN_USE_ADDRESSES")
	r.expectVerdict("project/fleet-test", backends.CheckQuotaExhausted, "FIREWALLS")
	r.expectVerdict("zone/us-central1-x", backends.CheckZoneNotFound)
	r.expectVerdict("zone/us-central1-a", backends.CheckOK, "does not have q9-huge")
	r.expectVerdict("image/gone", backends.CheckImageNotFound, "images/nobodys")
	r.expectVerdict("image/a template", backends.CheckImageNotFound)
	r.conf.Network = "nobodys"
	r.b = r.open()
	r.expectVerdict("network/us-central1", backends.CheckNetworkNotFound, "subnetworks/nobodys")
}

// What belongs to the network is in its project: subnetworks, rules, and what may be done with those.
func TestASharedNetworkIsLookedAfterInItsOwnProject(t *testing.T) {
	r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.Network = "projects/shared/global/networks/default" })
	r.s.AddProject("shared")
	for _, c := range r.b.Check(r.ctx()) {
		if c.Code != backends.CheckOK {
			t.Errorf("%+v", c)
		}
	}
	req := r.request()
	r.mustEnsure(req)
	if rules := r.s.Keys("firewalls"); len(rules) != 1 || !strings.HasPrefix(rules[0], "projects/shared/") {
		t.Errorf("rules are %v, want one in the network's project", rules)
	}
	r.mustDelete(req.Ref)
	r.s.Deny("compute.firewalls.create", "compute.instances.create")
	r.expectVerdict("permissions", backends.CheckForbidden, "lacks compute.instances.create on project fleet-test")
	r.expectVerdict("permissions/shared", backends.CheckForbidden, "lacks compute.firewalls.create on project shared")
}

func TestTheOfferFollowsTheQuota(t *testing.T) {
	r := newRig(t)
	offer := func() backends.Offer {
		t.Helper()
		o, err := r.b.Offer(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := offer()
	if want := (backends.Capacity{VCPUs: 32, MemoryMiB: -1, DiskGiB: 1000, Slots: 16}); o.Capacity != want || len(o.Zones) != 3 || o.DefaultMachineType != "small" || o.MachineTypes[0].VCPUs != 2 {
		t.Errorf("got %+v, want capacity %+v", o, want)
	}
	req := r.request()
	r.mustEnsure(req)
	if after := offer(); after.Capacity != o.Capacity {
		t.Errorf("with one of ours got %+v, want what there was: %+v", after.Capacity, o.Capacity)
	}
	req.Desired, req.Generation = backends.Stopped, 2
	r.mustEnsure(req)
	if after := offer(); after.Capacity != o.Capacity {
		t.Errorf("with one of ours that is stopped got %+v, want what there was: %+v", after.Capacity, o.Capacity)
	}
	r.s.SetQuota("us-central1", "IN_USE_ADDRESSES", 1)
	r.s.SetQuota("us-central1", "CPUS", 2)
	if after := offer(); after.Capacity.Slots != 9 || after.Capacity.VCPUs != 26 {
		t.Errorf("got %+v, want 9 slots and 26 processors", after.Capacity)
	}
	r.s.SetQuota("", "FIREWALLS", 3)
	if after := offer(); after.Capacity.Slots != 3 {
		t.Errorf("got %d slots, want one for each firewall rule", after.Capacity.Slots)
	}
	r.hc.Limits.Slots = 2
	r.b = r.open()
	if after := offer(); after.Capacity.Slots != 2 {
		t.Errorf("got %d slots, want the configured 2", after.Capacity.Slots)
	}
}

// Both machine types are e2-small; only one of them counts for the quota of spot instances.
func TestTheOfferHasTheProcessorsOfSpotInstancesBesideTheOthers(t *testing.T) {
	r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.Zones = []string{"us-central1-a"} })
	r.s.SetQuota("us-central1", "CPUS", 4)
	r.s.SetQuota("us-central1", "PREEMPTIBLE_CPUS", 6)
	o, err := r.b.Offer(r.ctx())
	if err != nil || o.Capacity.VCPUs != 10 {
		t.Errorf("got %+v (%v), want 10 processors", o.Capacity, err)
	}
}

func TestCredentialsThatAppearAreFoundWithoutARestart(t *testing.T) {
	r := newRig(t)
	raw, err := os.ReadFile(r.conf.CredentialsFile)
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(r.conf.CredentialsFile)
	r.b = r.open()
	_, err = r.ensure(r.request())
	r.expect(err, backends.ErrHostFault, "no access token", "put the credentials right")
	r.expectVerdict("project/fleet-test", backends.CheckCredentialsUnavailable)
	write(t, r.conf.CredentialsFile, string(raw))
	r.mustEnsure(r.request())
}

func TestTheAgentImpersonatesAServiceAccount(t *testing.T) {
	r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.Impersonate = "proxies@fleet-test.iam.gserviceaccount.com" })
	r.mustEnsure(r.request())
	if r.s.Count("iamcredentials.projects.serviceAccounts.generateAccessToken") == 0 {
		t.Error("nobody asked for its token")
	}
	for _, q := range r.s.Requests() {
		if q.Method == insertMethod && q.Header.Get("Authorization") == "Bearer "+token {
			t.Error("the insert has the agent's own token")
		}
	}
	r.s.Deny("iam.serviceAccounts.getAccessToken")
	r.b = r.open()
	_, err := r.ensure(r.request())
	r.expect(err, backends.ErrHostFault, "iam.serviceAccounts.getAccessToken")
}

// Google's libraries log all that they send and receive when this variable is set.
func TestTheClientsWireLogIsOff(t *testing.T) {
	t.Setenv("GOOGLE_SDK_GO_LOGGING_LEVEL", "debug")
	read, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = pipe
	r := newRig(t)
	req := r.request()
	_, err = r.ensure(req)
	os.Stderr = stderr
	_ = pipe.Close()
	text, _ := io.ReadAll(read)
	if err != nil || len(text) > 0 {
		t.Errorf("ensure: %v; on standard error: %.300s", err, text)
	}
	said := r.said.String()
	for _, want := range []string{"method=POST path=zones/us-central1-a/instances status=200", "path=zones/us-central1-a/operations/operation-"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	// The rig looks for tokens and user-data in what was said.
}

func TestSpansTellOfRequests(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	r := newRig(t)
	ctx, span := provider.Tracer("").Start(r.ctx(), "ensure")
	if _, err := r.b.Ensure(ctx, r.request(), nil); err != nil {
		t.Fatal(err)
	}
	span.End()
	var names []string
	for _, s := range spans.GetSpans() {
		for _, e := range s.Events {
			names = append(names, e.Name)
		}
	}
	for _, want := range []string{"GET aggregated/instances", "POST zones/us-central1-a/instances"} {
		if !slices.Contains(names, want) {
			t.Errorf("no event %q in %v", want, names)
		}
	}
}

func TestAnErrorDoesNotRepeatUserData(t *testing.T) {
	r := newRig(t)
	r.answer(insertMethod, &gcpfake.Error{Code: 400, Reason: "invalid", Message: "Invalid value for field 'resource.metadata.items[2].value': '#cloud-config\n# secret-in-user-data\n'. Metadata is bad."})
	_, err := r.ensure(r.request())
	r.expect(err, backends.ErrPermanent, "(not shown)", "Metadata is bad.")
	if strings.Contains(err.Error(), "secret-in-user-data") {
		t.Error("it repeats the user-data")
	}
}

func TestARequestThatTakesTooLongIsNotTheEndOfTheCall(t *testing.T) {
	r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.RequestTimeout = time.Second })
	resume := make(chan struct{})
	defer close(resume)
	r.s.OnRequest(func(q gcpfake.Request) gcpfake.Action { return gcpfake.Action{Before: func() { <-resume }} })
	began := time.Now()
	_, err := r.b.Get(r.ctx(), r.request().Ref)
	r.expect(err, backends.ErrTransient, "no answer in time")
	if backends.Ended(err) || time.Since(began) > 10*time.Second {
		t.Errorf("it counts as the end of the call, or took too long: %v", err)
	}
	r.expectVerdict("project/fleet-test", backends.CheckTimeout)
}

func TestNobodyThereIsNoFaultOfTheHost(t *testing.T) {
	r := newRig(t)
	b, err := New(r.conf, r.hc, Options{Owner: r.owner, StateDir: t.TempDir(), Transport: deaf{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Get(r.ctx(), r.request().Ref)
	r.expect(err, backends.ErrTransient, "no access token")
	if c := b.Check(r.ctx()); c[0].Code != backends.CheckUnreachable {
		t.Errorf("got %+v, want Unreachable", c[0])
	}
}

type deaf struct{}

func (deaf) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to host")
}

func TestADamagedRecordStopsItsOwnProxyOnly(t *testing.T) {
	r := newRig(t)
	req, other := r.request(), r.request()
	r.mustEnsure(req)
	r.mustEnsure(other)
	path := filepath.Join(r.b.records.dir, req.UID+".json")
	write(t, path, "{")
	_, err := r.ensure(req)
	r.expect(err, backends.ErrHostFault, path)
	r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrHostFault, path)
	if l, err := r.b.List(r.ctx()); err != nil || len(l.Instances) != 2 {
		t.Errorf("got %+v (%v), want both", l, err)
	}
	r.mustDelete(other.Ref)
}

func TestAnAgentStartsWithoutAnything(t *testing.T) {
	var said bytes.Buffer
	b, err := New(Config{Project: "p", Zones: []string{"us-central1"}}, backends.HostConfig{}, Options{Owner: backends.Owner{Installation: "i", HostID: "h"}, StateDir: t.TempDir(),
		Log: slog.New(slog.NewTextHandler(&said, nil)), Transport: deaf{}})
	if err != nil || said.Len() > 0 {
		t.Fatalf("%v %s", err, &said)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestApplicationDefaultCredentialsAreFound(t *testing.T) {
	r := newRig(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", r.conf.CredentialsFile)
	r.conf.CredentialsFile = ""
	r.b = r.open()
	r.mustEnsure(r.request())
}

func TestEachProjectHasAnAgentOfItsOwn(t *testing.T) {
	r := newRig(t)
	r.s.AddProject("other")
	req := r.request()
	r.mustEnsure(req)
	r.conf.Project = "other"
	other := r.open()
	l, err := other.List(r.ctx())
	if err != nil || len(l.Instances) != 0 {
		t.Errorf("got %+v (%v), want nothing of another project", l.Instances, err)
	}
	if _, err := other.Get(r.ctx(), req.Ref); backends.Class(err) != backends.ErrNotFound {
		t.Errorf("got %v, want NotFound", err)
	}
	r.mustHave(req.Ref)
}
