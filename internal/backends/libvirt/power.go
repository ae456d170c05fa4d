package libvirt

import (
	"context"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// pollEvery is how often a state is read while it is waited for.
const pollEvery = 200 * time.Millisecond

// power starts or stops the domain, from whatever state it is in.
func (w *work) power(s *session) error {
	if w.r.Desired == backends.Stopped {
		return w.stop(s)
	}
	return w.start(s)
}

// stop asks the guest to shut down and switches it off when it does not.
func (w *work) stop(s *session) error {
	state, _, err := domainState(s, w.dom)
	if err != nil || state == golibvirt.DomainShutoff {
		return err
	}
	if err := undisturbed(s, w.dom, w.r.Proxy); err != nil {
		return err
	}
	if state == golibvirt.DomainRunning || state == golibvirt.DomainBlocked {
		w.report(backends.Progress{Step: "shutting down"})
		err := s.write("domain.shutdown", "shut domain down", func(l *golibvirt.Libvirt) error {
			return gone(l.DomainShutdownFlags(w.dom, golibvirt.DomainShutdownAcpiPowerBtn))
		})
		if err != nil {
			return err
		}
		if state, _, err = w.waitOff(s, w.b.grace); err != nil || state == golibvirt.DomainShutoff {
			return err
		}
	}
	return w.destroy(s)
}

func (w *work) destroy(s *session) error {
	return s.write("domain.destroy", "destroy domain", func(l *golibvirt.Libvirt) error {
		return gone(l.DomainDestroyFlags(w.dom, 0))
	})
}

// waitOff reads the state until the domain is off, at most for d, and returns the last one.
func (w *work) waitOff(s *session, d time.Duration) (golibvirt.DomainState, int32, error) {
	deadline := time.Now().Add(d)
	for {
		state, reason, err := domainState(s, w.dom)
		if err != nil || state == golibvirt.DomainShutoff || time.Now().After(deadline) {
			return state, reason, err
		}
		if err := sleep(s.ctx, pollEvery); err != nil {
			return state, reason, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return backends.Wrap(backends.ErrTransient, "wait", ctx.Err(), "stopped while the guest was shutting down")
	case <-time.After(d):
		return nil
	}
}

func domainState(s *session, dom golibvirt.Domain) (state golibvirt.DomainState, reason int32, err error) {
	err = s.do("read state", readBudget, 0, func(l *golibvirt.Libvirt) error {
		n, r, err := l.DomainGetState(dom, 0)
		state, reason = golibvirt.DomainState(n), r
		return err
	})
	return state, reason, err
}
