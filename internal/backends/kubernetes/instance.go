package kubernetes

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// instance is what was found, as the contract has it. There is a Secret or a Pod, and the
// record can be read; names of its load balancer were looked up.
func (b *Backend) instance(f found) backends.Instance {
	if f.secret == nil {
		return backends.Instance{Mark: b.mark(f.pod), ID: b.id(f.pod), Status: backends.StatusBroken, Reason: reasonSecretMissing,
			Message: "somebody removed the proxy's Secret", Port: DefaultPort}
	}
	i := backends.Instance{Mark: b.mark(f.secret), ID: b.id(f.secret), Generation: f.record.Generation, Port: f.record.Port}
	broken := func(reason, message string) backends.Instance {
		i.Status, i.Reason, i.Message = backends.StatusBroken, reason, message
		return i
	}
	switch {
	case f.secret.DeletionTimestamp != nil:
		return broken(reasonTerminating, "the proxy's Secret is being deleted, and everything with it")
	case f.record.Generation == 0:
		if f.pod != nil {
			if v := judge(f.pod, b.seen.node(f.pod)); v.reason != "" {
				return broken(v.reason, v.message)
			}
		}
		return broken(reasonHalfMade, "making the proxy has not come to its end")
	case f.record.Policy && f.policy == nil:
		return broken(reasonPolicyMissing, "somebody removed the proxy's NetworkPolicy")
	case f.record.Expose != exposePod && f.service == nil:
		return broken(reasonSvcMissing, "somebody removed the proxy's Service")
	case f.pod == nil && f.record.Desired == backends.Stopped:
		i.Status = backends.StatusStopped
		return i
	case f.pod == nil:
		return broken(reasonPodMissing, "somebody removed the Pod")
	}
	v := judge(f.pod, b.seen.node(f.pod))
	i.Status, i.Reason, i.Message = v.status, v.reason, v.message
	r := b.reach(f)
	i.Addresses, i.AddressUnread = r.addresses, r.unread
	if i.Reason == "" {
		i.Reason, i.Message = r.reason, r.message
	}
	return i
}

// id is for people, who find the proxy by it.
func (b *Backend) id(o metav1.Object) string {
	return o.GetNamespace() + "/" + o.GetName() + "/" + string(o.GetUID())
}

// clientPort is the port that clients use, 0 where the Service has none yet.
func clientPort(p plan, s *corev1.Service) int {
	switch {
	case s == nil:
		return p.listen
	case len(s.Spec.Ports) == 0:
		return 0
	case s.Spec.Type == corev1.ServiceTypeNodePort:
		return int(s.Spec.Ports[0].NodePort)
	}
	return int(s.Spec.Ports[0].Port)
}
