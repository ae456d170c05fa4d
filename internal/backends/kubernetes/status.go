package kubernetes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"proxyfleet/internal/backends"
)

// Reasons of ours, beside those of Kubernetes (Unschedulable, ErrImagePull, ImagePullBackOff,
// CreateContainerConfigError, CrashLoopBackOff, OOMKilled, Evicted, …), which stay as they are.
const (
	reasonHalfMade      = "HalfMade"
	reasonPodMissing    = "PodMissing"
	reasonPolicyMissing = "NetworkPolicyMissing"
	reasonSvcMissing    = "ServiceMissing"
	reasonSecretMissing = "SecretMissing"
	reasonTerminating   = "Terminating"
	reasonNodeLost      = "NodeLost"
	reasonNotReady      = "NotReady"
	reasonFailed        = "Failed"
	// Of a proxy that runs and whose load balancer cannot be told to clients yet.
	reasonNoAddress  = "LoadBalancerPending"
	reasonUnresolved = "HostNameUnresolved"
)

// Reasons of Kubernetes that decide something here.
const (
	reasonUnschedulable = corev1.PodReasonUnschedulable
	reasonCrashLoop     = "CrashLoopBackOff"
	reasonOOMKilled     = "OOMKilled"
	reasonCreating      = "ContainerCreating"
	reasonInitializing  = "PodInitializing"
)

// verdict is what a Pod does now.
type verdict struct {
	status  backends.Status
	reason  string
	message string
}

// judge reads a Pod. node is the one that it is bound to: nil with lost set says that
// there is none of that name.
func judge(p *corev1.Pod, node nodeState) verdict {
	switch {
	case p.DeletionTimestamp != nil && (node.lost || p.Status.Reason == reasonNodeLost):
		return verdict{backends.StatusBroken, reasonNodeLost, node.say(p) + "; it is to end, and nobody there says that it has"}
	case p.DeletionTimestamp != nil:
		return verdict{backends.StatusBroken, reasonTerminating, "the Pod is being deleted"}
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		return ended(p)
	case node.lost || p.Status.Reason == reasonNodeLost || p.Status.Phase == corev1.PodUnknown:
		return verdict{backends.StatusPaused, reasonNodeLost, node.say(p) + "; whether the proxy serves is not known"}
	}
	if c := condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return verdict{backends.StatusBroken, c.Reason, c.Message}
	}
	for _, c := range p.Status.ContainerStatuses {
		if v, ok := judgeContainer(c); ok {
			return v
		}
	}
	ready := condition(p, corev1.PodReady)
	if p.Status.Phase != corev1.PodRunning {
		return verdict{status: backends.StatusStarting}
	}
	if ready == nil || ready.Status != corev1.ConditionTrue {
		v := verdict{status: backends.StatusStarting, reason: reasonNotReady, message: "Squid runs, and its listener takes no connections"}
		if ready != nil && ready.Message != "" {
			v.message += ": " + ready.Message
		}
		return v
	}
	return restarted(p)
}

// ended is a Pod that will not run again.
func ended(p *corev1.Pod) verdict {
	v := verdict{backends.StatusCrashed, p.Status.Reason, p.Status.Message}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.Reason != "" && v.reason == "" {
			v.reason, v.message = t.Reason, said(t)
		}
	}
	if v.reason == "" {
		v.reason = reasonFailed
	}
	if v.message == "" {
		v.message = "the Pod has ended with phase " + string(p.Status.Phase)
	}
	return v
}

// judgeContainer finds what keeps a container from running.
func judgeContainer(c corev1.ContainerStatus) (verdict, bool) {
	switch w, t := c.State.Waiting, c.State.Terminated; {
	case w != nil && w.Reason == reasonCrashLoop:
		v := verdict{backends.StatusCrashed, reasonCrashLoop, fmt.Sprintf("Squid has ended %d times", c.RestartCount)}
		if last := c.LastTerminationState.Terminated; last != nil {
			v.message += ", the last time: " + said(last)
			if last.Reason == reasonOOMKilled {
				v.reason = reasonOOMKilled
			}
		}
		return v, true
	case w != nil && w.Reason != "" && w.Reason != reasonCreating && w.Reason != reasonInitializing:
		return verdict{backends.StatusBroken, w.Reason, w.Message}, true
	case t != nil:
		v := verdict{backends.StatusCrashed, t.Reason, said(t)}
		if v.reason == "" {
			v.reason = reasonFailed
		}
		return v, true
	}
	return verdict{}, false
}

// restarted is a Pod that serves; a reason tells of an end that people should know of.
func restarted(p *corev1.Pod) verdict {
	v := verdict{status: backends.StatusRunning}
	for _, c := range p.Status.ContainerStatuses {
		if last := c.LastTerminationState.Terminated; last != nil && last.Reason == reasonOOMKilled {
			v.reason, v.message = reasonOOMKilled, fmt.Sprintf("it serves again after %d restarts; the last end: %s", c.RestartCount, said(last))
		}
	}
	return v
}

func said(t *corev1.ContainerStateTerminated) string {
	s := fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode)
	if t.Message != "" {
		s += ", " + t.Message
	}
	return s
}

func condition(p *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i, c := range p.Status.Conditions {
		if c.Type == of {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// nodeState is what is known of a Pod's node.
type nodeState struct {
	lost    bool
	message string
}

func (n nodeState) say(p *corev1.Pod) string {
	switch {
	case n.message != "":
		return n.message
	case p.Status.Message != "":
		return p.Status.Message
	}
	return "node " + p.Spec.NodeName + " does not answer"
}

// judgeNode reads a node; nil is one that is not there any more.
func judgeNode(name string, n *corev1.Node) nodeState {
	if n == nil {
		return nodeState{true, "node " + name + " is gone"}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return nodeState{true, "node " + name + " does not answer since " + c.LastTransitionTime.UTC().Format("15:04:05Z") + ": " + c.Message}
		}
	}
	return nodeState{}
}
