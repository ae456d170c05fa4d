package kubernetes

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proxyfleet/internal/backends"
)

// Keys of a proxy's Secret, which are files in the container.
const (
	confKey      = "squid.conf"
	passwordsKey = "passwd"
)

// secret owns everything else of a proxy.
func (b *Backend) secret(p plan, r record) *corev1.Secret {
	s := &corev1.Secret{Type: corev1.SecretTypeOpaque, ObjectMeta: metav1.ObjectMeta{
		Name: backends.InstanceName(p.req.UID), Namespace: b.conf.Namespace, Labels: b.labelsOf(p.req.Ref, p.req.Pool),
		Annotations: map[string]string{annotationRecord: r.encode()},
	}}
	s.Data = secretData(p)
	return s
}

func secretData(p plan) map[string][]byte {
	// An empty file where no credentials are needed: the volume names both.
	return map[string][]byte{confKey: p.files.Conf, passwordsKey: p.files.Passwords}
}

// owned is the metadata of what the Secret owns.
func (b *Backend) owned(p plan, owner *corev1.Secret) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: backends.InstanceName(p.req.UID), Namespace: b.conf.Namespace, Labels: b.labelsOf(p.req.Ref, p.req.Pool),
		OwnerReferences: []metav1.OwnerReference{ownerReference(owner)}}
}

func ownerReference(s *corev1.Secret) metav1.OwnerReference {
	// Not its controller: a Secret has no scale, and budgets ask controllers for theirs.
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: s.Name, UID: s.UID}
}

// policy lets the client networks, and the prober's Pods, reach the proxy's port, and
// nobody anything else of the Pod. Without networks there is none: a proxy with
// credentials alone is reachable as its namespace is.
func (b *Backend) policy(p plan, owner *corev1.Secret) *networkingv1.NetworkPolicy {
	var from []networkingv1.NetworkPolicyPeer
	for _, n := range p.req.Access.AllowFrom {
		from = append(from, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: n.String()}})
	}
	if len(b.conf.Prober.Labels) > 0 {
		peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: b.conf.Prober.Labels}}
		if b.conf.Prober.Namespace != "" {
			peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: b.conf.Prober.Namespace}}
		}
		from = append(from, peer)
	}
	return &networkingv1.NetworkPolicy{ObjectMeta: b.owned(p, owner), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelUID: p.req.UID}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: from,
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(int32(p.listen)))}}}},
	}}
}

// service exposes the proxy. Traffic goes to the Pod's own node only: otherwise clients would
// come with the address of another node, and their networks would mean nothing.
func (b *Backend) service(p plan, owner *corev1.Secret) *corev1.Service {
	port := corev1.ServicePort{Name: portName, Protocol: corev1.ProtocolTCP, Port: DefaultPort, TargetPort: intstr.FromString(portName)}
	kind := corev1.ServiceTypeNodePort
	if b.conf.Expose == exposeLoadBalancer {
		kind = corev1.ServiceTypeLoadBalancer
		if p.req.Port != 0 {
			port.Port = int32(p.req.Port)
		}
	} else {
		port.NodePort = int32(p.req.Port) // 0: the API server chooses
	}
	meta := b.owned(p, owner)
	meta.Annotations = b.conf.ServiceAnnotations
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{port},
		Selector: map[string]string{labelUID: p.req.UID}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal}}
}
