package libvirt

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

func TestCapacityIsWhatIsThereLessTheReserveTimesOvercommit(t *testing.T) {
	var limits backends.Limits
	limits.Reserve.MemoryMiB, limits.Reserve.DiskGiB = 1000, 10
	f := facts{hostCPUs: 4, memAvailable: 8000, residentOurs: 2000, promised: 500, diskFree: 100 << 30, allocatedOurs: 20 << 30}
	if got, want := count(f, limits), (requirement{4, 8500, 110 << 30}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	limits.Overcommit.VCPUs, limits.Overcommit.Memory, limits.Overcommit.Disk = 4, 1.5, 2
	if got, want := count(f, limits), (requirement{16, 12750, 220 << 30}); got != want {
		t.Errorf("overcommitted: got %+v, want %+v", got, want)
	}
	limits.Reserve.MemoryMiB = 1 << 20
	if got := count(f, limits).memoryMiB; got != 0 {
		t.Errorf("below the reserve: got %d, want 0", got)
	}
}

func TestAdmissionCountsWhatIsAdmittedAndNotYetMade(t *testing.T) {
	b := &Backend{pending: map[string]requirement{}}
	u := usage{total: requirement{4, 1000, 100 << 30}, taken: requirement{1, 300, 10 << 30}, slots: -1, counted: map[string]bool{"made": true}}
	admit := func(uid string, need requirement) error {
		_, err := b.admit(u, b.admitted(), uid, need)
		return err
	}
	if err := admit("a", requirement{1, 400, 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if err := admit("a", requirement{1, 400, 1 << 30}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := admit("b", requirement{1, 400, 1 << 30}); !errors.Is(err, backends.ErrNoCapacity) || !strings.Contains(err.Error(), "300 are left") {
		t.Errorf("got %v, want NoCapacity with what is left", err)
	}
	if err := admit("made", requirement{1, 300, 1 << 30}); err != nil {
		t.Errorf("one that just fits: %v", err)
	}
	if err := admit("c", requirement{1, 300, 1 << 30}); err != nil {
		t.Errorf("one whose marker is counted was counted twice: %v", err)
	}
	for what, need := range map[string]requirement{"processors": {4, 0, 1}, "disk": {0, 0, 200 << 30}} {
		if err := admit("d", need); !errors.Is(err, backends.ErrNoCapacity) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	u.slots, u.used = 3, 1
	if err := admit("e", requirement{}); !errors.Is(err, backends.ErrNoCapacity) || !strings.Contains(err.Error(), "slots") {
		t.Errorf("slots: got %v", err)
	}
}

func TestAReservationEndsOnce(t *testing.T) {
	b := &Backend{pending: map[string]requirement{}}
	u := usage{total: requirement{1, 1, 1}, slots: -1}
	release, err := b.admit(u, b.admitted(), "a", requirement{1, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	release()
	release()
	if _, err := b.admit(u, b.admitted(), "b", requirement{1, 1, 1}); err != nil {
		t.Error(err)
	}
}

func TestMemAvailableIsReadInMiB(t *testing.T) {
	file := filepath.Join(t.TempDir(), "meminfo")
	for text, want := range map[string]int64{
		"MemTotal:  100 kB\nMemAvailable:    2048000 kB\n": 2000,
		"MemTotal:  100 kB\n":                              -1,
		"MemAvailable: many kB\n":                          -1,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := memAvailable(file)
		if want < 0 != (err != nil) || want >= 0 && got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestTheMemoryOfAnotherMachineIsAddedUp(t *testing.T) {
	got := freeable([]golibvirt.NodeGetMemoryStats{{Field: "total", Value: 9 << 20}, {Field: "free", Value: 3 << 10}, {Field: "buffers", Value: 1 << 10}, {Field: "cached", Value: 2 << 10}})
	if got != 6 {
		t.Errorf("got %d MiB, want 6", got)
	}
}

func TestErrorsAreClassedByCode(t *testing.T) {
	for code, want := range map[golibvirt.ErrorNumber]error{
		golibvirt.ErrNoDomain: backends.ErrNotFound, golibvirt.ErrNoStoragePool: backends.ErrHostFault, golibvirt.ErrNoNetwork: backends.ErrHostFault,
		golibvirt.ErrAuthFailed: backends.ErrHostFault, golibvirt.ErrAccessDenied: backends.ErrHostFault, golibvirt.ErrOperationDenied: backends.ErrHostFault,
		golibvirt.ErrXMLError: backends.ErrPermanent, golibvirt.ErrConfigUnsupported: backends.ErrPermanent,
		golibvirt.ErrOperationTimeout: backends.ErrTransient, golibvirt.ErrResourceBusy: backends.ErrTransient, golibvirt.ErrAgentUnresponsive: backends.ErrTransient,
		golibvirt.ErrOperationInvalid: backends.ErrTransient, golibvirt.ErrSystemError: backends.ErrTransient, golibvirt.ErrInternalError: backends.ErrTransient,
	} {
		raw := golibvirt.Error{Code: uint32(code), Message: "No space left on device? Cannot tell"}
		if code == golibvirt.ErrInternalError || code == golibvirt.ErrSystemError {
			raw.Message = "odd"
		}
		err := classify("op", raw)
		if backends.Class(err) != want || !errors.As(err, &raw) {
			t.Errorf("code %d: got %v, want %v with its cause", code, err, want)
		}
	}
	for text, code := range map[string]golibvirt.ErrorNumber{
		"cannot set up guest memory 'pc.ram': Cannot allocate memory":                                                 golibvirt.ErrInternalError,
		"unexpected exit status 5: Volume group \"vg\" has insufficient free space (3 extents): 256 required.":        golibvirt.ErrInternalError,
		"cannot extend file '/pool/pf-x.iso': No space left on device":                                                golibvirt.ErrSystemError,
		"Child process (/usr/bin/qemu-img create) unexpected exit status 1: could not write: No space left on device": golibvirt.ErrInternalError,
	} {
		if err := classify("make", golibvirt.Error{Code: uint32(code), Message: text}); backends.Class(err) != backends.ErrNoCapacity {
			t.Errorf("%s: got %v, want NoCapacity", text, err)
		}
	}
	if err := inside(classify("start domain", golibvirt.Error{Code: uint32(golibvirt.ErrNoDomain)})); backends.Class(err) != backends.ErrTransient {
		t.Errorf("vanished inside a create: got %v", err)
	}
}

func TestStatesHaveOneStatusAndAStableReason(t *testing.T) {
	for _, c := range []struct {
		state  golibvirt.DomainState
		reason int32
		want   backends.Status
		word   string
	}{
		{golibvirt.DomainRunning, 1, backends.StatusRunning, ""},
		{golibvirt.DomainBlocked, 0, backends.StatusRunning, ""},
		{golibvirt.DomainShutdown, 0, backends.StatusRunning, "ShuttingDown"},
		{golibvirt.DomainPaused, int32(golibvirt.DomainPausedUser), backends.StatusPaused, "PausedByUser"},
		{golibvirt.DomainPaused, int32(golibvirt.DomainPausedIoerror), backends.StatusPaused, "IOError"},
		{golibvirt.DomainPaused, int32(golibvirt.DomainPausedCrashed), backends.StatusCrashed, "Panicked"},
		{golibvirt.DomainPaused, int32(golibvirt.DomainPausedStartingUp), backends.StatusStarting, "StartingUp"},
		{golibvirt.DomainPmsuspended, 0, backends.StatusPaused, "Suspended"},
		{golibvirt.DomainCrashed, 1, backends.StatusCrashed, "Crashed"},
		{golibvirt.DomainShutoff, int32(golibvirt.DomainShutoffShutdown), backends.StatusStopped, "Shutdown"},
		{golibvirt.DomainShutoff, int32(golibvirt.DomainShutoffDestroyed), backends.StatusStopped, "Destroyed"},
		{golibvirt.DomainShutoff, int32(golibvirt.DomainShutoffCrashed), backends.StatusCrashed, "Crashed"},
		{golibvirt.DomainShutoff, int32(golibvirt.DomainShutoffMigrated), backends.StatusStopped, "Migrated"},
	} {
		if got, word, _ := status(c.state, c.reason); got != c.want || word != c.word {
			t.Errorf("state %d, reason %d: got %s %s, want %s %s", c.state, c.reason, got, word, c.want, c.word)
		}
	}
}

func TestConfigurationsThatCannotWorkAreRefusedByTheirPath(t *testing.T) {
	for want, c := range map[string]Config{
		"uri":                     {URI: "qemu://host/system"},
		"uri: socket":             {URI: "qemu:///system?socket=relative"},
		"storagePool":             {StoragePool: "../etc"},
		"network":                 {Network: Network{Bridge: "br0", LibvirtNetwork: "default"}},
		"network: libvirtNetwork": {Network: Network{Bridge: "br0", Direct: "eth0"}},
		"network.bridge":          {Network: Network{Bridge: "a-name-that-is-too-long"}},
		"network.direct":          {Network: Network{Direct: "eth/0"}},
		"network.openVSwitch":     {Network: Network{OpenVSwitch: true}},
		"network.vlan: direct":    {Network: Network{Direct: "eth0", VLAN: 7}},
		"network.libvirtNetwork":  {Network: Network{LibvirtNetwork: "a/b"}},
		"network.vlan":            {Network: Network{VLAN: 5000}},
		"cpuMode":                 {CPUMode: "qemu64"},
		"virtType":                {VirtType: "xen"},
	} {
		_, err := New(c, backends.HostConfig{}, Options{Owner: backends.Owner{Installation: "i", HostID: "h"}})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error that begins with %q", c, err, want)
		}
	}
	if _, err := New(Config{}, backends.HostConfig{}, Options{}); err == nil {
		t.Error("a backend without an owner would mark nothing")
	}
	if _, err := New(Config{URI: "qemu:///system?socket=/run/x"}, backends.HostConfig{}, Options{Owner: backends.Owner{Installation: "i", HostID: "h"}}); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

func TestAMachineWithoutKVMSaysWhy(t *testing.T) {
	if err := kvmWorks(filepath.Join(t.TempDir(), "kvm")); err == nil || !strings.Contains(err.Error(), "there is no") {
		t.Errorf("got %v", err)
	}
	// A device that is there and is not KVM: opening it proves nothing.
	if err := kvmWorks("/dev/null"); err == nil || !strings.Contains(err.Error(), "KVM_CREATE_VM") {
		t.Errorf("/dev/null: got %v", err)
	}
}

func TestAMissingDaemonIsTransientAndNeverGone(t *testing.T) {
	b, err := New(Config{URI: "qemu:///system?socket=" + filepath.Join(t.TempDir(), "none")}, backends.HostConfig{
		Images: map[string]backends.Image{"i": {File: "/i"}}, MachineTypes: map[string]backends.MachineType{"m": {VCPUs: 1, MemoryMiB: 64}},
		Defaults: backends.Defaults{Image: "i", MachineType: "m"},
	}, Options{Owner: backends.Owner{Installation: "i", HostID: "h"}})
	if err != nil {
		t.Fatal(err)
	}
	ref := backends.Ref{Proxy: "crawl-1", UID: testUID}
	_, err1 := b.Get(t.Context(), ref)
	_, err2 := b.List(t.Context())
	_, err3 := b.Offer(t.Context())
	_, err4 := b.Ensure(t.Context(), backends.Request{Ref: ref, Desired: backends.Running, Access: backends.Access{Username: "u", Password: "p"}}, nil)
	for i, err := range []error{err1, err2, err3, err4, b.Delete(t.Context(), ref)} {
		if err == nil || backends.Class(err) != backends.ErrTransient {
			t.Errorf("call %d: got %v, want Transient", i, err)
		}
	}
	if c := b.Check(t.Context()); len(c) == 0 || c[0].Code != backends.CheckUnreachable {
		t.Errorf("check: got %+v", c)
	}
}

func TestWhatWaitedForAnotherJobInVainSaysSo(t *testing.T) {
	err := classify("write mark", golibvirt.Error{Code: uint32(golibvirt.ErrOperationTimeout), Message: "cannot acquire state change lock"})
	if backends.Class(err) != backends.ErrTransient || !strings.Contains(err.Error(), "something else is being done with the guest") {
		t.Errorf("got %v", err)
	}
}

func TestAMarkerNoticesEachFieldThatCannotChange(t *testing.T) {
	r := resolved{Request: backends.Request{Ref: backends.Ref{Proxy: "p", UID: testUID}, Image: "i", MachineType: "m", DiskGiB: 5, UserData: []byte("u"),
		Access: backends.Access{Username: "u", Password: "hunter2", AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}}
	m := newMarker(backends.Owner{Installation: "i", HostID: "h"}, r, 3128, testBlueprint().mark.CreatedAt)
	if got := m.changed(r); got != "" {
		t.Errorf("nothing changed, got %q", got)
	}
	for want, change := range map[string]func(*resolved){
		"auth":      func(r *resolved) { r.Access.Password = "hunter3" },
		"allowFrom": func(r *resolved) { r.Access.AllowFrom = nil },
		"egress":    func(r *resolved) { r.Access.Private = true },
		"image":     func(r *resolved) { r.Image = "j" },
		"diskGiB":   func(r *resolved) { r.DiskGiB = 4 },
		"":          func(r *resolved) { r.DiskGiB, r.MachineType = 6, "n" }, // these can change in place
		"cloudInit": func(r *resolved) { r.UserData = nil },
		"port":      func(r *resolved) { r.Port = 3129 },
	} {
		now := r
		change(&now)
		if got := m.changed(now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	text := m.text()
	if strings.Contains(string(text), "hunter") {
		t.Error("a password stands in the marker")
	}
	if got, err := parseMarker(text, "m"); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("read back: %+v, %v", got, err)
	}
	if _, err := parseMarker(text[:len(text)/2], "m"); err == nil {
		t.Error("a marker that was cut off was read")
	}
}

func TestMarksAreKeptOnlyWhileSomebodyWatches(t *testing.T) {
	k := newMarks()
	id := golibvirt.UUID{1}
	k.put(id, knownMark{marked: true})
	if _, ok := k.get(id); ok {
		t.Error("kept though nobody would hear of a change")
	}
	k.watch(1)
	k.put(id, knownMark{marked: true})
	if _, ok := k.get(id); !ok {
		t.Error("not kept while watched")
	}
	k.forget(id)
	if _, ok := k.get(id); ok {
		t.Error("kept though forgotten")
	}
	k.put(id, knownMark{marked: true})
	k.watch(-1)
	if _, ok := k.get(id); ok {
		t.Error("kept after the watcher left")
	}
}
