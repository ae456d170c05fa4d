//go:build real

package kubernetes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/kubernetes/kubetest"
)

func deletedByHand(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	req := request(newRef("p"))
	first := x.mustEnsure(req)
	pod, err := c.API.CoreV1().Pods(x.Namespace).Get(x.ctx(), backends.InstanceName(req.UID), metav1.GetOptions{})
	check(t, err)
	told := x.watch(req.UID)
	x.removePod(t, req.Ref)
	told("PodDeleted")
	x.status(req.Ref, backends.StatusBroken, reasonPodMissing)
	if again := x.mustEnsure(req); again.ID != first.ID || again.Mark != first.Mark || again.Status != backends.StatusRunning {
		t.Errorf("made again: got %+v, want the proxy of %+v", again, first)
	}
	again, err := c.API.CoreV1().Pods(x.Namespace).Get(x.ctx(), pod.Name, metav1.GetOptions{})
	check(t, err)
	if again.UID == pod.UID {
		t.Error("it is the same Pod")
	}
	x.mustDelete(req.Ref)
}

// evicted asks for an eviction as `kubectl drain` does, and as a node does that is short of memory.
func evicted(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	req := request(newRef("p"))
	req.Pool = "" // a budget needs its controller before it lets anybody go
	x.mustEnsure(req)
	told := x.watch(req.UID)
	check(t, c.API.PolicyV1().Evictions(x.Namespace).Evict(x.ctx(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: backends.InstanceName(req.UID), Namespace: x.Namespace}}))
	told("PodDeleted")
	x.mustEnsure(req)
	x.setPod(t, req.Ref, evict)
	told("Evicted")
	if i := x.status(req.Ref, backends.StatusCrashed, "Evicted"); i.Message == "" {
		t.Error("nobody says why it was evicted")
	}
	if i := x.mustEnsure(req); i.Status != backends.StatusRunning {
		t.Errorf("got %+v, want it to run again", i)
	}
	x.mustDelete(req.Ref)
}

// held is a request whose Pod nobody starts but the test.
func held(proxy string) backends.Request {
	req := request(newRef(proxy))
	req.Image = "held"
	return req
}

// started is the status of a Pod that serves.
func started(p *corev1.Pod) {
	p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, "10.244.1.1", []corev1.PodIP{{IP: "10.244.1.1"}, {IP: "fd00::1"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
}

func imagePull(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, func(c *Config) { c.StartTimeout = 3 * time.Second })
	req := held("p")
	go func() {
		for x.objects(t, backends.InstanceName(req.UID))["pod"] == "" {
			time.Sleep(20 * time.Millisecond)
		}
		x.setPod(t, req.Ref, waiting("ImagePullBackOff", nil))
	}()
	_, err := x.ensure(req)
	x.expect(err, backends.ErrPermanent, "ImagePullBackOff", "kubelet's words")
	i := x.status(req.Ref, backends.StatusBroken, "ImagePullBackOff")
	if i.Generation != 0 {
		t.Errorf("generation %d, want none", i.Generation)
	}
	told := x.watch(req.UID)
	x.setPod(t, req.Ref, started) // the registry is back: the kubelet goes on by itself
	told("Serving")
	if i := x.mustEnsure(req); i.Status != backends.StatusRunning || len(i.Addresses) != 1 || i.Addresses[0].String() != "10.244.1.1" {
		t.Errorf("got %+v, want it to run at its IPv4 address", i)
	}
	x.setPod(t, req.Ref, waiting("CrashLoopBackOff", oom))
	told("OOMKilled")
	x.status(req.Ref, backends.StatusCrashed, "OOMKilled")
	_, err = x.ensure(req)
	x.expect(err, backends.ErrPermanent, "OOMKilled", "137")
	x.mustDelete(req.Ref)
}

// unschedulable has a Pod wait for a node that lost its room since it was counted.
func unschedulable(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, func(c *Config) {
		c.NodeSelector = map[string]string{"test": "narrow"}
		c.ScheduleTimeout = 2 * time.Second
	})
	c.AddNode(t, "narrow", "2", "4Gi")
	t.Cleanup(func() { check(t, c.API.CoreV1().Nodes().Delete(x.ctx(), "narrow", metav1.DeleteOptions{})) })
	setNode(x, c, "narrow", func(n *corev1.Node) { n.Labels["test"] = "narrow" })
	x.eventually("the node is known", func() error {
		if o, err := x.b.Offer(x.ctx()); err != nil || o.Capacity.VCPUs != 2 {
			return errNotYet
		}
		return nil
	})
	req := request(newRef("p"))
	_, err := x.b.Ensure(at(x.ctx(), "pod.create", func() {
		setNode(x, c, "narrow", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	}), req, func(backends.Progress) {})
	x.expect(err, backends.ErrNoCapacity, "Unschedulable", "nodes are available")
	told := x.watch(req.UID)
	setNode(x, c, "narrow", func(n *corev1.Node) { n.Spec.Unschedulable = false })
	told("Serving")
	x.mustEnsure(req)
	x.mustDelete(req.Ref)
}

func setNode(x *bench, c *kubetest.Cluster, name string, change func(*corev1.Node)) {
	x.Helper()
	x.eventually("node "+name+" is changed", func() error {
		n, err := c.API.CoreV1().Nodes().Get(x.ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(n)
		_, err = c.API.CoreV1().Nodes().Update(x.ctx(), n, metav1.UpdateOptions{})
		return err
	})
}

func silence(x *bench, c *kubetest.Cluster, name string, ready corev1.ConditionStatus) {
	x.Helper()
	x.eventually("node "+name+" is "+string(ready), func() error {
		n, err := c.API.CoreV1().Nodes().Get(x.ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == corev1.NodeReady {
				n.Status.Conditions[i].Status = ready
			}
		}
		_, err = c.API.CoreV1().Nodes().UpdateStatus(x.ctx(), n, metav1.UpdateOptions{})
		return err
	})
}

// nodeLost silences a node, whose Pod then may or may not serve, and cannot be got rid of.
func nodeLost(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, func(c *Config) { c.NodeSelector = map[string]string{"test": "silent"} })
	c.AddNode(t, "silent", "2", "4Gi")
	t.Cleanup(func() { check(t, c.API.CoreV1().Nodes().Delete(x.ctx(), "silent", metav1.DeleteOptions{})) })
	setNode(x, c, "silent", func(n *corev1.Node) { n.Labels["test"] = "silent" })
	x.eventually("the node is known", func() error {
		if o, err := x.b.Offer(x.ctx()); err != nil || o.Capacity.VCPUs != 2 {
			return errNotYet
		}
		return nil
	})
	req := request(newRef("p"))
	x.mustEnsure(req)
	told := x.watch(req.UID)
	silence(x, c, "silent", corev1.ConditionUnknown)
	told("NodeLost")
	if i := x.status(req.Ref, backends.StatusPaused, "NodeLost"); len(i.Addresses) == 0 {
		t.Error("its address is forgotten, though it may serve")
	}
	_, err := x.ensure(req)
	x.expect(err, backends.ErrTransient, "NodeLost", "silent")
	silence(x, c, "silent", corev1.ConditionTrue)
	told("NodeBack")
	x.status(req.Ref, backends.StatusRunning, "")
	x.mustDelete(req.Ref)
}

func policyRemoved(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	req := request(newRef("p"))
	x.mustEnsure(req)
	told := x.watch(req.UID)
	policies, name := c.API.NetworkingV1().NetworkPolicies(x.Namespace), backends.InstanceName(req.UID)
	check(t, policies.Delete(x.ctx(), name, metav1.DeleteOptions{}))
	told("NetworkPolicyDeleted")
	x.status(req.Ref, backends.StatusBroken, reasonPolicyMissing)
	x.mustEnsure(req)
	p, err := policies.Get(x.ctx(), name, metav1.GetOptions{})
	check(t, err)
	p.Spec.Ingress = nil
	_, err = policies.Update(x.ctx(), p, metav1.UpdateOptions{})
	check(t, err)
	req.Generation = 2
	x.mustEnsure(req)
	if p, err = policies.Get(x.ctx(), name, metav1.GetOptions{}); err != nil || len(p.Spec.Ingress) != 1 {
		t.Errorf("what somebody changed in it stays: %+v (%v)", p, err)
	}
	// A proxy with credentials alone has none: nobody said who may come.
	req.Generation, req.Access.AllowFrom, req.Access.Username, req.Access.Password = 3, nil, "u", "p"
	x.mustEnsure(req)
	if x.objects(t, name)["networkpolicy"] != "" {
		t.Error("the NetworkPolicy outlives the networks")
	}
	x.mustDelete(req.Ref)
}
