//go:build real

package libvirt

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

func TestADaemonThatIsDownMakesNothingGone(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	h.ensure(t, req)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := h.Watch(ctx)
	up := h.Down(t)
	_, err := h.Get(t.Context(), req.Ref)
	wantClass(t, err, backends.ErrTransient)
	_, err = h.List(t.Context())
	wantClass(t, err, backends.ErrTransient)
	wantClass(t, h.Delete(t.Context(), req.Ref), backends.ErrTransient)
	if c := h.Check(t.Context()); c[0].Code != backends.CheckUnreachable {
		t.Errorf("check: %+v", c)
	}
	if libvirttest.GuestPID(t, backends.InstanceName(req.UID)) == 0 {
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
				up = h.Down(t)
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

func TestAnInactivePoolOrNetworkIsTheHostsFault(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	h.ensure(t, req)
	h.Virsh(t, "pool-destroy", "default")
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
	h.Virsh(t, "pool-undefine", "default")
	wantCheck(t, h, "pool/default", backends.CheckPoolNotFound)
	_, err = h.Ensure(t.Context(), request(newRef()), nil)
	wantClass(t, err, backends.ErrPermanent) // another host may have it
	wantClass(t, h.Delete(t.Context(), req.Ref), backends.ErrHostFault)
	h.Virsh(t, "pool-define-as", "default", "dir", "--target", h.PoolDir())
	h.Virsh(t, "pool-start", "default")
	wantCheck(t, h, "pool/default", backends.CheckOK)

	h.Virsh(t, "net-destroy", "default")
	_, err = h.Ensure(t.Context(), request(newRef()), nil)
	wantClass(t, err, backends.ErrHostFault)
	wantCheck(t, h, "network/default", backends.CheckNetworkNotActive)
	h.ensure(t, req) // it runs: nothing needs the network to be up
	h.Virsh(t, "net-start", "default")
	h.delete(t, req.Ref)
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
	h.Virsh(t, "destroy", n)
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
		text, err := os.ReadFile(h.Dir + "/libvirtd.log")
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
