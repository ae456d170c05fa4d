package kubernetes

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

// unlimited is more than anybody has.
const unlimited = math.MaxInt64 / 4

// headroom is what the quotas of the namespace leave for more proxies, and which quota
// leaves the least of something that s needs: empty where s fits.
func headroom(quotas []*corev1.ResourceQuota, expose string, s space) (left space, exhausted string) {
	left = space{unlimited, unlimited, unlimited}
	for _, q := range quotas {
		if !concerns(q.Spec) {
			continue
		}
		for name, hard := range q.Status.Hard {
			used := q.Status.Used[name]
			rest := func(f func() int64, g func() int64) int64 { return max(f()-g(), 0) }
			short := false
			switch name {
			case corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU:
				left.milliCPU = min(left.milliCPU, rest(hard.MilliValue, used.MilliValue))
				short = left.milliCPU < s.milliCPU
			case corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory:
				left.memory = min(left.memory, rest(hard.Value, used.Value))
				short = left.memory < s.memory
			default:
				if each(name, expose) {
					left.pods = min(left.pods, rest(hard.Value, used.Value))
					short = left.pods < s.pods
				}
			}
			if short {
				exhausted = q.Name + " (" + string(name) + " " + hard.String() + ", used " + used.String() + ")"
			}
		}
	}
	return left, exhausted
}

// concerns reports whether a quota counts Pods like ours: guaranteed, without a deadline and
// without a priority class.
func concerns(q corev1.ResourceQuotaSpec) bool {
	ours := func(s corev1.ResourceQuotaScope) bool {
		return s == corev1.ResourceQuotaScopeNotBestEffort || s == corev1.ResourceQuotaScopeNotTerminating
	}
	for _, s := range q.Scopes {
		if !ours(s) {
			return false
		}
	}
	if q.ScopeSelector != nil {
		for _, e := range q.ScopeSelector.MatchExpressions {
			if !ours(e.ScopeName) {
				return false
			}
		}
	}
	return true
}

// each reports whether a proxy takes one of what is counted.
func each(name corev1.ResourceName, expose string) bool {
	switch name {
	case corev1.ResourcePods, "count/pods", corev1.ResourceSecrets, "count/secrets", "count/networkpolicies.networking.k8s.io":
		return true
	case corev1.ResourceServices, "count/services":
		return expose != exposePod
	case corev1.ResourceServicesNodePorts:
		return expose == exposeNodePort || expose == exposeLoadBalancer
	case corev1.ResourceServicesLoadBalancers:
		return expose == exposeLoadBalancer
	}
	return false
}
