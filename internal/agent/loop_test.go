package agent

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/sim"
	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

var update = flag.Bool("update", false, "write the transcripts anew")

const (
	testInstallation = "01jinstallation00000000000"
	testHostID       = "01jhost0000000000000000000"
	testUID          = "01k0000000000000000000000a"
)

// stage is a loop over the simulated backend in a bubble of its own time. What it says
// becomes a transcript.
type stage struct {
	*loop
	t       *testing.T
	world   *sim.World
	backend *scripted
	stop    context.CancelFunc
	start   time.Time
	seq     uint64
	said    *transcript
	answer  atomic.Pointer[error] // of the proxy to a probe; nil: it answers
}

type transcript struct {
	mu    sync.Mutex
	start time.Time
	buf   bytes.Buffer
	away  bool // the server does not answer
}

func (s *transcript) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.buf, "%8s  %s\n", time.Since(s.start).Round(time.Millisecond), fmt.Sprintf(format, args...))
}

func (s *transcript) PutState(st bus.State, _ nats.Header) {
	line := fmt.Sprintf("state %s, generation %d", st.Phase, st.Generation)
	if st.Step != "" {
		line += fmt.Sprintf(", %s", st.Step)
	}
	if st.Percent > 0 {
		line += fmt.Sprintf(" %d%%", st.Percent)
	}
	if len(st.Addresses) > 0 {
		line += fmt.Sprintf(", %d address", len(st.Addresses))
	}
	for _, c := range st.Conditions {
		line += fmt.Sprintf(", %s=%s %s", c.Type, c.Status, c.Reason)
	}
	if st.Error != nil {
		line += ", error " + st.Error.Code
	}
	s.note("%s", line)
}

func (s *transcript) PutHost(bus.Host) {}

func (s *transcript) FlushState(ctx context.Context, _, _ string) error {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// scripted notes the calls that change, and can be made to fail its reads.
type scripted struct {
	backends.Backend
	said *transcript
	mu   sync.Mutex
	read error
	lost bool // running instances show no address
	fail bool // their addresses cannot be read
	left bool // running instances are paused, and are left so for a person
}

func (b *scripted) Ensure(ctx context.Context, r backends.Request, report func(backends.Progress)) (backends.Instance, error) {
	b.said.note("  ensure generation %d %s", r.Generation, r.Desired)
	b.mu.Lock()
	left := b.left
	b.mu.Unlock()
	if left {
		return backends.Instance{}, backends.Errorf(backends.ErrConflict, "start", "it is left to you")
	}
	return b.Backend.Ensure(ctx, r, report)
}

func (b *scripted) Delete(ctx context.Context, r backends.Ref) error {
	b.said.note("  delete")
	return b.Backend.Delete(ctx, r)
}

func (b *scripted) Get(ctx context.Context, r backends.Ref) (backends.Instance, error) {
	b.mu.Lock()
	err, lost, fail, left := b.read, b.lost, b.fail, b.left
	b.mu.Unlock()
	if err != nil {
		return backends.Instance{}, err
	}
	i, err := b.Backend.Get(ctx, r)
	if lost || fail {
		i.Addresses, i.AddressUnread = nil, fail
	}
	if left {
		i.Status, i.Reason = backends.StatusPaused, "PausedByUser"
	}
	return i, err
}

func (b *scripted) failReads(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = err
}

func newStage(t *testing.T, change func(*Config)) *stage {
	cfg := Config{}
	cfg.setDefaults()
	cfg.Probe.Disabled = true
	if change != nil {
		change(&cfg)
	}
	dir := t.TempDir()
	rec, _, err := openRecord(dir, testHostID)
	if err != nil {
		t.Fatal(err)
	}
	said := &transcript{start: time.Now()}
	s := &stage{t: t, world: sim.NewWorld(), said: said, start: said.start}
	s.loop = newLoop(cfg, rec, &reporter{link: said, hostID: testHostID, session: 1}, bustest.Log(t))
	s.policy.Spread = func() float64 { return 0.5 }
	s.probe = func(context.Context, observed) error {
		if err := s.answer.Load(); err != nil {
			return *err
		}
		return nil
	}
	b, err := sim.New(sim.Config{}, sim.Options{World: s.world, Owner: backends.Owner{Installation: testInstallation, HostID: testHostID}})
	if err != nil {
		t.Fatal(err)
	}
	s.backend = &scripted{Backend: b, said: said}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = func() {
		cancel()
		s.wait()
		_ = b.Close()
		_ = rec.close()
	}
	s.loop.start(ctx, s.backend)
	go func() {
		for e := range b.Watch(ctx) {
			if e.UID != "" {
				s.woken(e.UID)
			}
		}
	}()
	return s
}

func (s *stage) want(desired bus.Desired, generation uint64, script string) {
	s.seq++
	a := bus.Assignment{Installation: testInstallation, HostID: testHostID, Proxy: "p", UID: testUID, Generation: generation, Desired: desired}
	if desired != bus.DesiredAbsent {
		a.Spec = &bus.Spec{AllowFrom: []string{"10.0.0.0/8"}, CloudInit: script}
	}
	e := entry{a, s.seq}
	if err := s.record.put([]entry{e}, s.seq); err != nil {
		s.t.Fatal(err)
	}
	s.said.note("want %s, generation %d %s", desired, generation, script)
	s.loop.assign(e, nil, false)
}

// restored hands the loop what an earlier session recorded of a proxy in phase p.
func (s *stage) restored(p bus.Phase) {
	s.seq++
	e := entry{bus.Assignment{Installation: testInstallation, HostID: testHostID, Proxy: "p", UID: testUID, Generation: 1,
		Desired: bus.DesiredRunning, Spec: &bus.Spec{AllowFrom: []string{"10.0.0.0/8"}}}, s.seq}
	err := s.record.put([]entry{e}, s.seq)
	if err == nil {
		err = s.record.saw(seen{UID: testUID, Generation: 1, Phase: p, Addresses: []bus.Address{{Address: "198.18.0.1", Family: "ipv4", Port: 1}}})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.said.note("restored, %s", p)
	s.loop.assign(e, nil, true)
}

func (s *stage) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *stage) happen(what string, do func() error) {
	s.said.note("%s", what)
	if err := do(); err != nil {
		s.t.Fatal(err)
	}
}

// Each transcript under testdata/loop is what a person would see over time.
func TestTranscripts(t *testing.T) {
	hostFault := backends.Errorf(backends.ErrHostFault, "connect", "the socket may not be opened")
	for name, play := range map[string]func(*stage){
		"a proxy that costs nothing needs one state": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "")
			s.after(time.Hour)
		},
		"a slow create shows its steps": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim slow=1900ms steps=4")
			s.after(time.Hour)
		},
		"an address that takes a while is awaited": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim no-address=20s")
			s.after(time.Hour)
		},
		"transient errors back off and go on": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim ensure-error=Transient times=5")
			s.after(time.Hour)
		},
		"a permanent error is shown and asked again rarely": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim ensure-error=Permanent")
			s.after(10 * time.Minute)
		},
		"a new generation ends the waiting for a retry": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim ensure-error=Permanent")
			s.after(time.Second)
			s.want(bus.DesiredRunning, 2, "")
			s.after(time.Hour)
		},
		"a crash loop is mended at once and then slower": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim crash-after=1s")
			s.after(5 * time.Minute)
		},
		"a rare crash is always mended at once": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim crash-after=30m")
			s.after(2 * time.Hour)
		},
		"a tombstone ends a slow create": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim slow=1h")
			s.after(10 * time.Second)
			s.want(bus.DesiredAbsent, 2, "")
			s.after(time.Hour)
		},
		"deleting is tried for ever": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim delete-error=Transient times=12")
			s.after(time.Minute)
			s.want(bus.DesiredAbsent, 2, "")
			s.after(24 * time.Hour)
		},
		"gone is said until the server has it": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "")
			s.after(time.Minute)
			s.happen("server away", func() error { s.said.mu.Lock(); s.said.away = true; s.said.mu.Unlock(); return nil })
			s.want(bus.DesiredAbsent, 2, "")
			s.after(10 * time.Minute)
			s.said.note("recorded: %v", len(s.record.entries))
			s.happen("server back", func() error { s.said.mu.Lock(); s.said.away = false; s.said.mu.Unlock(); return nil })
			s.after(10 * time.Minute)
			s.said.note("recorded: %v", len(s.record.entries))
		},
		"a newer decision takes a tombstone back": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "#sim slow-delete=1m")
			s.after(time.Minute)
			s.want(bus.DesiredAbsent, 2, "")
			s.after(30 * time.Second)
			s.want(bus.DesiredRunning, 3, "#sim slow-delete=1m")
			s.after(time.Hour)
		},
		"stopped and started again": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "")
			s.after(time.Minute)
			s.want(bus.DesiredStopped, 2, "")
			s.after(time.Minute)
			s.want(bus.DesiredRunning, 3, "")
			s.after(time.Hour)
		},
		"a host fault changes no phase": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "")
			s.after(time.Minute)
			s.happen("reads fail", func() error { s.backend.failReads(hostFault); s.woken(testUID); return nil })
			s.after(time.Minute)
			s.happen("reads work", func() error { s.backend.failReads(nil); return nil })
			s.after(time.Hour)
		},
		"what is left to a person is well once they mended it": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "")
			s.after(time.Minute)
			for _, left := range []bool{true, false} {
				s.happen(map[bool]string{true: "paused by somebody", false: "resumed by somebody"}[left], func() error {
					s.backend.mu.Lock()
					s.backend.left = left
					s.backend.mu.Unlock()
					s.woken(testUID)
					return nil
				})
				s.after(2 * time.Minute)
			}
			s.after(time.Hour)
		},
		"an address that its sources lose is kept for a while": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "")
			s.after(time.Minute)
			s.happen("address lost", func() error {
				s.backend.mu.Lock()
				s.backend.lost = true
				s.backend.mu.Unlock()
				s.woken(testUID)
				return nil
			})
			s.after(5 * time.Minute)
			s.happen("address back", func() error { s.backend.mu.Lock(); s.backend.lost = false; s.backend.mu.Unlock(); return nil })
			s.after(time.Hour)
		},
		"an address that cannot be read stays": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "")
			s.after(time.Minute)
			s.happen("addresses unreadable", func() error {
				s.backend.mu.Lock()
				s.backend.fail = true
				s.backend.mu.Unlock()
				s.woken(testUID)
				return nil
			})
			s.after(time.Hour)
		},
		"a restarted agent that cannot read says what was known": func(s *stage) {
			s.backend.failReads(hostFault)
			s.restored(bus.PhaseRunning)
			s.after(time.Minute)
			s.happen("reads work", func() error { s.backend.failReads(nil); return nil })
			s.after(time.Hour)
		},
		"a restarted agent whose instance is gone makes it again": func(s *stage) {
			s.restored(bus.PhaseRunning)
			s.after(time.Hour)
		},
		"a foreign thing under our name is a conflict": func(s *stage) {
			s.happen("planted", func() error { return s.world.Plant(testUID, backends.Mark{}) })
			s.want(bus.DesiredRunning, 1, "")
			s.after(5 * time.Minute)
			s.happen("removed", func() error { return s.world.Vanish(testUID) })
			s.after(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) { play1(t, name, nil, play) })
	}
}

func TestTranscriptsOfProbes(t *testing.T) {
	silent := errors.New("no answer")
	probing := func(c *Config) { c.Probe.Disabled = false }
	for name, play := range map[string]func(*stage){
		"running waits for an answer": func(s *stage) {
			s.answer.Store(&silent)
			s.want(bus.DesiredRunning, 1, "")
			s.after(10 * time.Second)
			s.happen("answers", func() error { s.answer.Store(nil); return nil })
			s.after(time.Hour)
		},
		"three failures in a row degrade and one answer heals": func(s *stage) {
			s.want(bus.DesiredRunning, 1, "")
			s.after(time.Minute)
			s.happen("silent", func() error { s.answer.Store(&silent); return nil })
			s.after(5 * time.Minute)
			s.happen("answers", func() error { s.answer.Store(nil); return nil })
			s.after(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) { play1(t, name, probing, play) })
	}
}

// play1 plays one scenario and compares its transcript with the one that is kept.
func play1(t *testing.T, name string, change func(*Config), play func(*stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, change)
		play(s)
		s.stop()
		s.said.mu.Lock()
		got := s.said.buf.String()
		s.said.mu.Unlock()
		path := filepath.Join("testdata", "loop", strings.ReplaceAll(name, " ", "-")+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("transcript differs (-want +got):\n%s", diff)
		}
	})
}
