package kubernetes

import (
	"context"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// Ensure implements [backends.Backend]. Its steps are "secret.create", "secret.update",
// "policy.create", "policy.update", "service.create", "budget.create", "budget.update",
// "pod.create", "secret.settle" and "done"; what is to go first is removed by the steps of
// Delete. A disk size is ignored, for the proxy keeps nothing.
func (b *Backend) Ensure(ctx context.Context, req backends.Request, report func(backends.Progress)) (backends.Instance, error) {
	const op = "ensure"
	p, err := b.plan(req)
	if err != nil {
		return backends.Instance{}, err
	}
	f, err := b.look(ctx, op, req.Ref)
	if err != nil {
		return backends.Instance{}, err
	}
	switch {
	case f.unread != nil:
		return backends.Instance{}, b.unreadable(op, req.Ref, f.unread)
	case f.secret != nil && f.secret.DeletionTimestamp != nil:
		return backends.Instance{}, backends.Errorf(backends.ErrTransient, op,
			"the secret %s/%s of proxy %s is being deleted; the proxy is made again once it is gone", b.conf.Namespace, f.secret.Name, req.Proxy)
	case f.secret == nil:
		if err := b.room(ctx, p); err != nil {
			return backends.Instance{}, err
		}
	case f.record.Fixed != p.fixed:
		return backends.Instance{}, backends.Errorf(backends.ErrPermanent, op,
			"proxy %s exists with another port, image or machine type; those need a new uid", req.Proxy)
	}
	m := making{Backend: b, plan: p, found: f, report: report}
	for _, step := range []func(context.Context) error{m.ensureSecret, m.ensurePolicy, m.ensureService, m.ensureBudget, m.ensurePod, m.settle} {
		if err := step(ctx); err != nil {
			return backends.Instance{}, err
		}
	}
	b.lookUpNames(ctx, &m.found)
	return b.instance(m.found), backends.Step(ctx, "done")
}

// making is one Ensure under way; found follows what is there.
type making struct {
	*Backend
	plan   plan
	found  found
	report func(backends.Progress)
}

// step announces a side effect.
func step(ctx context.Context, label string) error {
	if err := backends.Step(ctx, label); err != nil {
		return err
	}
	return ctx.Err()
}

// wrote takes the outcome of a write of one kind of object.
func (m *making) wrote(op, kind string, err error) error {
	if apierrors.IsAlreadyExists(err) {
		// It came since we looked: ours, if an earlier write was stored whose answer was lost.
		return backends.Wrap(backends.ErrTransient, op, err, "%s of proxy %s appeared meanwhile", kind, m.plan.req.Proxy)
	}
	return classify(op, err, "%s %s/%s of proxy %s cannot be written", kind, m.conf.Namespace, backends.InstanceName(m.plan.req.UID), m.plan.req.Proxy)
}

// ensureSecret writes what the proxy is to be. Its generation stays that of before.
func (m *making) ensureSecret(ctx context.Context) (err error) {
	r := m.found.record
	if m.found.secret == nil {
		r = record{Fixed: m.plan.fixed, Expose: m.conf.Expose}
	}
	req := m.plan.req
	r.Desired, r.Config, r.Policy, r.Pool = req.Desired, m.plan.config, len(req.Access.AllowFrom) > 0, req.Pool
	secrets := m.api.CoreV1().Secrets(m.conf.Namespace)
	if m.found.secret == nil {
		m.report(backends.Progress{Step: "creating secret"})
		if err := step(ctx, "secret.create"); err != nil {
			return err
		}
		m.found.secret, err = secrets.Create(ctx, m.secret(m.plan, r), metav1.CreateOptions{})
		m.found.record = r
		return m.wrote("create secret", "secret", err)
	}
	if r == m.found.record && sameData(m.found.secret.Data, secretData(m.plan)) {
		return nil
	}
	m.report(backends.Progress{Step: "updating secret"})
	return m.writeSecret(ctx, "secret.update", r)
}

func sameData(a, b map[string][]byte) bool {
	return maps.EqualFunc(a, b, func(x, y []byte) bool { return string(x) == string(y) })
}

// writeSecret replaces data and record of the Secret as it was read: a change of somebody
// else's in between is a conflict, and the next call reads it.
func (m *making) writeSecret(ctx context.Context, label string, r record) (err error) {
	if err := step(ctx, label); err != nil {
		return err
	}
	next := m.found.secret.DeepCopy()
	next.Labels = m.labelsOf(m.plan.req.Ref, m.plan.req.Pool)
	next.Annotations[annotationRecord] = r.encode()
	next.Data = secretData(m.plan)
	m.found.secret, err = m.api.CoreV1().Secrets(m.conf.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	m.found.record = r
	return m.wrote("update secret", "secret", err)
}

// ensurePolicy has the NetworkPolicy in force before there is a Pod that it is for.
func (m *making) ensurePolicy(ctx context.Context) (err error) {
	have := m.found.policy
	if !m.found.record.Policy {
		if have == nil {
			return nil
		}
		m.found.policy = nil
		return m.removePolicy(ctx, m.plan.req.Ref, have)
	}
	want := m.policy(m.plan, m.found.secret)
	policies := m.api.NetworkingV1().NetworkPolicies(m.conf.Namespace)
	if have == nil {
		if err := step(ctx, "policy.create"); err != nil {
			return err
		}
		m.found.policy, err = policies.Create(ctx, want, metav1.CreateOptions{})
		return m.wrote("create networkpolicy", "networkpolicy", err)
	}
	if apiequality.Semantic.DeepEqual(have.Spec, want.Spec) && reflect.DeepEqual(have.OwnerReferences, want.OwnerReferences) {
		return nil
	}
	if err := step(ctx, "policy.update"); err != nil {
		return err
	}
	want.ResourceVersion, want.UID = have.ResourceVersion, have.UID
	m.found.policy, err = policies.Update(ctx, want, metav1.UpdateOptions{})
	return m.wrote("update networkpolicy", "networkpolicy", err)
}

// ensureService makes the Service, which keeps its port for as long as the proxy lives.
func (m *making) ensureService(ctx context.Context) (err error) {
	if m.found.record.Expose == exposePod {
		return nil
	}
	if have := m.found.service; have != nil {
		if ownedBy(have, m.found.secret) {
			return nil
		}
		// Of a Secret that is gone: the cluster is about to collect it.
		if err := m.removeService(ctx, m.plan.req.Ref, have); err != nil {
			return err
		}
	}
	m.report(backends.Progress{Step: "creating service"})
	if err := step(ctx, "service.create"); err != nil {
		return err
	}
	m.found.service, err = m.api.CoreV1().Services(m.conf.Namespace).Create(ctx, m.service(m.plan, m.found.secret), metav1.CreateOptions{})
	return m.wrote("create service", "service", err)
}

func ownedBy(o metav1.Object, s *corev1.Secret) bool {
	for _, r := range o.GetOwnerReferences() {
		if r.UID == s.UID {
			return true
		}
	}
	return false
}

// settle writes that everything is as asked.
func (m *making) settle(ctx context.Context) error {
	r := m.found.record
	r.Generation, r.Port = m.plan.req.Generation, clientPort(m.plan, m.found.service)
	if r == m.found.record {
		return nil
	}
	return m.writeSecret(ctx, "secret.settle", r)
}
