package gcp

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/told"
)

// Ensure implements [backends.Backend].
func (b *Backend) Ensure(ctx context.Context, req backends.Request, report func(backends.Progress)) (backends.Instance, error) {
	j, err := b.job(req, report)
	if err != nil {
		return backends.Instance{}, err
	}
	i, err := b.ensured(ctx, j)
	if err != nil {
		return backends.Instance{}, inEnsure(j, err)
	}
	b.seen(j.UID, zoneOf(i.GetZone()))
	return b.instance(i), backends.Step(ctx, "done")
}

// inEnsure gives what was left without a class its own, and makes what vanished under a create
// something to try again.
func inEnsure(j *job, err error) error {
	err = classify("make instance", err, "proxy %s: its instance cannot be made as asked", j.Proxy)
	if backends.Class(err) == backends.ErrNotFound {
		return backends.Wrap(backends.ErrTransient, "ensure", err, "something that it needs vanished meanwhile")
	}
	return err
}

// ensured brings the instance of a job to what is desired. One that was taken away is made again,
// once in a call.
func (b *Backend) ensured(ctx context.Context, j *job) (*computepb.Instance, error) {
	for again := false; ; again = true {
		i, rec, err := b.made(ctx, j)
		if err != nil {
			return nil, err
		}
		i, err = b.powered(ctx, j, i)
		if err == nil {
			return b.relabelled(ctx, j, i)
		}
		if !errors.Is(err, errPreempted) || again {
			return nil, err
		}
		if err := b.preempted(ctx, j, rec, i); err != nil {
			return nil, err
		}
	}
}

// made returns the instance of a job, made if it is not there, whatever an earlier call left.
func (b *Backend) made(ctx context.Context, j *job) (*computepb.Instance, *record, error) {
	rec, err := b.records.get(j.UID)
	if err != nil {
		return nil, nil, err
	}
	f, err := b.survey(ctx, j.Ref)
	if err != nil {
		return nil, nil, err
	}
	if rec == nil {
		rec = &record{Proxy: j.Proxy, UID: j.UID, CreatedAt: createdAt(f, b.owner)}
	}
	m := backends.Mark{Installation: b.owner.Installation, HostID: b.owner.HostID, Proxy: j.Proxy, UID: j.UID, CreatedAt: rec.CreatedAt}
	for _, i := range f.instances {
		if err := told.Parse(toldOf(i)).Unchanged("instance", portOf(i), j.Request, j.told); err != nil {
			return nil, nil, err
		}
	}
	if len(f.instances) > 0 && rec.Open == nil {
		for _, i := range f.instances[1:] { // made by an agent that had lost its records
			if err := b.removeInstance(ctx, j.Ref, i); err != nil {
				return nil, nil, err
			}
		}
		return f.instances[0], rec, b.openFirewall(ctx, j, m, f.firewalls)
	}
	if silent := common(f.dark, rec.Zones); len(silent) > 0 && rec.Open == nil {
		return nil, nil, backends.Errorf(backends.ErrTransient, "look for instance",
			"proxy %s: zone %s does not answer, and may have its instance; no other is made", j.Proxy, strings.Join(silent, ", "))
	}
	if rec.Preempted || rec.Spot && rec.Open == nil && b.conf.Preemption == preemptDelete {
		return nil, nil, gone(j)
	}
	i, err := b.create(ctx, j, rec, m, &f)
	return i, rec, err
}

// createdAt is when a uid whose record is not there was first made: as its things say, or now.
func createdAt(f found, o backends.Owner) time.Time {
	for _, i := range f.instances {
		if m, ok := readLabels(i.GetLabels(), o); ok && !m.CreatedAt.IsZero() {
			return m.CreatedAt
		}
	}
	return time.Now().UTC().Truncate(time.Second)
}

// common are the names that are in x and in y.
func common(x, y []string) []string {
	return slices.DeleteFunc(slices.Clone(x), func(s string) bool { return !slices.Contains(y, s) })
}

// relabelled writes down the generation that an instance was brought to, and what was desired.
func (b *Backend) relabelled(ctx context.Context, j *job, i *computepb.Instance) (*computepb.Instance, error) {
	if generationOf(i) == j.Generation && i.GetLabels()[labelDesired] == string(j.Desired) {
		return i, nil
	}
	labels := i.GetLabels() // verified; ours to change
	labels[labelGeneration] = strconv.FormatUint(j.Generation, 10)
	labels[labelDesired] = string(j.Desired)
	if err := backends.Step(ctx, "instance.labels"); err != nil {
		return i, err
	}
	zone := zoneOf(i.GetZone())
	asked, err := b.api.instances.SetLabels(ctx, &computepb.SetLabelsInstanceRequest{Project: b.conf.Project, Zone: zone, Instance: i.GetName(),
		InstancesSetLabelsRequestResource: &computepb.InstancesSetLabelsRequest{Labels: labels, LabelFingerprint: i.LabelFingerprint}})
	op, err := started(ctx, asked, err)
	if err == nil {
		err = b.follow(ctx, b.conf.Project, op, "", nil)
	}
	return i, classify("label instance", err, "proxy %s: the labels of its instance in zone %s cannot be written", j.Proxy, zone)
}
