package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

// maxCheck bounds one round of checks, however long the interval.
const maxCheck = 15 * time.Second

// Targets of checks that are the agent's own.
const (
	targetBackend     = "backend"
	targetOffer       = "offer"
	targetAssignments = "assignments"
	targetStreams     = "streams"
)

// Codes of the agent's own checks.
const (
	codeForeign     = "ForeignAssignment"
	codeUnreadable  = "UnreadableAssignment"
	codeIncarnation = "OtherIncarnation"
)

// minCheckGap keeps a host on which others make and remove things in a storm from being
// counted in one.
const minCheckGap = 5 * time.Second

// check asks for verdicts and the offer now, and then every interval and whenever something
// happened that may change them, until ctx ends.
func (a *Agent) check(ctx context.Context, b backends.Backend) error {
	interval := func() time.Duration { return around(a.cfg.Intervals.Check, a.loop.policy.Spread()) }
	repeat(ctx, interval, a.checkAgain, func() { a.checkOnce(ctx, b) })
	return nil
}

// repeat does something now, and then after each interval and when it is asked again, but
// never sooner than minCheckGap after the last time, until ctx ends.
func repeat(ctx context.Context, interval func() time.Duration, again <-chan struct{}, do func()) {
	for {
		do()
		wait := interval()
		gap := min(minCheckGap, wait)
		if !sleep(ctx, gap) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-time.After(wait - gap):
		}
	}
}

func (a *Agent) checkOnce(ctx context.Context, b backends.Backend) {
	limited, cancel := context.WithTimeout(ctx, min(maxCheck, a.cfg.Intervals.Check))
	defer cancel()
	offer, err := b.Offer(limited)
	found := b.Check(limited)
	if ctx.Err() != nil {
		return // ended from outside: not a verdict
	}
	a.mu.Lock()
	a.backendChecks = checks(found)
	if err != nil {
		a.backendChecks = append(a.backendChecks, bus.Check{Target: targetOffer, Code: offerCode(err),
			Message: "cannot say what this host can run, the last offer stands: " + asError(err).Message})
	}
	a.mu.Unlock()
	a.publishChecks()
	if err == nil {
		a.out.change(func(h *bus.Host) { h.Offer = wireOffer(offer) })
	}
}

// say sets the agent's own verdict on a target; an empty code takes it back.
func (a *Agent) say(target, code, message string) {
	a.mu.Lock()
	before := len(a.ownChecks)
	a.ownChecks = slices.DeleteFunc(a.ownChecks, func(c bus.Check) bool { return c.Target == target })
	if code == "" && len(a.ownChecks) == before {
		a.mu.Unlock()
		return // the usual case, on the way of every assignment
	}
	if code != "" {
		a.ownChecks = append(a.ownChecks, bus.Check{Target: target, Code: code, Message: message})
	}
	a.mu.Unlock()
	a.publishChecks()
}

func (a *Agent) publishChecks() {
	a.mu.Lock()
	all := slices.Concat(a.ownChecks, a.backendChecks)
	a.mu.Unlock()
	slices.SortStableFunc(all, func(x, y bus.Check) int { return cmp.Compare(x.Target, y.Target) })
	a.out.change(func(h *bus.Host) { h.Checks = all })
}

func checks(in []backends.TargetHealth) []bus.Check {
	out := make([]bus.Check, 0, len(in))
	for _, t := range in {
		out = append(out, bus.Check{Target: t.Target, Code: t.Code, Message: t.Message, Details: t.Details})
	}
	return out
}

func offerCode(err error) string {
	if backends.Ended(err) {
		return backends.CheckTimeout
	}
	return backends.CheckAPIError
}

func wireOffer(o backends.Offer) bus.Offer {
	out := bus.Offer{
		Images: o.Images, DefaultImage: o.DefaultImage, ImageURLs: o.ImageURLs,
		DefaultMachineType: o.DefaultMachineType, DefaultDiskGiB: o.DefaultDiskGiB, Zones: o.Zones,
		Capacity: bus.Capacity{VCPUs: o.Capacity.VCPUs, MemoryMiB: o.Capacity.MemoryMiB, DiskGiB: o.Capacity.DiskGiB, Slots: o.Capacity.Slots},
	}
	for _, s := range o.MachineTypes {
		out.MachineTypes = append(out.MachineTypes, bus.MachineType{Name: s.Name, VCPUs: s.VCPUs, MemoryMiB: s.MemoryMiB})
	}
	return out
}
