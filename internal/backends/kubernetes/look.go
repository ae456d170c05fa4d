package kubernetes

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// found is everything that stands under a uid's name now, all of it ours. What is not there
// is nil.
type found struct {
	secret  *corev1.Secret
	pod     *corev1.Pod
	service *corev1.Service
	policy  *networkingv1.NetworkPolicy
	record  record // of the secret
	unread  error  // why the record cannot be read
	// names are those of the load balancer, once they were looked up.
	names map[string]resolved
}

// look reads a uid's objects. One that is not ours makes all of them a Conflict.
func (b *Backend) look(ctx context.Context, op string, ref backends.Ref) (f found, err error) {
	name, ns := backends.InstanceName(ref.UID), b.conf.Namespace
	if f.secret, err = own(b, op, ref, "secret", func() (*corev1.Secret, error) {
		return b.api.CoreV1().Secrets(ns).Get(ctx, name, metav1.GetOptions{})
	}); err != nil {
		return found{}, err
	}
	if f.pod, err = b.lookPod(ctx, op, ref); err != nil {
		return found{}, err
	}
	if f.service, err = own(b, op, ref, "service", func() (*corev1.Service, error) {
		return b.api.CoreV1().Services(ns).Get(ctx, name, metav1.GetOptions{})
	}); err != nil {
		return found{}, err
	}
	if f.policy, err = own(b, op, ref, "networkpolicy", func() (*networkingv1.NetworkPolicy, error) {
		return b.api.NetworkingV1().NetworkPolicies(ns).Get(ctx, name, metav1.GetOptions{})
	}); err != nil {
		return found{}, err
	}
	if f.secret != nil {
		f.record, f.unread = decodeRecord(f.secret.Annotations[annotationRecord])
	}
	return f, nil
}

func (b *Backend) lookPod(ctx context.Context, op string, ref backends.Ref) (*corev1.Pod, error) {
	return own(b, op, ref, "pod", func() (*corev1.Pod, error) {
		return b.api.CoreV1().Pods(b.conf.Namespace).Get(ctx, backends.InstanceName(ref.UID), metav1.GetOptions{})
	})
}

// object is one kind of thing that the API has.
type object[T any] interface {
	*T
	metav1.Object
}

// own reads one object: nil where there is none, ErrConflict where it is not ours.
func own[T any, O object[T]](b *Backend, op string, ref backends.Ref, kind string, get func() (O, error)) (O, error) {
	name := backends.InstanceName(ref.UID)
	o, err := get()
	switch {
	case apierrors.IsNotFound(err) && !namespaceMissing(err):
		return nil, nil
	case err != nil:
		return nil, classify(op, err, "%s %s of proxy %s cannot be read", kind, name, ref.Proxy)
	case !b.owns(o, ref.UID):
		return nil, b.conflict(op, ref, kind)
	}
	return o, nil
}

func (b *Backend) conflict(op string, ref backends.Ref, kind string) error {
	return backends.Errorf(backends.ErrConflict, op, "the %s %s/%s is not ours, or not of proxy %s; everything was left as it is",
		kind, b.conf.Namespace, backends.InstanceName(ref.UID), ref.Proxy)
}

func namespaceMissing(err error) bool {
	var s apierrors.APIStatus
	ok := errors.As(err, &s)
	return ok && s.Status().Details != nil && s.Status().Details.Kind == "namespaces"
}

// unreadable is the error of a record that nothing can be decided by.
func (b *Backend) unreadable(op string, ref backends.Ref, err error) error {
	return backends.Wrap(backends.ErrTransient, op, err, "annotation %s of secret %s/%s, of proxy %s, cannot be read; restore it, or remove the proxy",
		annotationRecord, b.conf.Namespace, backends.InstanceName(ref.UID), ref.Proxy)
}
