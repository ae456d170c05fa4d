package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"proxyfleet/internal/backends"
)

// Watch implements [backends.Watcher].
func (b *Backend) Watch(ctx context.Context) <-chan backends.Event { return b.seen.feed.Watch(ctx) }

// tell sends events of one kind of our objects. The first listing is none: whoever watches
// is told to list by himself.
func (s *informers) tell(kind string) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if !initial {
				s.send(o, kind+"Appeared")
			}
		},
		UpdateFunc: func(_, o any) { s.send(o, changeOf(kind, o)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			s.send(o, kind+"Deleted")
		},
	}
}

// changeOf names what an object has become: of a Pod why it does not serve.
func changeOf(kind string, o any) string {
	if p, ok := o.(*corev1.Pod); ok {
		if v := judge(p, nodeState{}); v.reason != "" {
			return v.reason
		} else if v.status == backends.StatusRunning {
			return "Serving"
		}
	}
	return kind + "Changed"
}

// nodeChanged tells the Pods of a node that was lost or has come back.
func (s *informers) nodeChanged(before, after any) {
	was, is := before.(*corev1.Node), after.(*corev1.Node)
	lost := judgeNode(is.Name, is).lost
	if judgeNode(was.Name, was).lost == lost {
		return
	}
	reason := "NodeBack"
	if lost {
		reason = reasonNodeLost
	}
	for _, p := range s.oursOn(is.Name) {
		s.send(p, reason)
	}
}

// send wakes the agent and whoever follows the uid.
func (s *informers) send(o any, reason string) {
	m, ok := o.(metav1.Object)
	if !ok {
		return
	}
	uid := m.GetLabels()[labelUID]
	if m.GetName() != backends.InstanceName(uid) {
		return // a copy that somebody made
	}
	s.feed.Send(backends.Event{UID: uid, Reason: reason})
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.followers[uid] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// follow wakes at every event of a uid until done is called. What happened before is not told:
// read after it.
func (s *informers) follow(uid string) (events <-chan struct{}, done func()) {
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers[uid] == nil {
		s.followers[uid] = map[chan struct{}]struct{}{}
	}
	s.followers[uid][ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.followers[uid], ch)
		if len(s.followers[uid]) == 0 {
			delete(s.followers, uid)
		}
	}
}
