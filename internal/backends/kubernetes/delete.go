package kubernetes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// endMargin is how long the API server may take to let go of an object beyond the Pod's own
// grace period.
const endMargin = time.Minute

// Delete implements [backends.Backend]. Its steps are "pod.delete", "service.delete",
// "policy.delete", "budget.update" or "budget.delete", "secret.delete" and "done". The
// Secret, with the mark and the record, goes last.
func (b *Backend) Delete(ctx context.Context, ref backends.Ref) error {
	if err := ref.Validate(); err != nil {
		return err
	}
	f, err := b.look(ctx, "delete", ref)
	if err != nil {
		return err
	}
	if f.pod != nil {
		if err := b.removePod(ctx, ref, f.pod); err != nil {
			return err
		}
	}
	if f.service != nil {
		if err := b.removeService(ctx, ref, f.service); err != nil {
			return err
		}
	}
	if f.policy != nil {
		if err := b.removePolicy(ctx, ref, f.policy); err != nil {
			return err
		}
	}
	if f.secret != nil {
		if err := b.removeSecret(ctx, ref, f.secret); err != nil {
			return err
		}
	}
	return backends.Step(ctx, "done")
}

func (b *Backend) removePod(ctx context.Context, ref backends.Ref, p *corev1.Pod) error {
	pods := b.api.CoreV1().Pods(b.conf.Namespace)
	return remove(ctx, b, ref, "pod", p, pods.Delete, pods.Get)
}

func (b *Backend) removeService(ctx context.Context, ref backends.Ref, s *corev1.Service) error {
	services := b.api.CoreV1().Services(b.conf.Namespace)
	return remove(ctx, b, ref, "service", s, services.Delete, services.Get)
}

func (b *Backend) removePolicy(ctx context.Context, ref backends.Ref, p *networkingv1.NetworkPolicy) error {
	policies := b.api.NetworkingV1().NetworkPolicies(b.conf.Namespace)
	return remove(ctx, b, ref, "policy", p, policies.Delete, policies.Get)
}

// removeSecret takes the proxy out of its pool's budget first. Until the Secret is gone no
// other member may count it in again.
func (b *Backend) removeSecret(ctx context.Context, ref backends.Ref, s *corev1.Secret) error {
	if pool := s.Labels[labelPool]; pool != "" {
		defer b.pools.lock(pool)()
		if err := b.balance(ctx, pool, ref.UID); err != nil {
			return err
		}
	}
	secrets := b.api.CoreV1().Secrets(b.conf.Namespace)
	return remove(ctx, b, ref, "secret", s, secrets.Delete, secrets.Get)
}

// remove deletes exactly the object that was read, and waits until it is gone. One that is
// being deleted already is only waited for.
func remove[O metav1.Object](ctx context.Context, b *Backend, ref backends.Ref, kind string, o O,
	del func(context.Context, string, metav1.DeleteOptions) error, get func(context.Context, string, metav1.GetOptions) (O, error)) error {
	op := "delete " + kind
	if o.GetDeletionTimestamp() == nil {
		if err := step(ctx, kind+".delete"); err != nil {
			return err
		}
		uid := o.GetUID()
		err := del(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			// A conflict is a namesake that came meanwhile: the next call looks whose it is.
			return classify(op, err, "%s %s/%s of proxy %s cannot be removed", kind, b.conf.Namespace, o.GetName(), ref.Proxy)
		}
	}
	events, done := b.seen.follow(ref.UID)
	defer done()
	for {
		now, err := get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && !namespaceMissing(err):
			return nil
		case err != nil:
			return classify(op, err, "whether %s %s/%s of proxy %s is gone cannot be read", kind, b.conf.Namespace, o.GetName(), ref.Proxy)
		case now.GetUID() != o.GetUID():
			return nil
		}
		wait, err := b.endsIn(ref, kind, now)
		if err != nil {
			return err
		}
		if err := pause(ctx, events, wait); err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "%s %s/%s of proxy %s was not awaited to its end", kind, b.conf.Namespace, o.GetName(), ref.Proxy)
		}
	}
}

// endsIn is how much longer an object may take to go, or what keeps it.
func (b *Backend) endsIn(ref backends.Ref, kind string, o metav1.Object) (time.Duration, error) {
	var by string
	var node nodeState
	pod, isPod := o.(*corev1.Pod)
	if isPod {
		node = b.seen.node(pod)
	}
	switch {
	case isPod && (node.lost || pod.Status.Reason == reasonNodeLost):
		by = reasonNodeLost + ": " + node.say(pod) + "; it goes once the node answers or is removed from the cluster"
	case len(o.GetFinalizers()) > 0:
		by = "it waits for finalizers"
		for _, f := range o.GetFinalizers() {
			by += " " + f
		}
	default:
		by = "the cluster does not let go of it"
	}
	due := time.Now()
	if t := o.GetDeletionTimestamp(); t != nil {
		due = t.Time // of a Pod: with its grace period
	}
	if wait := time.Until(due.Add(endMargin)); wait > 0 && !node.lost {
		return wait, nil
	}
	return 0, backends.Errorf(backends.ErrTransient, "delete "+kind, "%s %s/%s of proxy %s is to be deleted and is still there: %s",
		kind, b.conf.Namespace, o.GetName(), ref.Proxy, by)
}
