package agent

import (
	"sync"
	"time"

	"proxyfleet/internal/backends"
)

const (
	// quiet is how long a call, or a step of one, may take before people see it: what ends
	// sooner needs one state, not two.
	quiet = 50 * time.Millisecond
	// pace is the shortest time between two states of progress.
	pace = 200 * time.Millisecond
)

// progress publishes the steps of a call in flight, the newest wins.
type progress struct {
	d     *driver
	timer *time.Timer

	mu      sync.Mutex // guards the fields that follow
	now     backends.Progress
	shown   backends.Progress
	waiting bool // the timer runs
	last    time.Time
	stopped bool
}

// show starts showing the call in flight. Call stop when it has ended.
func (d *driver) show() *progress {
	p := &progress{d: d, waiting: true}
	p.timer = time.AfterFunc(quiet, p.fire)
	return p
}

// report takes a step; it never blocks.
func (p *progress) report(step backends.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = step
	if p.stopped || p.waiting || step == p.shown {
		return
	}
	p.waiting = true
	p.timer.Reset(max(quiet, time.Until(p.last.Add(pace))))
}

// fire publishes the newest step.
func (p *progress) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = false
	if p.stopped {
		return
	}
	p.last, p.shown = time.Now(), p.now
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	o := &p.d.observed
	o.Busy, o.Step, o.Percent = true, p.now.Step, p.now.Percent
	p.d.publishLocked()
}

func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
}
