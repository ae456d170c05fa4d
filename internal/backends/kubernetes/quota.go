package kubernetes

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// unlimited is more than anybody has.
const unlimited = math.MaxInt64 / 4

// headroom is what the quotas of the namespace leave for more proxies, and which quota
// leaves the least of something that s needs: empty where s fits.
func headroom(quotas []*corev1.ResourceQuota, conf Config, s space) (left space, exhausted string) {
	left = space{unlimited, unlimited, unlimited}
	for _, q := range quotas {
		if !concerns(q.Spec, conf.PriorityClass) {
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
				if each(name, conf.Expose) {
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

// concerns reports whether a quota counts Pods like ours: guaranteed, without a deadline, and
// of a priority class, or none.
func concerns(q corev1.ResourceQuotaSpec, class string) bool {
	for _, s := range q.Scopes {
		if !scoped(corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists}, class) {
			return false
		}
	}
	return q.ScopeSelector == nil || !slices.ContainsFunc(q.ScopeSelector.MatchExpressions, func(e corev1.ScopedResourceSelectorRequirement) bool { return !scoped(e, class) })
}

// scoped reports whether one expression of a quota selects Pods like ours.
// https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
func scoped(e corev1.ScopedResourceSelectorRequirement, class string) bool {
	if e.ScopeName != corev1.ResourceQuotaScopePriorityClass {
		return e.ScopeName == corev1.ResourceQuotaScopeNotBestEffort || e.ScopeName == corev1.ResourceQuotaScopeNotTerminating
	}
	switch e.Operator {
	case corev1.ScopeSelectorOpIn:
		return class != "" && slices.Contains(e.Values, class)
	case corev1.ScopeSelectorOpNotIn:
		return !slices.Contains(e.Values, class)
	case corev1.ScopeSelectorOpDoesNotExist:
		return class == ""
	}
	return class != ""
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
