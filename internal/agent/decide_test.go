package agent

import (
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	soon, later, past := now.Add(time.Second), now.Add(time.Minute), now.Add(-time.Second)
	run := bus.Assignment{Generation: 2, Desired: bus.DesiredRunning}
	stop := bus.Assignment{Generation: 2, Desired: bus.DesiredStopped}
	absent := bus.Assignment{Generation: 3, Desired: bus.DesiredAbsent}
	up := observed{Exists: true, Status: backends.StatusRunning, Generation: 2, Addresses: []bus.Address{{}}, NextProbe: later}
	with := func(o observed, change func(*observed)) observed { change(&o); return o }
	for name, c := range map[string]struct {
		want  bus.Assignment
		seen  observed
		act   action
		until time.Time
	}{
		"new":                              {run, observed{}, actEnsure, time.Time{}},
		"restored":                         {run, observed{Stale: true}, actRead, time.Time{}},
		"restored and unreadable":          {run, observed{Stale: true, NextRead: soon}, actWait, soon},
		"well":                             {run, up, actWait, later},
		"an older generation":              {run, with(up, func(o *observed) { o.Generation = 1 }), actEnsure, time.Time{}},
		"a newer generation":               {run, with(up, func(o *observed) { o.Generation = 3 }), actWait, later},
		"failed a moment ago":              {run, observed{RetryAt: soon}, actWait, soon},
		"failed for long":                  {run, observed{RetryAt: past}, actEnsure, time.Time{}},
		"an event while a retry waits":     {run, observed{RetryAt: soon, Stale: true}, actRead, time.Time{}},
		"paused":                           {run, with(up, func(o *observed) { o.Status = backends.StatusPaused }), actEnsure, time.Time{}},
		"half-made":                        {run, with(up, func(o *observed) { o.Status = backends.StatusBroken }), actEnsure, time.Time{}},
		"starting":                         {run, with(up, func(o *observed) { o.Status = backends.StatusStarting; o.NextRead = soon }), actWait, soon},
		"no address":                       {run, with(up, func(o *observed) { o.Addresses = nil; o.NextRead = past }), actRead, time.Time{}},
		"its address lost":                 {run, with(up, func(o *observed) { o.LostAt = past; o.NextRead = soon }), actWait, soon},
		"a probe due":                      {run, with(up, func(o *observed) { o.NextProbe = now }), actProbe, time.Time{}},
		"a probe due while unreadable":     {run, with(up, func(o *observed) { o.Stale = true; o.NextRead = soon; o.NextProbe = now }), actProbe, time.Time{}},
		"a probe due while a change fails": {run, with(up, func(o *observed) { o.Generation = 1; o.RetryAt = soon; o.NextProbe = now }), actProbe, time.Time{}},
		"running, to be stopped":           {stop, up, actEnsure, time.Time{}},
		"stopped as wanted":                {stop, observed{Exists: true, Status: backends.StatusStopped, Generation: 2}, actWait, time.Time{}},
		"crashed is stopped enough":        {stop, observed{Exists: true, Status: backends.StatusCrashed, Generation: 2}, actWait, time.Time{}},
		"stopped and not made yet":         {stop, observed{}, actEnsure, time.Time{}},
		"a tombstone":                      {absent, up, actDelete, time.Time{}},
		"a tombstone of an unread uid":     {absent, observed{Stale: true, NextRead: later}, actDelete, time.Time{}},
		"a tombstone that failed":          {absent, observed{RetryAt: soon}, actWait, soon},
		"gone":                             {absent, observed{Gone: true}, actConfirm, time.Time{}},
		"gone and stored":                  {absent, observed{Gone: true, Stored: true}, actForget, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			act, until := decide(c.want, c.seen, policy{Probe: true}, now)
			if act != c.act || !until.Equal(c.until) {
				t.Errorf("got %s until %v, want %s until %v", act, until, c.act, c.until)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 7: 64 * time.Second, 8: 2 * time.Minute, 1000: 2 * time.Minute} {
		least, most := backoff(n, time.Second, 2*time.Minute, 0), backoff(n, time.Second, 2*time.Minute, 0.999999)
		if least != want/2 || most > want || most < want*9/10 {
			t.Errorf("after %d failures: %v to %v, want %v to %v", n, least, most, want/2, want)
		}
	}
}
