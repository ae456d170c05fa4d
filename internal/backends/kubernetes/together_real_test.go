//go:build real

package kubernetes

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/kubernetes/kubetest"
)

// together has two agents of one identity do the same at once, which the Deployment avoids and a
// Pod that was removed by force on a lost node brings about: there is one of everything, and
// nothing in the end.
func together(t *testing.T, c *kubetest.Cluster) {
	h, owner := newHost(t, c), newOwner()
	agents := []*bench{openOn(t, h, owner, nil), openOn(t, h, owner, nil)}
	x := agents[0]
	var reqs []backends.Request
	for i := range 4 {
		reqs = append(reqs, request(newRef(fmt.Sprintf("crawl-%d", i))))
	}
	both := func(what string, do func(*bench, backends.Request) error) {
		t.Helper()
		var wg sync.WaitGroup
		for _, a := range agents {
			for _, req := range reqs {
				wg.Go(func() {
					for tries := 1; ; tries++ { // as an agent does
						err := do(a, req)
						if err == nil {
							return
						}
						if backends.Class(err) != backends.ErrTransient || tries == 50 {
							t.Errorf("%s, %s: after %d tries: %v", what, req.Proxy, tries, err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	ensure := func(a *bench, req backends.Request) error { _, err := a.ensure(req); return err }
	pods := func() map[string]string {
		l, err := c.API.CoreV1().Pods(x.Namespace).List(x.ctx(), metav1.ListOptions{})
		check(t, err)
		out := map[string]string{}
		for _, p := range l.Items {
			out[p.Name] = string(p.UID)
		}
		return out
	}

	both("made", ensure)
	first := pods()
	both("made again", ensure)
	if again := pods(); len(first) != len(reqs) || fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("there are Pods %v, then %v, want %d that stay", first, again, len(reqs))
	}
	for i := range reqs {
		reqs[i].Generation, reqs[i].Access.AllowFrom = 2, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}
	both("changed", ensure)
	for _, req := range reqs {
		if i := x.status(req.Ref, backends.StatusRunning, ""); i.Generation != 2 {
			t.Errorf("%s is of generation %d, want 2", req.Proxy, i.Generation)
		}
	}
	budget, err := c.API.PolicyV1().PodDisruptionBudgets(x.Namespace).Get(x.ctx(), x.b.budgetName("pool"), metav1.GetOptions{})
	check(t, err)
	if budget.Spec.MinAvailable.IntVal != 3 || len(budget.OwnerReferences) != 4 {
		t.Errorf("the budget keeps %v of %d members, want 3 of 4", budget.Spec.MinAvailable, len(budget.OwnerReferences))
	}
	both("removed", func(a *bench, req backends.Request) error { return a.b.Delete(a.ctx(), req.Ref) })
	for _, req := range reqs {
		if left := x.traces(t, req.Ref); len(left) > 0 {
			t.Errorf("something is left of %s: %v", req.Proxy, left)
		}
	}
}
