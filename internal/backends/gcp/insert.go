package gcp

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/iterator"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends"
)

// attempt carries the open attempt of rec to its end. What is not known when it returns an error
// stays open, and the next call goes on with it. One that an earlier call may have sent is looked for
// before it is sent again: a requestId is answered for the same body only, and another version of the
// agent may write it in another way.
func (b *Backend) attempt(ctx context.Context, j *job, rec *record, fresh bool, m backends.Mark, ip string) (*computepb.Instance, error) {
	zone := rec.Open.Zone
	op := &computepb.Operation{Name: &rec.Open.Operation, Zone: &zone}
	if rec.Open.Operation == "" {
		var err error
		op, err = b.sent(ctx, j, rec, fresh, m, ip)
		switch {
		case err == nil:
		case troubleOf(err) == exists:
			return b.adopt(ctx, j, rec, err)
		case isDefinite(err):
			return nil, b.closed(ctx, rec, err)
		default:
			return nil, err
		}
		rec.Open.Operation = op.GetName()
		if err := b.records.put(ctx, "record.operation", rec); err != nil {
			return nil, err
		}
	}
	if err := backends.Step(ctx, "operation.follow"); err != nil { // no side effect, but a moment to be killed at
		return nil, err
	}
	err := b.follow(ctx, b.conf.Project, op, "making instance in "+zone, j.report)
	var failed *failure
	switch {
	case errors.As(err, &failed) && troubleOf(err) == exists:
		return b.adopt(ctx, j, rec, err)
	case errors.As(err, &failed):
		return nil, b.closed(ctx, rec, err)
	case isAbsent(err): // nobody knows the operation any more; what is there tells
	case err != nil:
		return nil, err
	}
	i, err := b.get(ctx, zone, j.name())
	if isAbsent(err) {
		return nil, b.closed(ctx, rec, backends.Wrap(backends.ErrTransient, "insert instance", err,
			"proxy %s: the insert in zone %s has succeeded, and the instance is not there; somebody was fast to remove it", j.Proxy, zone))
	}
	if err != nil {
		return nil, err
	}
	return i, b.take(ctx, j, rec, i)
}

// sent returns the operation of the open attempt, which is sent if it is not known to have been.
func (b *Backend) sent(ctx context.Context, j *job, rec *record, fresh bool, m backends.Mark, ip string) (*computepb.Operation, error) {
	if !fresh {
		op, err := b.api.operationOf(ctx, rec.Open.Zone, requestID(rec.UID, rec.Open.Zone, rec.Attempt))
		if err != nil || op != nil {
			return op, err
		}
	}
	return b.insert(ctx, j, rec, m, ip)
}

func (b *Backend) insert(ctx context.Context, j *job, rec *record, m backends.Mark, ip string) (*computepb.Operation, error) {
	zone := rec.Open.Zone
	j.step("making instance in " + zone)
	if err := backends.Step(ctx, "instance.insert"); err != nil {
		return nil, err
	}
	op, err := b.api.instances.Insert(ctx, &computepb.InsertInstanceRequest{Project: b.conf.Project, Zone: zone,
		RequestId: proto.String(requestID(j.UID, zone, rec.Attempt)), InstanceResource: b.resource(j, m, zone, ip)})
	return started(ctx, op, err)
}

// adopt takes the instance whose name is taken, if it is ours. If there is none, the name is
// that of a disk.
func (b *Backend) adopt(ctx context.Context, j *job, rec *record, cause error) (*computepb.Instance, error) {
	zone := rec.Open.Zone
	i, err := b.get(ctx, zone, j.name())
	if isAbsent(err) {
		return nil, b.closed(ctx, rec, backends.Wrap(backends.ErrTransient, "insert instance", cause,
			"proxy %s: the name %s is taken in zone %s, and no instance has it; what has it is looked for", j.Proxy, j.name(), zone))
	}
	if err != nil {
		return nil, err
	}
	if err := b.verify(j.Ref, i); err != nil {
		return nil, b.closed(ctx, rec, err)
	}
	return i, b.take(ctx, j, rec, i)
}

// take ends the attempt with an instance.
func (b *Backend) take(ctx context.Context, j *job, rec *record, i *computepb.Instance) error {
	if err := b.verify(j.Ref, i); err != nil {
		return b.closed(ctx, rec, err)
	}
	rec.Open, rec.Spot = nil, isSpot(i)
	return b.records.put(ctx, "record.made", rec)
}

// closed ends the attempt that is known to have failed with err, and returns err.
func (b *Backend) closed(ctx context.Context, rec *record, err error) error {
	rec.Open = nil
	if lost := b.records.put(ctx, "record.failed", rec); lost != nil {
		return lost
	}
	return err
}

// settle waits for the end of an attempt that is to be undone. Whether one whose answer was lost was
// ever accepted is seen by its operation; one that reaches Google later than settleFor after it was
// sent would be found as an instance that nobody claims.
func (b *Backend) settle(ctx context.Context, rec *record) error {
	if rec == nil || rec.Open == nil {
		return nil
	}
	zone, name := rec.Open.Zone, rec.Open.Operation
	id := requestID(rec.UID, zone, rec.Attempt)
	until := rec.Open.SentAt.Add(settleFor * b.poll)
	for name == "" {
		op, err := b.api.operationOf(ctx, zone, id)
		if err != nil {
			return classify("look for operation", err, "proxy %s: whether an instance is being made in zone %s cannot be read", rec.Proxy, zone)
		}
		if name = op.GetName(); name == "" {
			if time.Now().After(until) {
				return nil
			}
			if err := sleep(ctx, b.poll); err != nil {
				return classify("look for operation", err, "proxy %s: an instance may be being made in zone %s", rec.Proxy, zone)
			}
		}
	}
	err := b.follow(ctx, b.conf.Project, &computepb.Operation{Name: &name, Zone: &zone}, "", nil)
	var failed *failure
	if err == nil || errors.As(err, &failed) || isAbsent(err) {
		return nil
	}
	return classify("follow insert", err, "proxy %s: the instance that is being made in zone %s cannot be followed to its end", rec.Proxy, zone)
}

// settleFor, in looks, is how long an insert without an answer may take to be accepted.
const settleFor = 10

// operationOf finds the operation that a requestId began, nil without one.
func (a *api) operationOf(ctx context.Context, zone, requestID string) (*computepb.Operation, error) {
	ctx, end := a.calls.carry(ctx)
	defer end()
	filter := `clientOperationId = "` + requestID + `"`
	op, err := a.zoneOps.List(ctx, &computepb.ListZoneOperationsRequest{Project: a.project, Zone: zone, Filter: &filter}).Next()
	if errors.Is(err, iterator.Done) {
		return nil, nil
	}
	return op, heard(ctx, err)
}

// get reads an instance; its error is as [heard] gives it.
func (b *Backend) get(ctx context.Context, zone, name string) (*computepb.Instance, error) {
	i, err := b.api.instances.Get(ctx, &computepb.GetInstanceRequest{Project: b.conf.Project, Zone: zone, Instance: name})
	return i, heard(ctx, err)
}
