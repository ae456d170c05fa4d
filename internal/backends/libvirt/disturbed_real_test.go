//go:build real

package libvirt

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/backends"
)

// These tests do to a host what people and power cuts do. Each says what must come of it.

func newRef() backends.Ref {
	return backends.Ref{Proxy: "crawl-1", UID: strings.ToLower(ulid.Make().String())}
}

// host is a daemon with a backend on it.
type host struct {
	daemon
	*Backend
}

func startHost(t testing.TB) host {
	t.Helper()
	d := startDaemon(t)
	b, err := openAt(d, backends.Owner{Installation: "01installation", HostID: "01host"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return host{d, b}
}

func (h host) ensure(t testing.TB, req backends.Request) backends.Instance {
	t.Helper()
	i, err := h.Ensure(t.Context(), req, nil)
	if err != nil {
		t.Fatalf("ensure: %v", err)
	}
	return i
}

func (h host) delete(t testing.TB, ref backends.Ref) {
	t.Helper()
	if err := h.Delete(t.Context(), ref); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if left := h.traces(t, ref); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func (h host) get(t testing.TB, ref backends.Ref) backends.Instance {
	t.Helper()
	i, err := h.Get(t.Context(), ref)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return i
}

func wantClass(t testing.TB, err, class error) {
	t.Helper()
	if backends.Class(err) != class {
		t.Errorf("got %v, want %v", err, class)
	}
}

func TestADaemonThatIsDownMakesNothingGone(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	h.ensure(t, req)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := h.Watch(ctx)
	up := h.down(t)
	_, err := h.Get(t.Context(), req.Ref)
	wantClass(t, err, backends.ErrTransient)
	_, err = h.List(t.Context())
	wantClass(t, err, backends.ErrTransient)
	wantClass(t, h.Delete(t.Context(), req.Ref), backends.ErrTransient)
	if c := h.Check(t.Context()); c[0].Code != backends.CheckUnreachable {
		t.Errorf("check: %+v", c)
	}
	if pid(t, "guest="+backends.InstanceName(req.UID)) == 0 {
		t.Error("the guest ended with the daemon")
	}
	for drained := false; !drained; {
		select {
		case <-events:
		case <-time.After(100 * time.Millisecond):
			drained = true
		}
	}
	up()
	select {
	case e := <-events:
		if e.UID != "" {
			t.Errorf("first event after the reconnect: %+v, want one without a uid", e)
		}
	case <-time.After(20 * time.Second):
		t.Error("no event after the reconnect")
	}
	if i := h.get(t, req.Ref); i.Status != backends.StatusRunning {
		t.Errorf("after the restart: %+v", i)
	}
	h.ensure(t, req)
	h.delete(t, req.Ref)
}

func TestADaemonThatIsKilledInTheMiddleOfACreateIsFinishedLater(t *testing.T) {
	h := startHost(t)
	for _, step := range []string{"domain.define", "domain.start", "done"} {
		req := request(newRef())
		var up func()
		ctx := backends.WithSteps(t.Context(), func(label string) error {
			if label == step && up == nil {
				up = h.down(t)
			}
			return nil
		})
		if _, err := h.Ensure(ctx, req, nil); step != "done" {
			wantClass(t, err, backends.ErrTransient)
		}
		up()
		if i := h.ensure(t, req); i.Status != backends.StatusRunning {
			t.Errorf("after %s: %+v", step, i)
		}
		h.delete(t, req.Ref)
	}
}

func TestAUEFIGuestHasVariablesOfItsOwnAndTheyGoWithIt(t *testing.T) {
	h := startHost(t)
	a, b := request(newRef()), request(newRef())
	a.Image, b.Image = "uefi", "uefi"
	h.ensure(t, a)
	h.ensure(t, b)
	for _, req := range []backends.Request{a, b} {
		if p := h.place().nvram(backends.InstanceName(req.UID)); !exists(p) {
			t.Errorf("%s is not there", p)
		}
		xml := h.virsh(t, "dumpxml", backends.InstanceName(req.UID))
		if !strings.Contains(xml, "OVMF_CODE") || strings.Contains(xml, "secure='yes'") {
			t.Errorf("want UEFI without Secure Boot:\n%s", xml)
		}
	}
	h.delete(t, a.Ref)
	if !exists(h.place().nvram(backends.InstanceName(b.UID))) {
		t.Error("the other's variables went along")
	}
	h.delete(t, b.Ref)
}

func TestADiskThatIsGoneIsTold_AndMadeAgain(t *testing.T) {
	h := startHost(t)
	for name, running := range map[string]bool{"while it runs": true, "while it is off": false} {
		t.Run(name, func(t *testing.T) {
			req := request(newRef())
			n := backends.InstanceName(req.UID)
			h.ensure(t, req)
			if !running {
				h.virsh(t, "destroy", n)
			}
			must(t, os.Remove(h.place().disk(n)))
			if i := h.get(t, req.Ref); i.Status != backends.StatusBroken || i.Reason != "DiskMissing" {
				t.Errorf("got %+v, want Broken", i)
			}
			if i := h.ensure(t, req); i.Status != backends.StatusRunning || !exists(h.place().disk(n)) {
				t.Errorf("mended: %+v", i)
			}
			h.delete(t, req.Ref)
		})
	}
}

func TestADiskThatDoesNotFitIsMadeAnew(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	for name, spoil := range map[string]func(disk string){
		"cut off":      func(disk string) { must(t, os.Truncate(disk, 100)) },
		"another size": func(disk string) { h.qemuImg(t, "resize", "-q", disk, "2G") },
		"no overlay":   func(disk string) { h.qemuImg(t, "create", "-q", "-f", "qcow2", disk, "1G") },
		"another base": func(disk string) {
			h.qemuImg(t, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", h.image(), disk, "1G")
		},
		"not its format": func(disk string) { h.qemuImg(t, "create", "-q", "-f", "raw", disk, "1G") },
	} {
		h.ensure(t, req)
		h.virsh(t, "destroy", n)
		spoil(h.place().disk(n))
		h.ensure(t, req)
		base, err := openBase(t, h, req)
		if err != nil || !overlayFits(t.Context(), h.place().disk(n), base, 1<<30) {
			// It is locked while its guest runs; Inspect shares.
			t.Errorf("%s: the disk was not made anew (%v)", name, err)
		}
	}
	h.delete(t, req.Ref)
}

func TestAGuestThatWasPausedIsTold_AndResumed(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	h.virsh(t, "suspend", n)
	if i := h.get(t, req.Ref); i.Status != backends.StatusPaused || i.Reason != "PausedByUser" {
		t.Errorf("got %+v, want Paused", i)
	}
	if i := h.ensure(t, req); i.Status != backends.StatusRunning {
		t.Errorf("resumed: %+v", i)
	}
	h.virsh(t, "suspend", n)
	req.Desired = backends.Stopped
	if i := h.ensure(t, req); i.Status != backends.StatusStopped {
		t.Errorf("stopped out of a pause: %+v", i)
	}
	h.delete(t, req.Ref)
}

func TestASavedGuestStartsFreshAndItsImageIsGone(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	h.virsh(t, "managedsave", n)
	if i := h.get(t, req.Ref); i.Status != backends.StatusStopped || i.Reason != "Saved" {
		t.Errorf("got %+v, want Stopped, Saved", i)
	}
	h.ensure(t, req)
	if info := h.virsh(t, "dominfo", n); !strings.Contains(info, "Managed save:   no") {
		t.Errorf("the saved image is still there:\n%s", info)
	}
	h.virsh(t, "managedsave", n)
	h.delete(t, req.Ref)
}

func TestAGuestWithSnapshotsIsDeletedWithThem(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	req.Desired = backends.Stopped
	h.ensure(t, req)
	h.virsh(t, "snapshot-create-as", backends.InstanceName(req.UID), "kept", "--diskspec", "vda,snapshot=internal", "--diskspec", "vdb,snapshot=no")
	h.delete(t, req.Ref)
}

func TestAGuestThatWasUndefinedWhileItRunsIsDefinedAgain(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	before := h.ensure(t, req)
	h.virsh(t, "undefine", n)
	if i := h.get(t, req.Ref); i.Status != backends.StatusRunning {
		t.Errorf("got %+v, want Running", i)
	}
	if i := h.ensure(t, req); i.ID != before.ID {
		t.Errorf("got %+v, want the same guest", i)
	}
	if info := h.virsh(t, "dominfo", n); !strings.Contains(info, "Persistent:     yes") || !strings.Contains(info, "Autostart:      disable") {
		t.Errorf("want it defined, and not started by libvirt itself:\n%s", info)
	}
	h.virsh(t, "undefine", n)
	h.delete(t, req.Ref)
}

func TestADomainThatWasRenamedIsNotMadeTwice(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	req.Desired = backends.Stopped
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	h.virsh(t, "domrename", n, "mine")
	_, err := h.Ensure(t.Context(), req, nil)
	wantClass(t, err, backends.ErrConflict)
	wantClass(t, h.Delete(t.Context(), req.Ref), backends.ErrConflict)
	h.virsh(t, "domrename", "mine", n)
	h.ensure(t, req)
	h.delete(t, req.Ref)
}

func TestAMarkerThatWasLostIsWrittenAgain(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	before := h.ensure(t, req)
	must(t, os.Remove(h.place().marker(n)))
	if i := h.ensure(t, req); i.Mark != before.Mark || i.ID != before.ID {
		t.Errorf("got %+v, want %+v", i, before)
	}
	if !exists(h.place().marker(n)) {
		t.Error("the marker is still missing")
	}
	must(t, os.Remove(h.place().marker(n)))
	h.delete(t, req.Ref)
}

func TestAnInactivePoolOrNetworkIsTheHostsFault(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	h.ensure(t, req)
	h.virsh(t, "pool-destroy", "default")
	_, err := h.Ensure(t.Context(), request(newRef()), nil)
	wantClass(t, err, backends.ErrHostFault)
	wantClass(t, h.Delete(t.Context(), req.Ref), backends.ErrHostFault)
	if i := h.get(t, req.Ref); i.Status != backends.StatusRunning {
		t.Errorf("the guest that runs: %+v", i)
	}
	l, err := h.List(t.Context())
	if err != nil || len(l.Instances) != 1 || len(l.Unread) != 1 {
		t.Errorf("listing: %+v, %v; want the instance, and the pool as unread", l, err)
	}
	wantCheck(t, h, "pool/default", backends.CheckPoolNotActive)
	h.virsh(t, "pool-undefine", "default")
	wantCheck(t, h, "pool/default", backends.CheckPoolNotFound)
	h.virsh(t, "pool-define-as", "default", "dir", "--target", h.poolDir())
	h.virsh(t, "pool-start", "default")
	wantCheck(t, h, "pool/default", backends.CheckOK)

	h.virsh(t, "net-destroy", "default")
	_, err = h.Ensure(t.Context(), request(newRef()), nil)
	wantClass(t, err, backends.ErrHostFault)
	wantCheck(t, h, "network/default", backends.CheckNetworkNotActive)
	h.ensure(t, req) // it runs: nothing needs the network to be up
	h.virsh(t, "net-start", "default")
	h.delete(t, req.Ref)
}

func wantCheck(t testing.TB, h host, target, code string) {
	t.Helper()
	for _, c := range h.Check(t.Context()) {
		if c.Target == target {
			if c.Code != code || code != backends.CheckOK && c.Message == "" {
				t.Errorf("%s: got %+v, want %s", target, c, code)
			}
			return
		}
	}
	t.Errorf("there is no check of %s", target)
}

func TestABaseStaysWhenItsGuestsGoAndIsNotFetchedAgain(t *testing.T) {
	h := startHost(t)
	first := request(newRef())
	h.ensure(t, first)
	h.delete(t, first.Ref)
	must(t, os.Remove(h.image())) // whoever fetched again would fail now
	second := request(newRef())
	h.ensure(t, second)
	h.delete(t, second.Ref)
}

func TestTheWatcherTellsWhoseGuestEndedAndKeepsMarksFresh(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := h.Watch(ctx)
	next := func(want string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e.UID == req.UID && e.Reason == want {
					return
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("no event %s", want)
			}
		}
	}
	for e := range events {
		if e.Reason == "Connected" {
			break
		}
	}
	if l, err := h.List(t.Context()); err != nil || len(l.Instances) != 1 || l.Instances[0].Generation != 1 {
		t.Fatalf("listing: %+v, %v", l, err)
	}
	h.virsh(t, "destroy", n)
	next("Stopped")
	req.Generation = 5
	h.ensure(t, req)
	next("Started")
	deadline := time.Now().Add(5 * time.Second)
	for {
		l, err := h.List(t.Context())
		must(t, err)
		if l.Instances[0].Generation == 5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the listing keeps an old mark: %+v", l)
		}
	}
	h.delete(t, req.Ref)
}

func TestAnOfferCountsTheSameWithAndWithoutGuests(t *testing.T) {
	h := startHost(t)
	before, err := h.Offer(t.Context())
	must(t, err)
	req := request(newRef())
	h.ensure(t, req)
	after, err := h.Offer(t.Context())
	must(t, err)
	if d := before.Capacity.DiskGiB - after.Capacity.DiskGiB; d < -1 || d > 1 {
		t.Errorf("the disk that a host has for proxies changed with a proxy: %+v, then %+v", before.Capacity, after.Capacity)
	}
	if !slices.Equal(before.Images, []string{"empty", "uefi"}) || before.DefaultImage != "empty" {
		t.Errorf("images: %+v", before)
	}
	h.delete(t, req.Ref)
}

func TestAnImageLargerThanItsDiskIsPermanentAndMakesNothing(t *testing.T) {
	h := startHost(t)
	h.qemuImg(t, "create", "-q", "-f", "qcow2", h.image(), "3G")
	req := request(newRef())
	_, err := h.Ensure(t.Context(), req, nil)
	wantClass(t, err, backends.ErrPermanent)
	if left := h.traces(t, req.Ref); len(left) > 0 {
		t.Errorf("made: %v", left)
	}
}

func TestAKeyOrURLThatIsNotOfferedIsPermanent(t *testing.T) {
	h := startHost(t)
	for what, change := range map[string]func(*backends.Request){
		"image": func(r *backends.Request) { r.Image = "none" },
		"url":   func(r *backends.Request) { r.Image = "https://example.org/i.qcow2" },
		"shape": func(r *backends.Request) { r.MachineType = "huge" },
	} {
		req := request(newRef())
		change(&req)
		if _, err := h.Ensure(t.Context(), req, nil); !errors.Is(err, backends.ErrPermanent) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestOrdinaryWorkLeavesNoErrorsInTheDaemonsLog(t *testing.T) {
	h := startHost(t)
	log := func() string {
		text, err := os.ReadFile(h.dir + "/libvirtd.log")
		must(t, err)
		return string(text)
	}
	before := log()
	req := request(newRef())
	h.ensure(t, req)
	h.get(t, req.Ref)
	_, err := h.List(t.Context())
	must(t, err)
	h.Check(t.Context())
	h.delete(t, req.Ref)
	for line := range strings.Lines(strings.TrimPrefix(log(), before)) {
		for _, ours := range []string{"End of file", "Guest agent", "no domain with matching"} {
			if strings.Contains(line, ours) {
				t.Error(line)
			}
		}
	}
}
