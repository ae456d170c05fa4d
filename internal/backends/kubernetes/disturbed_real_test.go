//go:build real

package kubernetes

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/kubernetes/kubetest"
)

func restartWhileMaking(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	req := request(newRef("p"))
	_, err := x.b.Ensure(at(x.ctx(), "pod.create", c.StopServer), req, func(backends.Progress) {})
	x.expect(err, backends.ErrTransient)
	_, err = x.b.Get(x.ctx(), req.Ref)
	x.expect(err, backends.ErrTransient) // unreadable, not gone
	if checks := x.b.Check(x.ctx()); len(checks) != 1 || checks[0].Code != backends.CheckUnreachable {
		t.Errorf("while the API server is away the checks are %+v", checks)
	}
	c.StartServer(t)
	if i := x.mustEnsure(req); i.Status != backends.StatusRunning {
		t.Errorf("got %+v, want it to run", i)
	}
	// The watches come back too, at their own pace.
	x.eventually("the Pod is seen", func() error {
		_, err := x.b.seen.ours.Pods(x.Namespace).Get(backends.InstanceName(req.UID))
		return err
	})
	told := x.watch(req.UID)
	x.removePod(t, req.Ref)
	told("PodDeleted")
	x.mustDelete(req.Ref)
}

// relay passes connections on until it is cut.
type relay struct {
	net.Listener
	to string

	mu    sync.Mutex // guards what follows
	cut   bool
	conns map[net.Conn]bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r := &relay{Listener: l, to: to, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil || !r.keep(in, out) {
				_ = in.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			wg.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.set(true)
		wg.Wait()
	})
	return r
}

func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.conns[c] = true; r.cut {
			_ = c.Close()
		}
	}
	return !r.cut
}

// set cuts every connection and lets no more through, or mends that.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	if cut {
		for c := range r.conns {
			_ = c.Close()
		}
		r.conns = map[net.Conn]bool{}
	}
}

// expiredWatch cuts the agent off while a Pod goes, and has the API server forget what it had
// watched meanwhile: it answers 410, and the difference is told all the same.
func expiredWatch(t *testing.T, c *kubetest.Cluster) {
	h := newHost(t, c)
	r := newRelay(t, strings.TrimPrefix(c.URL(), "https://"))
	text := strings.Replace(readFile(t, h.Kubeconfig), c.URL(), "https://"+r.Addr().String(), 1)
	writeFile(t, h.Kubeconfig, text)
	x := openOn(t, h, newOwner(), nil)
	req, other := request(newRef("p")), request(newRef("q"))
	x.mustEnsure(req)
	x.mustEnsure(other)
	seen, err := c.API.CoreV1().Pods(h.Namespace).List(x.ctx(), metav1.ListOptions{LabelSelector: x.b.ownSelector()})
	check(t, err)
	told := x.watch(req.UID)
	r.set(true)
	x.removePod(t, req.Ref)
	for range 3 { // the world goes on
		x.setPod(t, other.Ref, func(p *corev1.Pod) { p.Status.Message += "." })
	}
	c.Restart(t)
	// What the agent's watches will ask for, asked here: it has expired.
	w, err := c.API.CoreV1().Pods(h.Namespace).Watch(x.ctx(), metav1.ListOptions{ResourceVersion: seen.ResourceVersion, LabelSelector: x.b.ownSelector()})
	if err == nil {
		e := <-w.ResultChan()
		w.Stop()
		err = apierrors.FromObject(e.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Fatalf("a watch from %s: got %v, want 410", seen.ResourceVersion, err)
	}
	r.set(false)
	told("PodDeleted")
	x.mustEnsure(req)
	x.mustDelete(req.Ref)
	x.mustDelete(other.Ref)
}

// sharedNamespace has two agents of one installation and one of another in one namespace, with
// a pool of one name each.
func sharedNamespace(t *testing.T, c *kubetest.Cluster) {
	h, first := newHost(t, c), newOwner()
	agents := []*bench{openOn(t, h, first, nil), openOn(t, h, backends.Owner{Installation: first.Installation, HostID: newULID()}, nil),
		openOn(t, h, backends.Owner{Installation: newULID(), HostID: first.HostID}, nil)}
	var reqs []backends.Request
	for _, x := range agents {
		req := request(newRef("p"))
		reqs = append(reqs, req)
		x.mustEnsure(req)
	}
	for i, x := range agents {
		l, err := x.b.List(x.ctx())
		check(t, err)
		if len(l.Instances) != 1 || l.Instances[0].Mark.UID != reqs[i].UID || len(l.Leftovers)+len(l.Unread) != 0 {
			t.Errorf("agent %d lists %+v", i, l)
		}
		_, err = x.b.Get(x.ctx(), reqs[(i+1)%3].Ref)
		x.expect(err, backends.ErrConflict)
		x.expect(x.b.Delete(x.ctx(), reqs[(i+1)%3].Ref), backends.ErrConflict)
	}
	agents[0].mustDelete(reqs[0].Ref)
	budgets, err := c.API.PolicyV1().PodDisruptionBudgets(h.Namespace).List(context.Background(), metav1.ListOptions{})
	check(t, err)
	if len(budgets.Items) != 2 {
		t.Errorf("there are %d budgets, want those of the two others", len(budgets.Items))
	}
	for i, x := range agents[1:] {
		x.status(reqs[i+1].Ref, backends.StatusRunning, "")
		x.mustDelete(reqs[i+1].Ref)
	}
}

// exchangedToken revokes the token that the agent has, and gives it another.
func exchangedToken(t *testing.T, c *kubetest.Cluster) {
	h := newHost(t, c)
	bound, err := c.API.CoreV1().Secrets(h.Namespace).Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
	check(t, err)
	writeFile(t, h.TokenFile, c.BoundToken(t, h.Namespace, "agent", bound))
	x := openOn(t, h, newOwner(), nil)
	req := request(newRef("p"))
	x.mustEnsure(req)
	told := x.watch(req.UID)
	check(t, c.API.CoreV1().Secrets(h.Namespace).Delete(context.Background(), "bound", metav1.DeleteOptions{}))
	x.eventually("the token is refused", func() error {
		if _, err := x.b.Get(x.ctx(), req.Ref); backends.Class(err) != backends.ErrHostFault {
			return errNotYet
		}
		return nil
	})
	if checks := x.b.Check(x.ctx()); len(checks) != 1 || checks[0].Code != backends.CheckUnauthorized {
		t.Errorf("with a token that was revoked the checks are %+v", checks)
	}
	check(t, os.Remove(h.TokenFile))
	if checks := x.b.Check(x.ctx()); len(checks) != 1 || checks[0].Code != backends.CheckCredentialsUnavailable {
		t.Errorf("without a token file the checks are %+v", checks)
	}
	writeFile(t, h.TokenFile, c.Token(t, h.Namespace, "agent"))
	x.status(req.Ref, backends.StatusRunning, "")
	x.removePod(t, req.Ref)
	told("PodDeleted") // the watches go on with the new one
	x.mustDelete(req.Ref)
	if strings.Contains(x.log.String(), c.Token(t, h.Namespace, "agent")[:40]) {
		t.Error("a token was logged")
	}
}
