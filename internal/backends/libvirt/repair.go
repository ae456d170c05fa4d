package libvirt

import (
	"fmt"
	"slices"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// Reaction is what is done about a guest that should run and does not.
type Reaction string

// Reactions. Not every cause can be answered by every one.
const (
	Resume  Reaction = "resume"  // let it go on from where it stands
	Restart Reaction = "restart" // start it, switched off first where it is not
	Report  Reaction = "report"  // leave it as it is for a person, and say so
)

// Repair is the reaction to each cause. Whatever it says: what was undefined or has lost
// its disk is made again, what was migrated away is only reported, and a change of what is
// asked for is carried out.
type Repair struct {
	Stopped   Reaction `yaml:"stopped"`   // shut down, switched off or saved by somebody. Default restart; or report
	Crashed   Reaction `yaml:"crashed"`   // QEMU or the guest's kernel gave up. Default restart; or report
	Paused    Reaction `yaml:"paused"`    // by hand, or by something that libvirt does not name. Default resume
	IOError   Reaction `yaml:"ioError"`   // paused because its disk could not be written. Default resume
	Suspended Reaction `yaml:"suspended"` // the guest put itself to sleep. Default resume
}

func (r Repair) withDefaults() Repair {
	for at, otherwise := range map[*Reaction]Reaction{
		&r.Stopped: Restart, &r.Crashed: Restart, &r.Paused: Resume, &r.IOError: Resume, &r.Suspended: Resume,
	} {
		if *at == "" {
			*at = otherwise
		}
	}
	return r
}

func (r Repair) validate() error {
	off, alive := []Reaction{Restart, Report}, []Reaction{Resume, Restart, Report}
	for _, c := range []struct {
		key  string
		have Reaction
		may  []Reaction
	}{
		{"stopped", r.Stopped, off}, {"crashed", r.Crashed, off},
		{"paused", r.Paused, alive}, {"ioError", r.IOError, alive}, {"suspended", r.Suspended, alive},
	} {
		if !slices.Contains(c.may, c.have) {
			return fmt.Errorf("repair.%s: %q is none of %v", c.key, c.have, c.may)
		}
	}
	return nil
}

// outcome is what is to be done about a state.
type outcome string

const (
	leave    outcome = "leave"    // it runs
	resume   outcome = "resume"   // out of a pause
	wake     outcome = "wake"     // out of its sleep
	restart  outcome = "restart"  // switch it off first
	start    outcome = "start"    // it is off
	tell     outcome = "tell"     // a person's turn
	waitFor  outcome = "wait"     // for a job of libvirt's
	migrated outcome = "migrated" // it may run elsewhere
)

// react decides what to do about a domain that should run. asked says that what is asked for
// has changed since it was last brought to something: then whatever stopped it was us. The
// key names the setting that decided, if one did.
func (r Repair) react(state golibvirt.DomainState, reason int32, asked bool) (do outcome, key string) {
	by := func(key string, configured Reaction, off outcome) (outcome, string) {
		switch {
		case configured == Report && !asked:
			return tell, key
		case configured == Resume:
			return off, key
		case off == start:
			return start, key
		}
		return restart, key
	}
	switch state {
	case golibvirt.DomainRunning, golibvirt.DomainBlocked:
		return leave, ""
	case golibvirt.DomainPmsuspended:
		return by("suspended", r.Suspended, wake)
	case golibvirt.DomainCrashed:
		return by("crashed", r.Crashed, restart)
	case golibvirt.DomainShutdown:
		return restart, "" // it has had its time
	case golibvirt.DomainPaused:
		switch golibvirt.DomainPausedReason(reason) {
		case golibvirt.DomainPausedMigration, golibvirt.DomainPausedSave, golibvirt.DomainPausedDump, golibvirt.DomainPausedSnapshot,
			golibvirt.DomainPausedStartingUp, golibvirt.DomainPausedPostcopy, golibvirt.DomainPausedShuttingDown:
			return waitFor, ""
		case golibvirt.DomainPausedCrashed, golibvirt.DomainPausedPostcopyFailed:
			return by("crashed", r.Crashed, restart)
		case golibvirt.DomainPausedIoerror:
			return by("ioError", r.IOError, resume)
		}
		return by("paused", r.Paused, resume)
	case golibvirt.DomainShutoff:
		switch golibvirt.DomainShutoffReason(reason) {
		case golibvirt.DomainShutoffMigrated:
			return migrated, ""
		case golibvirt.DomainShutoffCrashed, golibvirt.DomainShutoffFailed:
			return by("crashed", r.Crashed, start)
		case golibvirt.DomainShutoffUnknown:
			return start, "" // it never ran, or the host was started again
		}
		return by("stopped", r.Stopped, start)
	}
	return start, ""
}

// start makes it run, from whatever state it is in, as Repair says. A saved image is thrown
// away: its guest would wake up with connections of long ago.
func (w *work) start(s *session) error {
	state, reason, err := domainState(s, w.dom)
	if err == nil && state == golibvirt.DomainShutdown {
		state, reason, err = w.waitOff(s, w.b.grace)
	}
	if err != nil {
		return err
	}
	do, key := w.b.cfg.Repair.react(state, reason, w.Generation < w.r.Generation)
	switch do {
	case leave:
		return nil
	case resume:
		return s.write("domain.resume", "resume domain", func(l *golibvirt.Libvirt) error { return l.DomainResume(w.dom) })
	case wake:
		return s.write("domain.wakeup", "wake domain", func(l *golibvirt.Libvirt) error { return l.DomainPmWakeup(w.dom, 0) })
	case tell:
		_, word, text := status(state, reason)
		return backends.Errorf(backends.ErrConflict, "start domain",
			"proxy %s does not run (%s: %s) and is left to you, as repair.%s says; start or resume its domain %s (virsh), and it is kept running again", w.r.Proxy, word, text, key, w.name)
	case waitFor:
		return backends.Errorf(backends.ErrTransient, "resume domain",
			"the guest of proxy %s is paused by a job of libvirt's (%s), which is waited for", w.r.Proxy, pausedReason(golibvirt.DomainPausedReason(reason)))
	case migrated:
		return migratedAway(w.r.Proxy)
	case restart:
		if err := undisturbed(s, w.dom, w.r.Proxy); err != nil {
			return err
		}
		if err := w.destroy(s); err != nil {
			return err
		}
	}
	w.report(backends.Progress{Step: "starting domain"})
	return s.write("domain.start", "start domain", func(l *golibvirt.Libvirt) error {
		_, err := l.DomainCreateWithFlags(w.dom, uint32(golibvirt.DomainStartForceBoot))
		if hasCode(err, golibvirt.ErrOperationInvalid) {
			// Somebody started it first.
			if active, err := l.DomainIsActive(w.dom); err == nil && active == 1 {
				return nil
			}
		}
		return err
	})
}

// migratedAway refuses to make a guest run a second time.
func migratedAway(proxy string) error {
	return backends.Errorf(backends.ErrConflict, "start domain",
		"the guest of proxy %s was migrated to another host and is not started a second time; migrate it back, or delete the proxy and end it there", proxy)
}
