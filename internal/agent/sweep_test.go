package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

func TestWhatASweepReports(t *testing.T) {
	owner := backends.Owner{Installation: "i", HostID: "h"}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	mark := func(uid string, age time.Duration) backends.Mark {
		return backends.Mark{Installation: "i", HostID: "h", Proxy: "p-" + uid, UID: uid, CreatedAt: start.Add(-age)}
	}
	foreign := mark("f", time.Hour)
	foreign.HostID = "another"
	undated := mark("d", 0)
	undated.CreatedAt = time.Time{}
	instance := func(m backends.Mark) backends.Listing {
		return backends.Listing{Instances: []backends.Instance{{Mark: m}}}
	}
	leftover := func(m backends.Mark) backends.Listing {
		return backends.Listing{Leftovers: []backends.Leftover{{Mark: m, Kind: "volume", Name: "v"}}}
	}
	broken := backends.Listing{Unread: []backends.Unread{{What: "pool", Err: errors.New("x")}}}
	const step = 5 * time.Minute // between listings; the grace is 10 minutes
	said := func(uid, kind string) []bus.Unclaimed {
		return []bus.Unclaimed{{Proxy: "p-" + uid, UID: uid, Kind: kind}}
	}
	for name, c := range map[string]struct {
		recorded []string
		listings []backends.Listing
		want     []bus.Unclaimed // after the last
	}{
		"an instance that nobody assigned, at once":   {nil, []backends.Listing{instance(mark("a", 0))}, said("a", "instance")},
		"no instance that is recorded":                {[]string{"a"}, []backends.Listing{instance(mark("a", 0))}, nil},
		"no instance of another host":                 {nil, []backends.Listing{instance(foreign)}, nil},
		"an instance that is gone is not reported":    {nil, []backends.Listing{instance(mark("a", 0)), {}}, nil},
		"an instance that could not be read still is": {nil, []backends.Listing{instance(mark("a", 0)), broken}, said("a", "instance")},
		"no leftover seen once":                       {nil, []backends.Listing{leftover(mark("a", time.Hour))}, nil},
		"an old leftover seen twice":                  {nil, []backends.Listing{leftover(mark("a", time.Hour)), leftover(mark("a", time.Hour))}, said("a", "volume")},
		"no young leftover seen twice":                {nil, []backends.Listing{leftover(mark("a", 0)), leftover(mark("a", 0))}, nil},
		"a leftover that has become old":              {nil, []backends.Listing{leftover(mark("a", 0)), leftover(mark("a", 0)), leftover(mark("a", 0))}, said("a", "volume")},
		"no leftover without a date seen twice":       {nil, []backends.Listing{leftover(undated), leftover(undated)}, nil},
		"a leftover without a date seen for long":     {nil, []backends.Listing{leftover(undated), leftover(undated), leftover(undated)}, said("d", "volume")},
		"no leftover that came back":                  {nil, []backends.Listing{leftover(mark("a", time.Hour)), {}, leftover(mark("a", time.Hour))}, nil},
		"a leftover across an unreadable listing":     {nil, []backends.Listing{leftover(mark("a", time.Hour)), broken, leftover(mark("a", time.Hour))}, said("a", "volume")},
		"no leftover of what is recorded":             {[]string{"a"}, []backends.Listing{leftover(mark("a", time.Hour)), leftover(mark("a", time.Hour))}, nil},
		"no leftover of another host":                 {nil, []backends.Listing{leftover(foreign), leftover(foreign)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := map[string]entry{}
			for _, uid := range c.recorded {
				recorded[uid] = entry{}
			}
			s := &sweeper{owner: owner, grace: 10 * time.Minute}
			var got []bus.Unclaimed
			for n, l := range c.listings {
				got = s.look(l, recorded, start.Add(time.Duration(n)*step))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAListingMakesADriverLookWhereItDiffers(t *testing.T) {
	running := backends.Instance{Status: backends.StatusRunning}
	for name, c := range map[string]struct {
		known           observed
		listed          backends.Instance
		found, complete bool
		want            bool
	}{
		"nothing new":                     {observed{Exists: true, Status: backends.StatusRunning}, running, true, true, false},
		"another status":                  {observed{Exists: true, Status: backends.StatusStopped}, running, true, true, true},
		"there after all":                 {observed{}, running, true, true, true},
		"missing":                         {observed{Exists: true, Status: backends.StatusRunning}, backends.Instance{}, false, true, true},
		"missing in an incomplete answer": {observed{Exists: true, Status: backends.StatusRunning}, backends.Instance{}, false, false, false},
		"missing and not expected":        {observed{}, backends.Instance{}, false, true, false},
		"gone by tombstone":               {observed{Gone: true}, running, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &driver{observed: c.known, wake: make(chan struct{}, 1)}
			d.listed(c.listed, c.found, c.complete)
			if got := d.observed.Stale; got != c.want {
				t.Errorf("looks again: %v, want %v", got, c.want)
			}
		})
	}
}
