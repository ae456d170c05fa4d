package kubernetes

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// ensurePod brings the Pod to what is asked, and waits until it serves or is gone.
func (m *making) ensurePod(ctx context.Context) (err error) {
	ref := m.plan.req.Ref
	if have := m.found.pod; have != nil && (m.plan.req.Desired == backends.Stopped || m.spent(have)) {
		m.report(backends.Progress{Step: "stopping pod"})
		if err := m.removePod(ctx, ref, have); err != nil {
			return err
		}
		m.found.pod = nil
	}
	if m.plan.req.Desired == backends.Stopped {
		return nil
	}
	if m.found.pod == nil {
		m.report(backends.Progress{Step: "creating pod"})
		if err := step(ctx, "pod.create"); err != nil {
			return err
		}
		m.found.pod, err = m.api.CoreV1().Pods(m.conf.Namespace).Create(ctx, m.pod(m.plan, m.found.secret), metav1.CreateOptions{})
		if err := m.wrote("create pod", "pod", err); err != nil {
			return err
		}
	}
	return m.awaitPod(ctx)
}

// spent reports whether a Pod must give way to a new one: it is ending or has ended, has
// other rules than asked, or belongs to a Secret that is gone.
func (m *making) spent(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded ||
		p.Annotations[annotationConfig] != m.plan.config || !ownedBy(p, m.found.secret)
}

// awaitPod waits until the Pod serves, or until what keeps it from that has lasted too long.
func (m *making) awaitPod(ctx context.Context) error {
	const op = "start pod"
	ref := m.plan.req.Ref
	events, done := m.seen.follow(ref.UID)
	defer done()
	for {
		pod, err := m.lookPod(ctx, op, ref)
		if err != nil {
			return err
		}
		if pod == nil || pod.UID != m.found.pod.UID {
			return backends.Errorf(backends.ErrTransient, op, "the Pod of proxy %s was removed while it started", ref.Proxy)
		}
		m.found.pod = pod
		v := judge(pod, m.seen.node(pod))
		if v.status == backends.StatusRunning {
			return nil
		}
		wait, err := m.verdictError(v, time.Since(pod.CreationTimestamp.Time))
		if err != nil {
			return err
		}
		m.report(backends.Progress{Step: awaiting(pod, v)})
		if err := pause(ctx, events, wait); err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "proxy %s was not awaited to its start", ref.Proxy)
		}
	}
}

// pause waits for an event, for as long as d at most.
func pause(ctx context.Context, events <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-events:
	case <-timer.C:
	}
	return nil
}

// lasting are the reasons for which nothing on this host changes by waiting longer: an image
// that is not there, a container that cannot be made, a proxy that ends again and again.
var lasting = []string{reasonCrashLoop, reasonOOMKilled, "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}

// verdictError is the error for a Pod of some age that does not serve, or how much longer
// to wait for it.
func (m *making) verdictError(v verdict, age time.Duration) (wait time.Duration, err error) {
	patience, class := m.conf.StartTimeout, backends.ErrTransient
	switch {
	case v.reason == reasonUnschedulable:
		patience, class = m.conf.ScheduleTimeout, backends.ErrNoCapacity
	case v.reason == reasonCrashLoop, v.reason == reasonOOMKilled:
		patience, class = 0, backends.ErrPermanent
	case slices.Contains(lasting, v.reason):
		class = backends.ErrPermanent
	case v.reason == reasonNodeLost, v.reason == reasonTerminating:
		patience = 0
	case m.found.pod.Status.Phase == corev1.PodFailed, m.found.pod.Status.Phase == corev1.PodSucceeded:
		patience = 0
	}
	if age < patience {
		return patience - age, nil
	}
	reason := v.reason
	if reason == "" {
		reason = reasonNotReady
	}
	return 0, backends.Errorf(class, "start pod", "%s: the Pod %s/%s of proxy %s does not serve: %s", reason,
		m.conf.Namespace, m.found.pod.Name, m.plan.req.Proxy, v.message)
}

// awaiting is what a Pod waits for, for people.
func awaiting(p *corev1.Pod, v verdict) string {
	switch {
	case v.reason != "":
		return "waiting: " + v.reason
	case p.Spec.NodeName == "":
		return "waiting for a node"
	case p.Status.Phase == corev1.PodRunning:
		return "waiting for squid"
	}
	return "starting pod"
}
