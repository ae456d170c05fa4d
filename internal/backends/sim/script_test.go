package sim

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"proxyfleet/internal/backends"
)

var ref = backends.Ref{Proxy: "crawl-1", UID: "01jd3v6q4m8e2x5y7z9abcdefg"}

func request(script string) backends.Request {
	return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, UserData: []byte("#cloud-config\n#sim " + script + "\nruncmd: []\n"),
		Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
}

func open(t *testing.T, cfg Config) *Backend {
	t.Helper()
	b, err := New(cfg, Options{Owner: backends.Owner{Installation: "i", HostID: "h"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func ensure(t *testing.T, b *Backend, script string) (backends.Instance, error) {
	t.Helper()
	return b.Ensure(t.Context(), request(script), func(backends.Progress) {})
}

func mustEnsure(t *testing.T, b *Backend, script string) backends.Instance {
	t.Helper()
	i, err := ensure(t, b, script)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func wantClass(t *testing.T, what string, err, want error) {
	t.Helper()
	if got := backends.Class(err); got != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func TestErrorsComeAsOftenAsTheScriptSays(t *testing.T) {
	b := open(t, Config{})
	script := "ensure-error=NoCapacity get-error=Transient delete-error=HostFault times=2"
	for range 2 {
		_, err := ensure(t, b, script)
		wantClass(t, "ensure", err, backends.ErrNoCapacity)
	}
	mustEnsure(t, b, script)
	for range 2 {
		if l, err := b.List(t.Context()); err != nil || len(l.Unread) != 1 || len(l.Instances) != 0 {
			t.Errorf("list: got %+v (%v), want one unread", l, err)
		}
		_, err := b.Get(t.Context(), ref)
		wantClass(t, "get", err, backends.ErrTransient)
		wantClass(t, "delete", b.Delete(t.Context(), ref), backends.ErrHostFault)
	}
	_, err := b.Get(t.Context(), ref)
	wantClass(t, "get", err, nil)
	wantClass(t, "delete", b.Delete(t.Context(), ref), nil)
}

func TestWithoutACountErrorsNeverEnd(t *testing.T) {
	b := open(t, Config{})
	for range 5 {
		_, err := ensure(t, b, "ensure-error=Permanent")
		wantClass(t, "ensure", err, backends.ErrPermanent)
	}
}

func TestASlowEnsureReportsItsStepsAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		var steps []int
		_, err := b.Ensure(ctx, request("slow=10s steps=5"), func(p backends.Progress) { steps = append(steps, p.Percent) })
		if !backends.Ended(err) || time.Since(began) != 3*time.Second || fmt.Sprint(steps) != "[20 40]" {
			t.Errorf("got %v after %v with %v, want the end of its context after 3s and two steps", err, time.Since(began), steps)
		}
		began = time.Now()
		mustEnsure(t, b, "slow=10s steps=5")
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("took %v, want 10s", took)
		}
	})
}

func TestACrashIsToldOfAndMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		events := b.Watch(ctx)
		<-events
		mustEnsure(t, b, "crash-after=5s")
		began := time.Now()
		if e := <-events; e.UID != ref.UID || e.Reason != "Crashed" || time.Since(began) != 5*time.Second {
			t.Errorf("got %+v after %v, want a crash after 5s", e, time.Since(began))
		}
		if i, err := b.Get(t.Context(), ref); err != nil || i.Status != backends.StatusCrashed || len(i.Addresses) != 0 {
			t.Errorf("got %+v (%v), want Crashed", i, err)
		}
		if i := mustEnsure(t, b, "crash-after=5s"); i.Status != backends.StatusRunning {
			t.Errorf("got %s, want Running", i.Status)
		}
		cancel()
		for range events {
		}
	})
}

func TestWhatVanishesLeavesItsDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		mustEnsure(t, b, "vanish-after=5s")
		time.Sleep(5 * time.Second)
		_, err := b.Get(t.Context(), ref)
		wantClass(t, "get", err, backends.ErrNotFound)
		if l, err := b.List(t.Context()); err != nil || len(l.Instances) != 0 || len(l.Leftovers) != 1 || l.Leftovers[0].Kind != "disk" {
			t.Errorf("list: got %+v (%v), want the disk as left over", l, err)
		}
		mustEnsure(t, b, "vanish-after=5s")
		wantClass(t, "delete", b.Delete(t.Context(), ref), nil)
	})
}

func TestAnAddressMayComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		if i := mustEnsure(t, b, "no-address=5s"); len(i.Addresses) != 0 || i.Status != backends.StatusRunning {
			t.Errorf("at once: got %+v, want Running without an address", i)
		}
		time.Sleep(5 * time.Second)
		if i, err := b.Get(t.Context(), ref); err != nil || len(i.Addresses) != 1 || !netip.MustParsePrefix(DefaultNetwork).Contains(i.Addresses[0]) {
			t.Errorf("later: got %+v (%v), want an address of %s", i, err, DefaultNetwork)
		}
	})
}

func TestADeleteMayBeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, Config{})
		mustEnsure(t, b, "slow-delete=5s")
		began := time.Now()
		if wantClass(t, "delete", b.Delete(t.Context(), ref), nil); time.Since(began) != 5*time.Second {
			t.Errorf("took %v, want 5s", time.Since(began))
		}
	})
}

func TestScriptsThatCannotBeReadArePermanent(t *testing.T) {
	for _, script := range []string{"nonsense", "slow=fast", "steps=0", "steps=10001", "times=x", "ensure-error=Nonsense"} {
		_, err := ensure(t, open(t, Config{}), script)
		wantClass(t, script, err, backends.ErrPermanent)
	}
}

func TestSlotsRunOut(t *testing.T) {
	b := open(t, Config{Slots: 1})
	mustEnsure(t, b, "steps=1")
	req := request("steps=1")
	req.UID = "01jd3v6q4m8e2x5y7z9abcdefh"
	_, err := b.Ensure(t.Context(), req, func(backends.Progress) {})
	wantClass(t, "a second one", err, backends.ErrNoCapacity)
	if o, err := b.Offer(t.Context()); err != nil || o.Capacity.Slots != 1 {
		t.Errorf("offer: got %+v (%v), want one slot", o, err)
	}
}

func TestNetworksThatCannotWorkAreRefused(t *testing.T) {
	for _, network := range []string{"x", "10.0.0.1/8", "2001:db8::/32"} {
		if _, err := New(Config{Network: network}, Options{}); err == nil {
			t.Errorf("%s: got no error", network)
		}
	}
}

func FuzzScript(f *testing.F) {
	f.Add("#sim slow=2s steps=5\n#sim ensure-error=NoCapacity")
	f.Add("#cloud-config\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseScript([]byte(text))
		if err == nil && s.EnsureError != "" && backends.ClassNamed(s.EnsureError) == nil {
			t.Errorf("%q gave the class %q", text, s.EnsureError)
		}
	})
}

func BenchmarkEnsure(b *testing.B) {
	backend, err := New(Config{}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	req := request("steps=1")
	for i := range b.N {
		req.UID = fmt.Sprintf("0%025d", i)
		if _, err := backend.Ensure(b.Context(), req, func(backends.Progress) {}); err != nil {
			b.Fatal(err)
		}
	}
}
