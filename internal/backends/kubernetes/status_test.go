package kubernetes

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// waiting is a Pod whose container waits, after an end where there was one.
func waiting(reason string, last *corev1.ContainerStateTerminated) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "kubelet's words"}},
			LastTerminationState: corev1.ContainerState{Terminated: last}, RestartCount: 3}}
		if last != nil {
			p.Status.Phase = corev1.PodRunning
		}
	}
}

func phase(phase corev1.PodPhase, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = phase, reason }
}

func ready(status corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
}

func deleted(p *corev1.Pod) {
	ready(corev1.ConditionTrue)(p)
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
}

var (
	oom   = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
	crash = &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}
)

// TestWhatAPodDoesHasANamedReason also says what Ensure makes of it once its patience has
// ended; "" is to wait, or that it serves.
func TestWhatAPodDoesHasANamedReason(t *testing.T) {
	for name, c := range map[string]struct {
		pod    func(*corev1.Pod)
		node   nodeState
		status backends.Status
		reason string
		class  error
	}{
		"it serves":                     {pod: ready("True"), status: backends.StatusRunning},
		"its listener is not there yet": {pod: ready("False"), status: backends.StatusStarting, reason: "NotReady", class: backends.ErrTransient},
		"it was just made":              {pod: phase("Pending", ""), status: backends.StatusStarting, class: backends.ErrTransient},
		"its container is being made":   {pod: waiting("ContainerCreating", nil), status: backends.StatusStarting, class: backends.ErrTransient},
		"no node has room for it": {pod: func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable", Message: "0/3 nodes"}}
		}, status: backends.StatusBroken, reason: "Unschedulable", class: backends.ErrNoCapacity},
		"its image cannot be pulled":       {pod: waiting("ErrImagePull", nil), status: backends.StatusBroken, reason: "ErrImagePull", class: backends.ErrPermanent},
		"its image still cannot be pulled": {pod: waiting("ImagePullBackOff", nil), status: backends.StatusBroken, reason: "ImagePullBackOff", class: backends.ErrPermanent},
		"its container cannot be made":     {pod: waiting("CreateContainerConfigError", nil), status: backends.StatusBroken, reason: "CreateContainerConfigError", class: backends.ErrPermanent},
		"it ends again and again":          {pod: waiting("CrashLoopBackOff", crash), status: backends.StatusCrashed, reason: "CrashLoopBackOff", class: backends.ErrPermanent},
		"it has too little memory":         {pod: waiting("CrashLoopBackOff", oom), status: backends.StatusCrashed, reason: "OOMKilled", class: backends.ErrPermanent},
		"it had too little memory once": {pod: func(p *corev1.Pod) {
			ready("True")(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: oom}}}
		}, status: backends.StatusRunning, reason: "OOMKilled"},
		"it was killed just now": {pod: func(p *corev1.Pod) {
			ready("False")(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: oom}}}
		}, status: backends.StatusCrashed, reason: "OOMKilled", class: backends.ErrPermanent},
		"it was evicted":                {pod: phase("Failed", "Evicted"), status: backends.StatusCrashed, reason: "Evicted", class: backends.ErrTransient},
		"it failed and nobody says why": {pod: phase("Failed", ""), status: backends.StatusCrashed, reason: "Failed", class: backends.ErrTransient},
		"it ended well, which it never should": {pod: func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}}}
		}, status: backends.StatusCrashed, reason: "Completed", class: backends.ErrTransient},
		"it serves and is being deleted": {pod: deleted, status: backends.StatusBroken, reason: "Terminating", class: backends.ErrTransient},
		"its node does not answer":       {pod: ready("True"), node: nodeState{lost: true}, status: backends.StatusPaused, reason: "NodeLost", class: backends.ErrTransient},
		"the cluster says that its node is lost": {pod: func(p *corev1.Pod) {
			ready("True")(p)
			p.Status.Reason = "NodeLost"
		}, status: backends.StatusPaused, reason: "NodeLost", class: backends.ErrTransient},
		"its phase is not known":                     {pod: phase("Unknown", ""), status: backends.StatusPaused, reason: "NodeLost", class: backends.ErrTransient},
		"it is being deleted on a node that is lost": {pod: deleted, node: nodeState{lost: true}, status: backends.StatusBroken, reason: "NodeLost", class: backends.ErrTransient},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pf-x"}, Spec: corev1.PodSpec{NodeName: "n"}}
			c.pod(p)
			v := judge(p, c.node)
			if v.status != c.status || v.reason != c.reason {
				t.Errorf("got %+v, want %s %q", v, c.status, c.reason)
			}
			if v.reason != "" && v.message == "" && c.node == (nodeState{}) {
				t.Errorf("%s has no message", v.reason)
			}
			if c.class == nil {
				return
			}
			m := making{Backend: &Backend{conf: Config{}.withDefaults()}, found: found{pod: p}}
			_, err := m.verdictError(v, time.Hour)
			if got := backends.Class(err); got != c.class || c.reason != "" && !strings.Contains(err.Error(), c.reason) {
				t.Errorf("in the end: got %v (%v), want %v naming %q", got, err, c.class, c.reason)
			}
		})
	}
}

func TestWhatMayPassIsAwaitedFirst(t *testing.T) {
	m := making{Backend: &Backend{conf: Config{}.withDefaults()}, found: found{pod: &corev1.Pod{}}}
	for reason, age := range map[string]time.Duration{"": 4 * time.Minute, "NotReady": 4 * time.Minute, "Unschedulable": 30 * time.Second,
		"ErrImagePull": 4 * time.Minute, "ImagePullBackOff": 4 * time.Minute, "CreateContainerConfigError": 4 * time.Minute} {
		if wait, err := m.verdictError(verdict{reason: reason}, age); err != nil || wait <= 0 {
			t.Errorf("%q after %v: got %v, %v; want to wait on", reason, age, wait, err)
		}
	}
	for _, reason := range []string{"CrashLoopBackOff", "OOMKilled", "NodeLost", "Terminating"} {
		if _, err := m.verdictError(verdict{reason: reason}, 0); err == nil {
			t.Errorf("%s is awaited, though nothing comes of it", reason)
		}
	}
}

func TestANodeIsLostWhenNobodyHearsOfIt(t *testing.T) {
	node := func(status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	}
	for name, c := range map[string]struct {
		node *corev1.Node
		lost bool
	}{"ready": {node("True"), false}, "not ready, and says so": {node("False"), false}, "silent": {node("Unknown"), true}, "gone": {nil, true}} {
		if got := judgeNode("n", c.node); got.lost != c.lost {
			t.Errorf("%s: got %+v, want lost %v", name, got, c.lost)
		}
	}
}
