package libvirt

import (
	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// status translates a domain's state. Reasons are stable words.
func status(state golibvirt.DomainState, reason int32) (s backends.Status, word, message string) {
	switch state {
	case golibvirt.DomainRunning, golibvirt.DomainBlocked:
		return backends.StatusRunning, "", ""
	case golibvirt.DomainShutdown:
		return backends.StatusRunning, "ShuttingDown", "the guest is shutting down"
	case golibvirt.DomainPaused:
		r := golibvirt.DomainPausedReason(reason)
		switch r {
		case golibvirt.DomainPausedStartingUp:
			return backends.StatusStarting, "StartingUp", ""
		case golibvirt.DomainPausedCrashed:
			return backends.StatusCrashed, "Panicked", "the guest's kernel gave up"
		case golibvirt.DomainPausedIoerror:
			return backends.StatusPaused, "IOError", "the guest is paused because its disk could not be written: the pool is full or broken"
		}
		return backends.StatusPaused, pausedReason(r), "the guest is paused"
	case golibvirt.DomainPmsuspended:
		return backends.StatusPaused, "Suspended", "the guest has put itself to sleep"
	case golibvirt.DomainCrashed:
		return backends.StatusCrashed, "Crashed", "the guest crashed"
	case golibvirt.DomainShutoff:
		return shutoff(golibvirt.DomainShutoffReason(reason))
	}
	return backends.StatusStarting, "", ""
}

func shutoff(r golibvirt.DomainShutoffReason) (backends.Status, string, string) {
	switch r {
	case golibvirt.DomainShutoffShutdown:
		return backends.StatusStopped, "Shutdown", "the guest shut down"
	case golibvirt.DomainShutoffDestroyed:
		return backends.StatusStopped, "Destroyed", "the guest was switched off"
	case golibvirt.DomainShutoffCrashed:
		return backends.StatusCrashed, "Crashed", "QEMU or the guest crashed"
	case golibvirt.DomainShutoffFailed:
		return backends.StatusCrashed, "StartFailed", "the guest could not be started"
	case golibvirt.DomainShutoffMigrated:
		return backends.StatusStopped, "Migrated", "the guest was migrated to another host"
	case golibvirt.DomainShutoffSaved:
		return backends.StatusStopped, "Saved", "the guest was saved to a file"
	case golibvirt.DomainShutoffFromSnapshot:
		return backends.StatusStopped, "FromSnapshot", "the guest was set back to a snapshot"
	}
	return backends.StatusStopped, "", ""
}

func pausedReason(r golibvirt.DomainPausedReason) string {
	switch r {
	case golibvirt.DomainPausedUser:
		return "PausedByUser"
	case golibvirt.DomainPausedMigration, golibvirt.DomainPausedPostcopy, golibvirt.DomainPausedPostcopyFailed:
		return "Migrating"
	case golibvirt.DomainPausedSave, golibvirt.DomainPausedDump:
		return "Saving"
	case golibvirt.DomainPausedIoerror:
		return "IOError"
	case golibvirt.DomainPausedWatchdog:
		return "Watchdog"
	case golibvirt.DomainPausedFromSnapshot, golibvirt.DomainPausedSnapshot:
		return "Snapshot"
	case golibvirt.DomainPausedShuttingDown:
		return "ShuttingDown"
	case golibvirt.DomainPausedCrashed:
		return "Panicked"
	case golibvirt.DomainPausedStartingUp:
		return "StartingUp"
	}
	return "Paused"
}
