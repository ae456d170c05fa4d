package kubernetes

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proxyfleet/internal/backends"
)

// pools lets one call at a time change a pool's budget. The zero value is ready.
type pools struct {
	mu    sync.Mutex // guards locks
	locks map[string]*sync.Mutex
}

// lock waits for the pool's turn and returns what ends it.
func (p *pools) lock(pool string) (unlock func()) {
	p.mu.Lock()
	if p.locks == nil {
		p.locks = map[string]*sync.Mutex{}
	}
	l, ok := p.locks[pool]
	if !ok {
		l = &sync.Mutex{}
		p.locks[pool] = l
	}
	p.mu.Unlock()
	l.Lock()
	return l.Unlock
}

func (b *Backend) poolLabels(pool string) map[string]string {
	l := b.ownLabels()
	l[labelPool] = pool
	return l
}

// budgetName is of this agent's part of a pool.
func (b *Backend) budgetName(pool string) string {
	return "pf-pool-" + digest(b.owner.Installation, b.owner.HostID, pool)
}

// ensureBudget counts the proxy among the members of its pool.
func (m *making) ensureBudget(ctx context.Context) error {
	if m.plan.req.Pool == "" {
		return nil
	}
	defer m.pools.lock(m.plan.req.Pool)()
	return m.balance(ctx, m.plan.req.Pool, "")
}

// budget lets one member at a time be evicted. It has no controller to ask for a scale, so
// it counts (https://kubernetes.io/docs/tasks/run-application/configure-pdb/#arbitrary-controllers-and-selectors).
// Every member's Secret owns it: it goes with the last.
func (b *Backend) budget(pool string, members []corev1.Secret) *policyv1.PodDisruptionBudget {
	running := 0
	meta := metav1.ObjectMeta{Name: b.budgetName(pool), Namespace: b.conf.Namespace, Labels: b.poolLabels(pool)}
	meta.Labels[labelName], meta.Labels[labelManagedBy] = appName, managedBy
	for _, s := range members {
		meta.OwnerReferences = append(meta.OwnerReferences, ownerReference(&s))
		if r, err := decodeRecord(s.Annotations[annotationRecord]); err == nil && r.Desired == backends.Running {
			running++
		}
	}
	return &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(int32(max(running-1, 0)))),
		// One that does not serve anyway keeps no node from being drained.
		UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		Selector:                   &metav1.LabelSelector{MatchLabels: b.poolLabels(pool)},
	}}
}

// balance brings a pool's budget to its members but the one that leaves. The pool is locked.
func (b *Backend) balance(ctx context.Context, pool, leaving string) error {
	const op = "balance pool"
	fail := func(err error) error {
		return classify(op, err, "the PodDisruptionBudget %s/%s of pool %s cannot be kept", b.conf.Namespace, b.budgetName(pool), pool)
	}
	list, err := b.api.CoreV1().Secrets(b.conf.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(b.poolLabels(pool)).String()})
	if err != nil {
		return fail(err)
	}
	var members []corev1.Secret
	for _, s := range list.Items {
		if s.Labels[labelUID] != leaving && s.DeletionTimestamp == nil {
			members = append(members, s)
		}
	}
	have, err := b.api.PolicyV1().PodDisruptionBudgets(b.conf.Namespace).Get(ctx, b.budgetName(pool), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		have = nil
	case err != nil:
		return fail(err)
	case !b.mark(have).Owned(b.owner):
		return backends.Errorf(backends.ErrConflict, op, "the PodDisruptionBudget %s/%s is not ours; it was left as it is", b.conf.Namespace, have.Name)
	}
	return fail(b.writeBudget(ctx, have, b.budget(pool, members)))
}

// writeBudget makes have, nil where there is none, what is wanted; one without members goes.
func (b *Backend) writeBudget(ctx context.Context, have, want *policyv1.PodDisruptionBudget) error {
	budgets := b.api.PolicyV1().PodDisruptionBudgets(b.conf.Namespace)
	switch empty := len(want.OwnerReferences) == 0; {
	case have == nil && empty:
		return nil
	case have == nil:
		if err := step(ctx, "budget.create"); err != nil {
			return err
		}
		_, err := budgets.Create(ctx, want, metav1.CreateOptions{})
		return err
	case empty:
		if err := step(ctx, "budget.delete"); err != nil {
			return err
		}
		err := budgets.Delete(ctx, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	case apiequality.Semantic.DeepEqual(have.Spec, want.Spec) && apiequality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences):
		return nil
	}
	if err := step(ctx, "budget.update"); err != nil {
		return err
	}
	want.ResourceVersion, want.UID = have.ResourceVersion, have.UID
	_, err := budgets.Update(ctx, want, metav1.UpdateOptions{})
	return err
}
