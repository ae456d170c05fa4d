package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/gcp/gcpfake"
)

// suite is the conformance suite on simulated projects, or on the one that the environment names;
// see docs/gcp.md.
func suite() backendtest.Harness {
	if setting("PROJECT") != "" {
		return projectSuite()
	}
	return fakeSuite()
}

func setting(name string) string { return os.Getenv("GCP_TEST_" + name) }

// projectSuite is the suite on a project that cases share. They remove what they made.
func projectSuite() backendtest.Harness {
	return backendtest.Harness{
		NewHost: func(t testing.TB) string { return t.TempDir() },
		Open: func(dir string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
			return openProject(dir, owner, log)
		},
		Request: func(ref backends.Ref) backends.Request {
			return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, Image: "test", MachineType: "small", DiskGiB: 10,
				Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
		},
		Traces:     projectTraces,
		Plants:     map[string]backendtest.Plant{"instance": plantInProject},
		Oversize:   func(req *backends.Request) { req.DiskGiB = 65536 },
		Crash:      func(t testing.TB, _ string, ref backends.Ref) { inProject(t, ref, stopBehind) },
		Vanish:     func(t testing.TB, _ string, ref backends.Ref) { inProject(t, ref, deleteBehind) },
		Patience:   10 * time.Minute,
		Promptness: 35 * time.Second, // of a request that is on its way
		Differs: map[backendtest.Difference]string{
			backendtest.DiffersUnread: "nothing can make a real zone silent from outside",
			backendtest.DiffersStall:  "nothing can make a real API hang from outside",
		},
	}
}

func projectConfig() Config {
	return Config{Project: setting("PROJECT"), Zones: strings.Split(cmp.Or(setting("ZONES"), "us-central1"), ","), Network: setting("NETWORK"), Subnetwork: setting("SUBNETWORK"),
		Address: setting("ADDRESS"), ReservedAddress: setting("RESERVED_ADDRESS") == "true", Impersonate: setting("IMPERSONATE"),
		Endpoints: Endpoints{Compute: setting("ENDPOINT"), ResourceManager: setting("ENDPOINT")}}
}

func openProject(dir string, owner backends.Owner, log *slog.Logger) (*Backend, error) {
	return New(projectConfig(), backends.HostConfig{
		Images:       map[string]backends.Image{"test": {Family: cmp.Or(setting("FAMILY"), "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64")}},
		MachineTypes: map[string]backends.MachineType{"small": {Name: cmp.Or(setting("MACHINE_TYPE"), "e2-small")}},
		Defaults:     backends.Defaults{Image: "test", MachineType: "small"},
	}, Options{Owner: owner, Log: log, StateDir: filepath.Join(dir, owner.Installation+"-"+owner.HostID)})
}

// behind are clients that look at the project behind the backend's back.
func behind(t testing.TB) *api {
	t.Helper()
	a, err := newAPI(projectConfig().withDefaults(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return a
}

// mustRead fails on an error and on a zone that did not answer: what it has is not known.
func mustRead[T any](t testing.TB, what string) func(aggregate[T], error) []T {
	return func(all aggregate[T], err error) []T {
		t.Helper()
		if err != nil || len(all.dark) > 0 {
			t.Fatalf("%s: %v, no answer from %v", what, err, all.dark)
		}
		return all.items
	}
}

func projectInstances(t testing.TB, a *api, ref backends.Ref) []*computepb.Instance {
	t.Helper()
	return mustRead[*computepb.Instance](t, "instances")(a.allInstances(context.Background(), named(backends.InstanceName(ref.UID))))
}

func projectTraces(t testing.TB, dir string, ref backends.Ref) []string {
	t.Helper()
	a, name, ctx := behind(t), backends.InstanceName(ref.UID), context.Background()
	var out []string
	for _, i := range projectInstances(t, a, ref) {
		out = append(out, i.GetSelfLink())
	}
	for _, d := range mustRead[*computepb.Disk](t, "disks")(a.allDisks(ctx, named(name))) {
		out = append(out, d.GetSelfLink())
	}
	for _, x := range mustRead[*computepb.Address](t, "addresses")(a.allAddresses(ctx, named(name))) {
		out = append(out, x.GetSelfLink())
	}
	rules, err := a.allFirewalls(ctx, setting("PROJECT"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if strings.HasPrefix(r.GetName(), name) {
			out = append(out, r.GetSelfLink())
		}
	}
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, ref.UID) {
			out = append(out, filepath.Base(path))
		}
		return nil
	})
	return out
}

// inProject does something to the instances of ref, and waits until it is done.
func inProject(t testing.TB, ref backends.Ref, do func(*api, *computepb.Instance) (*compute.Operation, error)) {
	t.Helper()
	a := behind(t)
	for _, i := range projectInstances(t, a, ref) {
		op, err := do(a, i)
		if err == nil {
			err = op.Wait(context.Background())
		}
		if err != nil {
			t.Errorf("%s: %v", i.GetSelfLink(), err)
		}
	}
}

func stopBehind(a *api, i *computepb.Instance) (*compute.Operation, error) {
	return a.instances.Stop(context.Background(), &computepb.StopInstanceRequest{Project: a.project, Zone: zoneOf(i.GetZone()), Instance: i.GetName()})
}

func deleteBehind(a *api, i *computepb.Instance) (*compute.Operation, error) {
	return a.instances.Delete(context.Background(), &computepb.DeleteInstanceRequest{Project: a.project, Zone: zoneOf(i.GetZone()), Instance: i.GetName()})
}

// plantInProject makes an instance under the name that a uid gives, with the mark that it is to carry.
func plantInProject(t testing.TB, _ string, ref backends.Ref, m backends.Mark) func() string {
	t.Helper()
	a := behind(t)
	b, err := openProject(t.TempDir(), backends.Owner{Installation: "somebody", HostID: "somebody"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	zones, err := b.allowed(context.Background(), ref.UID)
	_ = b.Close()
	if err != nil {
		t.Fatal(err)
	}
	zone, size := zones[0], int64(10)
	i := &computepb.Instance{
		Name: proto.String(backends.InstanceName(ref.UID)), MachineType: proto.String(fmt.Sprintf("zones/%s/machineTypes/%s", zone, cmp.Or(setting("MACHINE_TYPE"), "e2-small"))),
		NetworkInterfaces: []*computepb.NetworkInterface{{Subnetwork: proto.String(b.subnetPath(regionOf(zone)))}},
		Disks: []*computepb.AttachedDisk{{Boot: proto.Bool(true), AutoDelete: proto.Bool(true), InitializeParams: &computepb.AttachedDiskInitializeParams{
			SourceImage: proto.String(b.host.Images["test"].Family), DiskSizeGb: &size}}},
	}
	if m != (backends.Mark{}) {
		i.Labels = markLabels(m)
	}
	op, err := a.instances.Insert(context.Background(), &computepb.InsertInstanceRequest{Project: a.project, Zone: zone, InstanceResource: i})
	if err == nil {
		err = op.Wait(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inProject(t, ref, deleteBehind) })
	return func() string {
		got, err := a.instances.Get(context.Background(), &computepb.GetInstanceRequest{Project: a.project, Zone: zone, Instance: i.GetName()})
		if err != nil {
			return "gone: " + err.Error()
		}
		raw, err := protojson.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var same map[string]any // protojson varies its spaces
		if err := json.Unmarshal(raw, &same); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(same)
	}
}

// TestTheSuiteForARealProjectSeesAndDoesWhatItSays points it to a simulated project.
func TestTheSuiteForARealProjectSeesAndDoesWhatItSays(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	key := filepath.Join(t.TempDir(), "key.json")
	write(t, key, string(s.ServiceAccountKey()))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", key)
	t.Setenv("GCP_TEST_PROJECT", s.Project())
	t.Setenv("GCP_TEST_ENDPOINT", s.URL())
	t.Setenv("GCP_TEST_ZONES", "us-central1")
	h := suite()
	dir, owner := h.NewHost(t), backends.Owner{Installation: "01j0000000000000000000000a", HostID: "01j0000000000000000000000b"}
	b, err := h.Open(dir, owner, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ref := backends.Ref{Proxy: "one", UID: "01j0000000000000000000000c"}
	traces := func() string { return strings.Join(h.Traces(t, dir, ref), "\n") }
	if _, err := b.Ensure(t.Context(), h.Request(ref), func(backends.Progress) {}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"/instances/", "/disks/", "/firewalls/", ref.UID} {
		if !strings.Contains(traces(), kind) {
			t.Errorf("no %s among the traces:\n%s", kind, traces())
		}
	}
	h.Crash(t, dir, ref)
	if i := s.Instances()[0]; i.Status != "TERMINATED" {
		t.Errorf("crashed: %s", i.Status)
	}
	h.Vanish(t, dir, ref)
	if strings.Contains(traces(), "/instances/") || !strings.Contains(traces(), "/firewalls/") {
		t.Errorf("vanished:\n%s", traces())
	}
	if err := b.Delete(t.Context(), ref); err != nil || traces() != "" {
		t.Errorf("deleted: %v\n%s", err, traces())
	}
	mark := backends.Mark{Installation: owner.Installation, HostID: owner.HostID, Proxy: "two", UID: "01j0000000000000000000000d"}
	look := h.Plants["instance"](t, dir, backends.Ref{Proxy: "two", UID: mark.UID}, mark)
	before := look()
	if got, err := b.Get(t.Context(), backends.Ref{Proxy: "two", UID: mark.UID}); err != nil || got.Mark.UID != mark.UID {
		t.Errorf("planted: %+v, %v", got, err)
	}
	s.Terminate(s.Instances()[0].Zone, s.Instances()[0].Name)
	if look() == before {
		t.Error("a change does not show")
	}
	unmarked := backends.Ref{Proxy: "three", UID: "01j0000000000000000000000e"}
	h.Plants["instance"](t, dir, unmarked, backends.Mark{})
	if _, err := b.Get(t.Context(), unmarked); backends.Class(err) != backends.ErrConflict {
		t.Errorf("planted without a mark: %v", err)
	}
}
