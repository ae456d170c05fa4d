package kubernetes

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"proxyfleet/internal/backends"
)

const mib = 1 << 20

// requests are what a Pod of a shape asks for.
func requests(t backends.MachineType) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(t.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(t.MemoryMiB)*mib, resource.BinarySI),
	}
}

// space is an amount of what proxies take.
type space struct {
	milliCPU int64
	memory   int64 // bytes
	pods     int64
}

func (s space) minus(o space) space {
	return space{s.milliCPU - o.milliCPU, s.memory - o.memory, s.pods - o.pods}
}

func (s space) plus(o space) space {
	return space{s.milliCPU + o.milliCPU, s.memory + o.memory, s.pods + o.pods}
}

func (s space) holds(o space) bool {
	return s.milliCPU >= o.milliCPU && s.memory >= o.memory && s.pods >= o.pods
}

func shapeSpace(t backends.MachineType) space {
	return space{int64(t.VCPUs) * 1000, int64(t.MemoryMiB) * mib, 1}
}

func podSpace(p *corev1.Pod) space {
	r := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	return space{r.Cpu().MilliValue(), r.Memory().Value(), 1}
}

// rules are what makes a Pod and a node ours to count.
type rules struct {
	selector    labels.Selector // of nodes
	tolerations []corev1.Toleration
	own         labels.Selector // of Pods
}

// schedulable reports whether a Pod of ours can go to a node, and serve there.
func (r rules) schedulable(n *corev1.Node) bool {
	if n.DeletionTimestamp != nil || !r.selector.Matches(labels.Set(n.Labels)) {
		return false
	}
	taints := n.Spec.Taints
	if n.Spec.Unschedulable { // the taint follows a moment later
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	forbids := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	if _, refused := scheduling.FindMatchingUntoleratedTaint(klog.Background(), taints, r.tolerations, forbids, false); refused {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// cluster is what nodes have and Pods take.
type cluster struct {
	free    map[string]space // of each schedulable node, less everybody's Pods
	ours    space            // of all our Pods, wherever they are
	pending space            // of our Pods that have no node yet
}

func survey(r rules, nodes []*corev1.Node, pods []*corev1.Pod) cluster {
	c := cluster{free: map[string]space{}}
	for _, n := range nodes {
		if r.schedulable(n) {
			a := n.Status.Allocatable
			c.free[n.Name] = space{a.Cpu().MilliValue(), a.Memory().Value(), a.Pods().Value()}
		}
	}
	for _, p := range pods {
		s := podSpace(p)
		if free, ok := c.free[p.Spec.NodeName]; ok {
			c.free[p.Spec.NodeName] = free.minus(s)
		}
		if r.own.Matches(labels.Set(p.Labels)) {
			c.ours = c.ours.plus(s)
			if p.Spec.NodeName == "" {
				c.pending = c.pending.plus(s)
			}
		}
	}
	return c
}

// fits reports whether one node has room for s.
func (c cluster) fits(s space) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c.free)), func(free space) bool { return free.holds(s) })
}

// total is the room for proxies: what is free on each node, in whole processors, and what
// ours take already. Those that wait for a node will take of what is free.
func (c cluster) total() space {
	var t space
	for _, f := range c.free {
		t = t.plus(space{max(f.milliCPU, 0) / 1000 * 1000, max(f.memory, 0), max(f.pods, 0)})
	}
	return t.plus(c.ours).minus(c.pending)
}
