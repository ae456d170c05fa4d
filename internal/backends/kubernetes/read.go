package kubernetes

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// Get implements [backends.Backend]. A Secret or a Pod is an instance; what is left
// without either is listed as left over, and is no instance.
func (b *Backend) Get(ctx context.Context, ref backends.Ref) (backends.Instance, error) {
	const op = "get"
	if err := ref.Validate(); err != nil {
		return backends.Instance{}, err
	}
	f, err := b.look(ctx, op, ref)
	switch {
	case err != nil:
		return backends.Instance{}, err
	case f.secret == nil && f.pod == nil:
		return backends.Instance{}, backends.Errorf(backends.ErrNotFound, op, "there is no proxy %s with uid %s in namespace %s", ref.Proxy, ref.UID, b.conf.Namespace)
	case f.unread != nil:
		return backends.Instance{}, b.unreadable(op, ref, f.unread)
	}
	b.lookUpNames(ctx, &f)
	return b.instance(f), nil
}

// List implements [backends.Backend]: four requests, whatever there is. Of Secrets only the
// metadata is asked for.
func (b *Backend) List(ctx context.Context) (backends.Listing, error) {
	const op = "list"
	all, err := b.lookAll(ctx)
	if err != nil {
		return backends.Listing{}, classify(op, err, "the objects in namespace %s cannot be listed", b.conf.Namespace)
	}
	b.lookUpNames(ctx, slices.Collect(maps.Values(all))...)
	var list backends.Listing
	for uid, f := range all {
		name := backends.InstanceName(uid)
		switch {
		case f.unread != nil:
			list.Unread = append(list.Unread, backends.Unread{What: "secret/" + name, Err: b.unreadable(op, backends.Ref{Proxy: b.mark(f.secret).Proxy, UID: uid}, f.unread)})
		case f.secret != nil || f.pod != nil:
			list.Instances = append(list.Instances, b.instance(*f))
		default:
			if f.service != nil {
				list.Leftovers = append(list.Leftovers, backends.Leftover{Mark: b.mark(f.service), Kind: "service", Name: name})
			}
			if f.policy != nil {
				list.Leftovers = append(list.Leftovers, backends.Leftover{Mark: b.mark(f.policy), Kind: "networkpolicy", Name: name})
			}
		}
	}
	return list, nil
}

// lookAll reads everything of ours by uid. What carries our labels under another name is
// not ours: it is a copy that somebody made.
func (b *Backend) lookAll(ctx context.Context) (map[string]*found, error) {
	ns, opts := b.conf.Namespace, metav1.ListOptions{LabelSelector: b.ownSelector()}
	all := map[string]*found{}
	at := func(o metav1.Object) *found {
		uid := o.GetLabels()[labelUID]
		if o.GetName() != backends.InstanceName(uid) {
			return &found{}
		}
		if all[uid] == nil {
			all[uid] = &found{}
		}
		return all[uid]
	}
	secrets, err := b.meta.Resource(secretsResource).Namespace(ns).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	for _, s := range secrets.Items {
		f := at(&s)
		f.secret = &corev1.Secret{ObjectMeta: s.ObjectMeta}
		f.record, f.unread = decodeRecord(s.Annotations[annotationRecord])
	}
	pods, err := b.api.CoreV1().Pods(ns).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		at(&pods.Items[i]).pod = &pods.Items[i]
	}
	services, err := b.api.CoreV1().Services(ns).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	for i := range services.Items {
		at(&services.Items[i]).service = &services.Items[i]
	}
	policies, err := b.api.NetworkingV1().NetworkPolicies(ns).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	for i := range policies.Items {
		at(&policies.Items[i]).policy = &policies.Items[i]
	}
	return all, nil
}
