package kubetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// schedule binds Pods to nodes until t ends: to the first that has room for what they
// request, or to none, and then the Pod says so as with a real scheduler. It also ends those
// that are deleted.
func (c *Cluster) schedule(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			c.scheduleOnce(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (c *Cluster) scheduleOnce(ctx context.Context) {
	all, err := c.API.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return // also while the API server is away
	}
	nodes, err := c.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	free := map[string]corev1.ResourceList{}
	for _, n := range nodes.Items {
		if !n.Spec.Unschedulable {
			free[n.Name] = n.Status.Allocatable.DeepCopy()
		}
	}
	for _, p := range all.Items {
		if room, ok := free[p.Spec.NodeName]; ok && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			take(room, resourcehelper.PodRequests(&p, resourcehelper.PodResourcesOptions{}))
		}
	}
	for _, p := range all.Items {
		switch {
		case p.DeletionTimestamp != nil:
			c.end(ctx, &p)
		case p.Spec.NodeName == "":
			c.bind(ctx, &p, nodes.Items, free)
		}
	}
}

// end lets a Pod go that is to be deleted, as its kubelet would: at once, for nothing runs.
func (c *Cluster) end(ctx context.Context, p *corev1.Pod) {
	_ = c.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID}})
}

func (c *Cluster) bind(ctx context.Context, p *corev1.Pod, nodes []corev1.Node, free map[string]corev1.ResourceList) {
	needs := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	for _, n := range nodes {
		room, ok := free[n.Name]
		if !ok || !labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels)) || !tolerates(p, n.Spec.Taints) || !holds(room, needs) {
			continue
		}
		take(room, needs)
		_ = c.API.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID},
			Target: corev1.ObjectReference{Kind: "Node", Name: n.Name}}, metav1.CreateOptions{}) // else the next round does
		return
	}
	for _, have := range p.Status.Conditions {
		if have.Type == corev1.PodScheduled && have.Reason == corev1.PodReasonUnschedulable {
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable, Message: fmt.Sprintf("0/%d nodes are available: insufficient cpu or memory.", len(nodes)),
		LastTransitionTime: metav1.Now()})
	_, _ = c.API.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
}

func tolerates(p *corev1.Pod, taints []corev1.Taint) bool {
	forbids := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	_, refused := scheduling.FindMatchingUntoleratedTaint(klog.Background(), taints, p.Spec.Tolerations, forbids, false)
	return !refused
}

func holds(room, needs corev1.ResourceList) bool {
	return room.Cpu().Cmp(*needs.Cpu()) >= 0 && room.Memory().Cmp(*needs.Memory()) >= 0
}

func take(room, needs corev1.ResourceList) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		q := room[name]
		q.Sub(needs[name])
		room[name] = q
	}
}
