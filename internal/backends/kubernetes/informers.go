package kubernetes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"proxyfleet/internal/backends"
)

var secretsResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// informers watch what is ours, to wake whoever waits, and nodes, Pods and quotas for the
// offer. They list anew by themselves after a lost connection or an expired watch, and tell of
// the differences. Nothing here decides whether something exists.
type informers struct {
	feed   backends.Feed // to the agent
	stop   func()        // ends all watching and waits for it
	ready  chan struct{} // closed once everything was listed
	nodes  corelisters.NodeLister
	pods   corelisters.PodLister // of the whole cluster, stripped: see strip
	quotas corelisters.ResourceQuotaLister
	ours   corelisters.PodLister

	mu        sync.Mutex // guards what follows
	trouble   error      // the newest that kept a watch from its data
	changed   chan struct{}
	followers map[string]map[chan struct{}]struct{} // by uid
}

// watchCluster starts all informers of b.
func watchCluster(b *Backend) *informers {
	s := &informers{ready: make(chan struct{}), changed: make(chan struct{}), followers: map[string]map[chan struct{}]struct{}{}}
	mine := func(o *metav1.ListOptions) { o.LabelSelector = b.ownSelector() }
	alive := func(o *metav1.ListOptions) { o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed" }
	ns, byNamespace := b.conf.Namespace, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	ours := coreinformers.NewFilteredPodInformer(b.api, ns, 0, byNamespace, mine)
	cluster := coreinformers.NewFilteredPodInformer(b.api, metav1.NamespaceAll, 0, byNamespace, alive)
	nodes := coreinformers.NewNodeInformer(b.api, 0, cache.Indexers{})
	quotas := coreinformers.NewResourceQuotaInformer(b.api, ns, 0, byNamespace)
	told := map[string]cache.SharedIndexInformer{
		"Pod":           ours,
		"Service":       coreinformers.NewFilteredServiceInformer(b.api, ns, 0, byNamespace, mine),
		"NetworkPolicy": networkinginformers.NewFilteredNetworkPolicyInformer(b.api, ns, 0, byNamespace, mine),
		"Secret":        secretInformer(b, mine),
	}
	s.ours, s.pods = corelisters.NewPodLister(ours.GetIndexer()), corelisters.NewPodLister(cluster.GetIndexer())
	s.nodes, s.quotas = corelisters.NewNodeLister(nodes.GetIndexer()), corelisters.NewResourceQuotaLister(quotas.GetIndexer())
	all := map[string]cache.SharedIndexInformer{"resource quotas": quotas, "nodes": nodes, "Pods of the whole cluster": cluster}
	for kind, i := range told {
		all["our objects of kind "+kind] = i
	}

	// None of the three fails for an informer that does not run yet.
	_ = cluster.SetTransform(strip)
	_, _ = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: s.nodeChanged})
	for kind, i := range told {
		_, _ = i.AddEventHandler(s.tell(kind))
	}
	s.run(b.log, all)
	return s
}

// run has all informers watch until stop is called.
func (s *informers) run(log *slog.Logger, all map[string]cache.SharedIndexInformer) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.FromSlogHandler(log.Handler())))
	var running sync.WaitGroup
	var synced []cache.InformerSynced
	for what, i := range all {
		_ = i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			log.WarnContext(ctx, "a watch was interrupted; it goes on by itself", "of", what, "err", err)
			s.failed(classify("watch", err, "%s cannot be watched", what))
		})
		synced = append(synced, i.HasSynced)
		running.Go(func() { i.RunWithContext(ctx) })
	}
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			close(s.ready)
		}
	})
	s.stop = func() {
		cancel()
		running.Wait()
	}
}

// secretInformer watches the metadata of our Secrets: what they hold stays in the cluster.
func secretInformer(b *Backend, mine func(*metav1.ListOptions)) cache.SharedIndexInformer {
	secrets := b.meta.Resource(secretsResource).Namespace(b.conf.Namespace)
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			mine(&o)
			return secrets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			mine(&o)
			return secrets.Watch(ctx, o)
		},
	}, b.meta), &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
}

// strip leaves of a Pod what it takes of a node, for there may be very many.
func strip(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil // a tombstone of the cache
	}
	s := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion}}
	s.Spec.NodeName, s.Spec.Overhead, s.Spec.Resources = p.Spec.NodeName, p.Spec.Overhead, p.Spec.Resources
	for _, k := range []string{labelInstallation, labelHostID} {
		if v, ok := p.Labels[k]; ok {
			metav1.SetMetaDataLabel(&s.ObjectMeta, k, v)
		}
	}
	for _, c := range p.Spec.Containers {
		s.Spec.Containers = append(s.Spec.Containers, corev1.Container{Name: c.Name, Resources: c.Resources})
	}
	for _, c := range p.Spec.InitContainers {
		s.Spec.InitContainers = append(s.Spec.InitContainers, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return s, nil
}

// failed notes what keeps a watch from its data.
func (s *informers) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
	close(s.changed)
	s.changed = make(chan struct{})
}

// synced waits until everything was listed once, or returns why that does not come about.
func (s *informers) synced(ctx context.Context) error {
	for {
		s.mu.Lock()
		trouble, changed := s.trouble, s.changed
		s.mu.Unlock()
		select {
		case <-s.ready:
			return nil
		default:
		}
		if trouble != nil {
			return trouble
		}
		select {
		case <-s.ready:
		case <-changed:
		case <-ctx.Done():
			return backends.Wrap(backends.ErrTransient, "watch", ctx.Err(), "nodes, Pods and quotas are not known yet")
		}
	}
}

// cacheLag is how old a Pod is until the cache must know its node.
const cacheLag = time.Minute

// node is what is known of a Pod's node.
func (s *informers) node(p *corev1.Pod) nodeState {
	if p.Spec.NodeName == "" {
		return nodeState{}
	}
	select {
	case <-s.ready:
	default:
		return nodeState{}
	}
	n, err := s.nodes.Get(p.Spec.NodeName)
	if err != nil {
		if time.Since(p.CreationTimestamp.Time) < cacheLag {
			return nodeState{}
		}
		n = nil
	}
	return judgeNode(p.Spec.NodeName, n)
}

// oursOn are our Pods on a node.
func (s *informers) oursOn(node string) (out []*corev1.Pod) {
	all, _ := s.ours.List(labels.Everything())
	for _, p := range all {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}
