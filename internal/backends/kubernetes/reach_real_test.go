//go:build real

package kubernetes

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/kubernetes/kubetest"
)

func nodePorts(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, func(c *Config) { c.Expose = exposeNodePort })
	req := request(newRef("p"))
	first := x.mustEnsure(req)
	if first.Port < 30000 || first.Port > 32767 || len(first.Addresses) != 1 || first.Addresses[0].String() != "192.0.2.1" {
		t.Errorf("got %v port %d, want the node's address and a node port", first.Addresses, first.Port)
	}
	req.Desired, req.Generation = backends.Stopped, 2
	x.mustEnsure(req)
	req.Desired, req.Generation = backends.Running, 3
	if again := x.mustEnsure(req); again.Port != first.Port {
		t.Errorf("after a stop the port is %d, want %d", again.Port, first.Port)
	}
	wish, taken := request(newRef("q")), request(newRef("r"))
	wish.Port = first.Port + 1
	if wish.Port > 32767 {
		wish.Port = first.Port - 1
	}
	taken.Port = wish.Port
	if i := x.mustEnsure(wish); i.Port != wish.Port {
		t.Errorf("got port %d, want %d", i.Port, wish.Port)
	}
	_, err := x.ensure(taken)
	x.expect(err, backends.ErrNoCapacity, "another Service")
	odd := request(newRef("s"))
	odd.Port = 3128
	_, err = x.ensure(odd)
	x.expect(err, backends.ErrPermanent, "valid ports")
	for _, r := range []backends.Request{req, wish, taken, odd} {
		x.mustDelete(r.Ref)
	}
}

func loadBalancer(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, func(c *Config) {
		c.Expose, c.ServiceAnnotations = exposeLoadBalancer, map[string]string{"example.org/internal": "true"}
	})
	req := request(newRef("p"))
	req.Port = 8080
	z := &zone{names: map[string][]string{}}
	x.b.names.resolver = z
	if i := x.mustEnsure(req); i.Port != 8080 || len(i.Addresses) != 0 || i.Status != backends.StatusRunning || i.Reason != reasonNoAddress {
		t.Errorf("without a load balancer yet: got %+v, want port 8080 and no address", i)
	}
	told := x.watch(req.UID)
	services := c.API.CoreV1().Services(x.Namespace)
	s, err := services.Get(x.ctx(), backends.InstanceName(req.UID), metav1.GetOptions{})
	check(t, err)
	if s.Annotations["example.org/internal"] != "true" || s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		t.Errorf("the Service is %+v", s)
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.7"}}
	_, err = services.UpdateStatus(x.ctx(), s, metav1.UpdateOptions{})
	check(t, err)
	told("ServiceChanged")
	if i := x.status(req.Ref, backends.StatusRunning, ""); len(i.Addresses) != 1 || i.Addresses[0].String() != "198.51.100.7" {
		t.Errorf("got %v, want the load balancer's address", i.Addresses)
	}
	s, err = services.Get(x.ctx(), s.Name, metav1.GetOptions{})
	check(t, err)
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb-1.example.org"}}
	_, err = services.UpdateStatus(x.ctx(), s, metav1.UpdateOptions{})
	check(t, err)
	told("ServiceChanged")
	x.status(req.Ref, backends.StatusRunning, reasonUnresolved)
	z.set("lb-1.example.org.", "198.51.100.8")
	if i := x.status(req.Ref, backends.StatusRunning, ""); len(i.Addresses) != 1 || i.Addresses[0].String() != "198.51.100.8" {
		t.Errorf("got %v, want what the load balancer's name resolves to", i.Addresses)
	}
	if l, err := x.b.List(x.ctx()); err != nil || len(l.Instances) != 1 || len(l.Instances[0].Addresses) != 1 {
		t.Errorf("got %+v (%v), want the address in a listing as well", l, err)
	}
	check(t, services.Delete(x.ctx(), s.Name, metav1.DeleteOptions{}))
	told("ServiceDeleted")
	x.status(req.Ref, backends.StatusBroken, reasonSvcMissing)
	x.mustEnsure(req)
	x.mustDelete(req.Ref)
}

// capacity waits until the offer is as wanted, by what watches bring.
func (x *bench) capacity(what string, want func(backends.Capacity) bool) backends.Capacity {
	x.Helper()
	var got backends.Capacity
	x.eventually(what, func() error {
		o, err := x.b.Offer(x.ctx())
		if got = o.Capacity; err == nil && !want(got) {
			err = fmt.Errorf("the offer is %+v", got)
		}
		return err
	})
	return got
}

func offerFollows(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, func(c *Config) { c.NodeSelector = map[string]string{"test": "offer"} })
	x.capacity("no node has the label", func(got backends.Capacity) bool { return got.VCPUs == 0 && got.MemoryMiB == 0 && got.Slots == 0 })
	_, err := x.ensure(request(newRef("none")))
	x.expect(err, backends.ErrNoCapacity, "none of the 0 nodes")
	c.AddNode(t, "offered", "4", "8Gi")
	t.Cleanup(func() { check(t, c.API.CoreV1().Nodes().Delete(x.ctx(), "offered", metav1.DeleteOptions{})) })
	setNode(x, c, "offered", func(n *corev1.Node) { n.Labels["test"] = "offer" })
	x.capacity("a node came", func(got backends.Capacity) bool {
		return got == backends.Capacity{VCPUs: 4, MemoryMiB: 8192, DiskGiB: -1, Slots: 110}
	})
	foreign := foreignPod(metav1.ObjectMeta{Name: "theirs", Namespace: x.Namespace})
	foreign.Spec.NodeName = "offered"
	foreign.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("500m")
	_, err = c.API.CoreV1().Pods(x.Namespace).Create(x.ctx(), foreign, metav1.CreateOptions{})
	check(t, err)
	x.capacity("somebody else's Pod came", func(got backends.Capacity) bool {
		return got == backends.Capacity{VCPUs: 3, MemoryMiB: 8128, DiskGiB: -1, Slots: 109}
	})
	req := request(newRef("p"))
	x.mustEnsure(req)
	if got := x.capacity("a proxy came", func(got backends.Capacity) bool { return got.VCPUs == 3 }); got.MemoryMiB != 8128 || got.Slots != 109 {
		t.Errorf("our own proxy takes of the whole: %+v", got)
	}
	setNode(x, c, "offered", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	x.capacity("the node was cordoned", func(got backends.Capacity) bool {
		return got == backends.Capacity{VCPUs: 1, MemoryMiB: 128, DiskGiB: -1, Slots: 1}
	})
	x.mustDelete(req.Ref)
	check(t, c.API.CoreV1().Pods(x.Namespace).Delete(x.ctx(), "theirs", metav1.DeleteOptions{}))
}

// taintsTolerated has a node that only those may use who tolerate its taint.
func taintsTolerated(t *testing.T, c *kubetest.Cluster) {
	here := map[string]string{"test": "taint"}
	x := open(t, c, func(c *Config) {
		c.NodeSelector, c.Tolerations = here, []Toleration{{Key: "example.org/egress", Value: "only", Effect: "NoSchedule"}}
	})
	strict := open(t, c, func(c *Config) { c.NodeSelector = here })
	c.AddNode(t, "tainted", "4", "8Gi")
	t.Cleanup(func() { check(t, c.API.CoreV1().Nodes().Delete(x.ctx(), "tainted", metav1.DeleteOptions{})) })
	setNode(x, c, "tainted", func(n *corev1.Node) {
		n.Labels["test"], n.Spec.Taints = "taint", []corev1.Taint{{Key: "example.org/egress", Value: "only", Effect: corev1.TaintEffectNoSchedule}}
	})
	x.capacity("the taint is tolerated", func(got backends.Capacity) bool { return got.VCPUs == 4 && got.Slots == 110 })
	strict.capacity("the taint is not tolerated", func(got backends.Capacity) bool { return got.VCPUs == 0 && got.Slots == 0 })
	if h := strict.checkOf("nodes"); h.Code == backends.CheckOK || !strings.Contains(h.Message, "taint") {
		t.Errorf("the check says %+v, want that no node may be used", h)
	}
	_, err := strict.ensure(request(newRef("none")))
	strict.expect(err, backends.ErrNoCapacity, "none of the 0 nodes")
	req := request(newRef("p"))
	x.mustEnsure(req)
	p, err := c.API.CoreV1().Pods(x.Namespace).Get(x.ctx(), backends.InstanceName(req.UID), metav1.GetOptions{})
	check(t, err)
	if p.Spec.NodeName != "tainted" {
		t.Errorf("it runs on %s", p.Spec.NodeName)
	}
	x.mustDelete(req.Ref)
}

// priority gives Pods the cluster's priority, or names the class that is missing.
func priority(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, func(c *Config) { c.PriorityClass, c.ImagePullPolicy = "crawling", "Never" })
	req := request(newRef("p"))
	_, err := x.ensure(req)
	x.expect(err, backends.ErrHostFault, "no PriorityClass with name crawling", "mend the agent's configuration")
	if h := x.checkOf("image/squid"); h.Code == backends.CheckOK || !strings.Contains(h.Message, "crawling") {
		t.Errorf("the check says %+v, want that it names the class", h)
	}
	addPriority(x, c, "crawling")
	x.mustEnsure(req)
	p, err := c.API.CoreV1().Pods(x.Namespace).Get(x.ctx(), backends.InstanceName(req.UID), metav1.GetOptions{})
	check(t, err)
	if p.Spec.Priority == nil || *p.Spec.Priority != 1000 || p.Spec.Containers[0].ImagePullPolicy != corev1.PullNever {
		t.Errorf("priority %v, pull policy %s", p.Spec.Priority, p.Spec.Containers[0].ImagePullPolicy)
	}
	x.mustDelete(req.Ref)
}

// addPriority makes a class of the cluster that ends with the test.
func addPriority(x *bench, c *kubetest.Cluster, name string) {
	x.Helper()
	classes := c.API.SchedulingV1().PriorityClasses()
	_, err := classes.Create(x.ctx(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 1000}, metav1.CreateOptions{})
	check(x.T, err)
	x.Cleanup(func() { check(x.T, classes.Delete(x.ctx(), name, metav1.DeleteOptions{})) })
}

func quotaBoundsOffer(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	req := request(newRef("p"))
	x.mustEnsure(req)
	setQuota(x, c, amount("requests.cpu", "3"), amount("requests.cpu", "1"))
	x.capacity("a quota came", func(got backends.Capacity) bool { return got.VCPUs == 3 && got.MemoryMiB > 8192 })
	if h := x.checkOf("nodes"); h.Details["quotaMilliCPU"] != "2000" {
		t.Errorf("the check says %+v, want 2000 thousandths of a processor left", h)
	}
	x.mustDelete(req.Ref)
}

// budgetFollows makes and deletes members of a pool at the same time.
func budgetFollows(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	var reqs []backends.Request
	for i := range 5 {
		reqs = append(reqs, request(newRef(fmt.Sprintf("crawl-%d", i))))
	}
	each := func(reqs []backends.Request, do func(backends.Request) error) {
		var wg sync.WaitGroup
		for _, req := range reqs {
			wg.Go(func() {
				if err := do(req); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	atLeast := func(want int32, owners int) {
		t.Helper()
		b, err := c.API.PolicyV1().PodDisruptionBudgets(x.Namespace).Get(x.ctx(), x.b.budgetName("pool"), metav1.GetOptions{})
		check(t, err)
		if b.Spec.MinAvailable.IntVal != want || len(b.OwnerReferences) != owners {
			t.Errorf("the budget keeps %v of %d members, want %d of %d", b.Spec.MinAvailable, len(b.OwnerReferences), want, owners)
		}
	}
	each(reqs, func(r backends.Request) error { _, err := x.ensure(r); return err })
	atLeast(4, 5)
	stopped := reqs[0]
	stopped.Desired, stopped.Generation = backends.Stopped, 2
	x.mustEnsure(stopped)
	atLeast(3, 5)
	each(reqs[:3], func(r backends.Request) error { return x.b.Delete(x.ctx(), r.Ref) })
	atLeast(1, 2)
	each(reqs[3:], func(r backends.Request) error { return x.b.Delete(x.ctx(), r.Ref) })
	budgets, err := c.API.PolicyV1().PodDisruptionBudgets(x.Namespace).List(x.ctx(), metav1.ListOptions{})
	check(t, err)
	if len(budgets.Items) > 0 {
		t.Errorf("a budget is left: %+v", budgets.Items)
	}
}
