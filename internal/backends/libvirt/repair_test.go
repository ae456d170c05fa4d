package libvirt

import (
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"
)

func TestEachStateHasItsReaction(t *testing.T) {
	mend := Repair{}.withDefaults()
	report := Repair{Report, Report, Report, Report, Report}
	again := Repair{Restart, Restart, Restart, Restart, Restart}
	paused, off := golibvirt.DomainPaused, golibvirt.DomainShutoff
	for what, c := range map[string]struct {
		state                 golibvirt.DomainState
		reason                int32
		mend, restart, report outcome
	}{
		"running":                {golibvirt.DomainRunning, 1, leave, leave, leave},
		"blocked":                {golibvirt.DomainBlocked, 0, leave, leave, leave},
		"asleep":                 {golibvirt.DomainPmsuspended, 0, wake, restart, tell},
		"crashed":                {golibvirt.DomainCrashed, 1, restart, restart, tell},
		"shutting down too long": {golibvirt.DomainShutdown, 1, restart, restart, restart},
		"paused by hand":         {paused, int32(golibvirt.DomainPausedUser), resume, restart, tell},
		"paused by a watchdog":   {paused, int32(golibvirt.DomainPausedWatchdog), resume, restart, tell},
		"paused, disk full":      {paused, int32(golibvirt.DomainPausedIoerror), resume, restart, tell},
		"panicked":               {paused, int32(golibvirt.DomainPausedCrashed), restart, restart, tell},
		"being migrated":         {paused, int32(golibvirt.DomainPausedMigration), waitFor, waitFor, waitFor},
		"in a snapshot":          {paused, int32(golibvirt.DomainPausedSnapshot), waitFor, waitFor, waitFor},
		"never started":          {off, int32(golibvirt.DomainShutoffUnknown), start, start, start},
		"shut down":              {off, int32(golibvirt.DomainShutoffShutdown), start, start, tell},
		"switched off":           {off, int32(golibvirt.DomainShutoffDestroyed), start, start, tell},
		"saved":                  {off, int32(golibvirt.DomainShutoffSaved), start, start, tell},
		"QEMU gone":              {off, int32(golibvirt.DomainShutoffCrashed), start, start, tell},
		"not startable":          {off, int32(golibvirt.DomainShutoffFailed), start, start, tell},
		"migrated away":          {off, int32(golibvirt.DomainShutoffMigrated), migrated, migrated, migrated},
	} {
		for how, p := range map[string]struct {
			repair Repair
			want   outcome
		}{"by default": {mend, c.mend}, "restart": {again, c.restart}, "report": {report, c.report}} {
			if got, _ := p.repair.react(c.state, c.reason, false); got != p.want {
				t.Errorf("%s, %s: got %s, want %s", what, how, got, p.want)
			}
		}
		if got, _ := report.react(c.state, c.reason, true); got == tell {
			t.Errorf("%s: a change that was asked for is only reported", what)
		}
	}
}

func TestReactionsThatCannotBeAreRefused(t *testing.T) {
	for _, r := range []Repair{{Stopped: Resume}, {Crashed: Resume}, {Paused: "ignore"}, {IOError: "x"}, {Suspended: "x"}} {
		if err := r.withDefaults().validate(); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
	if err := (Repair{Report, Report, Report, Restart, Restart}).validate(); err != nil {
		t.Error(err)
	}
}
