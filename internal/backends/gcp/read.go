package gcp

import (
	"context"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// Get implements [backends.Backend]: one request where the zone is known, else a listing of all.
func (b *Backend) Get(ctx context.Context, ref backends.Ref) (backends.Instance, error) {
	if err := ref.Validate(); err != nil {
		return backends.Instance{}, err
	}
	name := backends.InstanceName(ref.UID)
	if zone := b.lastZone(ref.UID); zone != "" {
		i, err := b.get(ctx, zone, name)
		if err == nil {
			return b.verified(ref, i)
		}
		if !isAbsent(err) {
			return backends.Instance{}, classify("get", err, "proxy %s: its instance in zone %s cannot be read", ref.Proxy, zone)
		}
	}
	all, err := b.api.allInstances(ctx, named(name))
	if err != nil {
		return backends.Instance{}, classify("get", err, "proxy %s: its instance cannot be looked for", ref.Proxy)
	}
	if len(all.items) > 0 {
		return b.verified(ref, all.items[0])
	}
	rec, err := b.records.get(ref.UID)
	if err != nil {
		return backends.Instance{}, err
	}
	silent, err := b.unseen(ctx, rec, all.dark)
	if err != nil {
		return backends.Instance{}, err
	}
	if len(silent) > 0 {
		return backends.Instance{}, backends.Errorf(backends.ErrTransient, "get", "proxy %s: its instance may be in %s, which does not answer", ref.Proxy, strings.Join(silent, ", "))
	}
	b.seen(ref.UID, "")
	return backends.Instance{}, backends.Errorf(backends.ErrNotFound, "get", "proxy %s has no instance (uid %s)", ref.Proxy, ref.UID)
}

func (b *Backend) verified(ref backends.Ref, i *computepb.Instance) (backends.Instance, error) {
	if err := b.verify(ref, i); err != nil {
		return backends.Instance{}, err
	}
	b.seen(ref.UID, zoneOf(i.GetZone()))
	return b.instance(i), nil
}

// instance says in the contract's words what an instance of ours does.
func (b *Backend) instance(i *computepb.Instance) backends.Instance {
	m, _ := readLabels(i.GetLabels(), b.owner)
	out := backends.Instance{Mark: m, ID: zoneOf(i.GetZone()) + "/" + i.GetName(), Port: portOf(i), Generation: generationOf(i)}
	out.Status, out.Reason, out.Message = condition(i)
	if out.Status == backends.StatusRunning {
		out.Addresses = addressesOf(i, b.conf.IPv6)
	}
	return out
}

// condition is what an instance does. One that was to run and has ended was taken away, if it is a
// spot instance, or was stopped by somebody or by its guest.
func condition(i *computepb.Instance) (status backends.Status, reason, message string) {
	switch s := i.GetStatus(); s {
	case statusRunning:
		return backends.StatusRunning, "", ""
	case statusProvisioning, statusStaging:
		return backends.StatusStarting, "", ""
	case statusRepairing:
		return backends.StatusStarting, "Repairing", "Google repairs the instance after an error of its machine"
	case statusStopped, statusTerminated:
		switch {
		case i.GetLabels()[labelDesired] != string(backends.Running):
			return backends.StatusStopped, "", ""
		case isSpot(i):
			return backends.StatusCrashed, "Preempted", "the spot instance was taken away; its disk is paid for until it is removed"
		}
		return backends.StatusCrashed, "Terminated", "the guest, Google or somebody has stopped the instance; its disk is paid for"
	case statusSuspended:
		return backends.StatusPaused, "Suspended", "somebody has suspended the instance; its memory and disk are paid for"
	case statusStopping, statusPendingStop:
		return backends.StatusPaused, "Stopping", "the instance is being stopped or deleted"
	case statusSuspending:
		return backends.StatusPaused, "Suspending", "somebody is suspending the instance"
	case statusLeaving:
		return backends.StatusPaused, "Deprovisioning", "the instance's resources are being released"
	default:
		return backends.StatusPaused, "Unknown", "Compute Engine says " + strings.ToLower(s)
	}
}
