package gcp

import (
	"context"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// look reads an operation again. Zone or region say where it runs; without either it is global.
func (a *api) look(ctx context.Context, project string, op *computepb.Operation) (*computepb.Operation, error) {
	var err error
	name := op.GetName()
	switch {
	case op.GetZone() != "":
		op, err = a.zoneOps.Get(ctx, &computepb.GetZoneOperationRequest{Project: project, Zone: zoneOf(op.GetZone()), Operation: name})
	case op.GetRegion() != "":
		op, err = a.regionOps.Get(ctx, &computepb.GetRegionOperationRequest{Project: project, Region: zoneOf(op.GetRegion()), Operation: name})
	default:
		op, err = a.globalOps.Get(ctx, &computepb.GetGlobalOperationRequest{Project: project, Operation: name})
	}
	return op, heard(ctx, err)
}

// follow waits for an operation's end and returns how it ended: nil, a *failure, or why it could
// not be followed.
func (b *Backend) follow(ctx context.Context, project string, op *computepb.Operation, step string, report func(backends.Progress)) error {
	pause := b.poll
	for op.GetStatus() != computepb.Operation_DONE {
		if percent := int(op.GetProgress()); percent > 0 && report != nil {
			report(backends.Progress{Step: step, Percent: min(percent, 100)})
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(pause*3/2, 5*b.poll)
		var err error
		if op, err = b.api.look(ctx, project, op); err != nil {
			return err
		}
	}
	return outcome(op)
}

// sleep waits, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// started is the operation of an answer.
func started(ctx context.Context, op *compute.Operation, err error) (*computepb.Operation, error) {
	if err != nil {
		return nil, heard(ctx, err)
	}
	return op.Proto(), nil
}

// removed waits for the end of a removal. What is not there any more is removed.
func (b *Backend) removed(ctx context.Context, project, what, thing string, op *compute.Operation, err error) error {
	pending, err := started(ctx, op, err)
	if err == nil {
		err = b.follow(ctx, project, pending, "", nil)
	}
	if isAbsent(err) {
		return nil
	}
	return classify(what, err, "%s cannot be deleted; it is kept", thing)
}
