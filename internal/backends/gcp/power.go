package gcp

import (
	"context"
	"errors"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends"
)

// Statuses of instances. https://cloud.google.com/compute/docs/instances/instance-lifecycle
const (
	statusProvisioning = "PROVISIONING"
	statusStaging      = "STAGING"
	statusRunning      = "RUNNING"
	statusPendingStop  = "PENDING_STOP"
	statusStopping     = "STOPPING"
	statusStopped      = "STOPPED"
	statusTerminated   = "TERMINATED"
	statusSuspending   = "SUSPENDING"
	statusSuspended    = "SUSPENDED"
	statusRepairing    = "REPAIRING"
	statusLeaving      = "DEPROVISIONING"
)

// errPreempted is a spot instance that Google has taken away.
var errPreempted = errors.New("the spot instance was taken away")

type action int

const (
	actNone action = iota
	actWait
	actStart
	actResume
	actStop
	actReplace
)

// next is what brings an instance nearer to what is desired. lost says that it is a spot instance
// that ran by its last labels: what ended it was no call of ours.
//
// A suspended instance is paid for like a stopped one and more; it can only go on, so that is what
// happens to it, also on its way to stopped.
func nextAction(desired backends.Desired, status string, lost bool) action {
	switch status {
	case statusRunning:
		if desired == backends.Stopped {
			return actStop
		}
		return actNone
	case statusStopped, statusTerminated:
		switch {
		case desired == backends.Stopped:
			return actNone
		case lost:
			return actReplace
		}
		return actStart
	case statusSuspended:
		return actResume
	}
	return actWait
}

// isLost reports a spot instance that does not run and was to.
func isLost(i *computepb.Instance) bool {
	return isSpot(i) && i.GetLabels()[labelDesired] == string(backends.Running)
}

// powered brings an instance to what is desired, and ends when there is nothing left to do.
func (b *Backend) powered(ctx context.Context, j *job, i *computepb.Instance) (*computepb.Instance, error) {
	const most = 6 // resume, stop and so on; more is an instance that does not do as it is told
	for done := 0; done < most; {
		act := nextAction(j.Desired, i.GetStatus(), isLost(i))
		switch act {
		case actNone:
			return i, nil
		case actReplace:
			return i, errPreempted
		case actWait:
			j.step("waiting while the instance is " + i.GetStatus())
			if err := sleep(ctx, b.poll); err != nil {
				return i, err
			}
		default:
			done++
			if err := b.act(ctx, j, i, act); err != nil {
				return i, err
			}
		}
		zone, name := zoneOf(i.GetZone()), i.GetName()
		now, err := b.get(ctx, zone, name)
		if isAbsent(err) {
			return i, backends.Wrap(backends.ErrTransient, "wait for instance", err, "proxy %s: its instance in zone %s has vanished while it was %s", j.Proxy, zone, i.GetStatus())
		}
		if err != nil {
			return i, err
		}
		if err := b.verify(j.Ref, now); err != nil {
			return i, err
		}
		i = now
	}
	return i, backends.Errorf(backends.ErrTransient, "bring instance to "+string(j.Desired), "proxy %s: its instance in zone %s does not stay as asked: it is %s",
		j.Proxy, zoneOf(i.GetZone()), i.GetStatus())
}

func (b *Backend) act(ctx context.Context, j *job, i *computepb.Instance, what action) error {
	project, zone, name := b.conf.Project, zoneOf(i.GetZone()), i.GetName()
	var op *compute.Operation
	var err error
	var doing string
	switch what {
	case actStart:
		doing = "start instance"
		if err := b.begins(ctx, j, "instance.start", "starting instance"); err != nil {
			return err
		}
		op, err = b.api.instances.Start(ctx, &computepb.StartInstanceRequest{Project: project, Zone: zone, Instance: name})
	case actResume:
		doing = "resume instance"
		if err := b.begins(ctx, j, "instance.resume", "resuming instance"); err != nil {
			return err
		}
		op, err = b.api.instances.Resume(ctx, &computepb.ResumeInstanceRequest{Project: project, Zone: zone, Instance: name})
	default:
		doing = "stop instance"
		if err := b.begins(ctx, j, "instance.stop", "stopping instance"); err != nil {
			return err
		}
		op, err = b.api.instances.Stop(ctx, &computepb.StopInstanceRequest{Project: project, Zone: zone, Instance: name, DiscardLocalSsd: proto.Bool(true)})
	}
	pending, err := started(ctx, op, err)
	if err == nil {
		err = b.follow(ctx, project, pending, "", nil)
	}
	if troubleOf(err) == busy {
		return nil // it is looked at again
	}
	return classify(doing, err, "proxy %s: its instance in zone %s", j.Proxy, zone)
}

func (b *Backend) begins(ctx context.Context, j *job, label, step string) error {
	j.step(step)
	return backends.Step(ctx, label)
}

// preempted does what the policy says about a spot instance that was taken away: it removes it, with
// its disk, which would be paid for, and lets it be made again, or refuses that for good.
func (b *Backend) preempted(ctx context.Context, j *job, rec *record, i *computepb.Instance) error {
	if b.conf.Preemption == preemptDelete {
		rec.Preempted = true
		if err := b.records.put(ctx, "record.preempted", rec); err != nil {
			return err
		}
	}
	j.step("removing the instance that was taken away")
	if err := b.removeInstance(ctx, j.Ref, i); err != nil {
		return err
	}
	if rec.Preempted {
		return gone(j)
	}
	return nil
}

// gone is the error of a spot instance that was taken away and is not to be made again.
func gone(j *job) error {
	return backends.Errorf(backends.ErrNoCapacity, "make instance",
		"proxy %s: its spot instance was taken away (preempted), and backend.preemption says delete: it is not made again under this uid", j.Proxy)
}
