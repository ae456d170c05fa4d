//go:build real

package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/kubernetes/kubetest"
)

// onCluster are what the conformance suite does not ask, on one real API server.
var onCluster = map[string]func(*testing.T, *kubetest.Cluster){
	"its manifests are taken where Pod security is restricted":   manifestsAreTaken,
	"what the agent is deployed by is taken there as well":       theAgentsOwnAreTaken,
	"a quota is NoCapacity":                                      quotaIsNoCapacity,
	"a right that is missing is the host's fault and is named":   missingRight,
	"the manifest grants what is asked for and nothing else":     manifestGrantsRights,
	"a validating policy's refusal is Permanent":                 policyRefuses,
	"the API server restarts while a Pod is made":                restartWhileMaking,
	"a watch that has expired is begun anew":                     expiredWatch,
	"two agents and two installations share a namespace":         sharedNamespace,
	"two agents of one identity at once make one of each":        together,
	"a Pod that was deleted by hand is told of and comes back":   deletedByHand,
	"a Pod that was evicted is told of and comes back":           evicted,
	"node ports reach the state and are kept":                    nodePorts,
	"a load balancer's address reaches the state":                loadBalancer,
	"the offer follows the cluster":                              offerFollows,
	"a tainted node is for those who tolerate it":                taintsTolerated,
	"a priority class is given, or named where it is missing":    priority,
	"a quota bounds the offer":                                   quotaBoundsOffer,
	"tokens are exchanged without a restart":                     exchangedToken,
	"an image that cannot be pulled has a named reason":          imagePull,
	"a Pod that finds no node is NoCapacity":                     unschedulable,
	"a node that is lost is told of":                             nodeLost,
	"a pool's budget follows its members and goes with the last": budgetFollows,
	"a NetworkPolicy that was removed comes back":                policyRemoved,
}

func TestOnARealAPIServer(t *testing.T) {
	c := kubetest.Start(t)
	for name, run := range onCluster {
		t.Run(name, func(t *testing.T) { run(t, c) })
	}
}

// bench is one namespace with an agent's backend on it.
type bench struct {
	*testing.T
	hostText
	b   *Backend
	log *bytes.Buffer
}

func newULID() string { return strings.ToLower(ulid.Make().String()) }

func newOwner() backends.Owner { return backends.Owner{Installation: newULID(), HostID: newULID()} }

func newRef(proxy string) backends.Ref { return backends.Ref{Proxy: proxy, UID: newULID()} }

// open is a backend on a namespace of its own.
func open(t *testing.T, c *kubetest.Cluster, change func(*Config)) *bench {
	t.Helper()
	return openOn(t, newHost(t, c), newOwner(), change)
}

func openOn(t *testing.T, h hostText, owner backends.Owner, change func(*Config)) *bench {
	t.Helper()
	conf := h.config()
	if change != nil {
		change(&conf)
	}
	x := &bench{T: t, hostText: h, log: &bytes.Buffer{}}
	var err error
	x.b, err = openWith(conf, owner, slog.New(slog.NewTextHandler(&lockedWriter{w: x.log}, &slog.HandlerOptions{Level: slog.LevelDebug})))
	check(t, err)
	t.Cleanup(func() {
		check(t, x.b.Close())
		if t.Failed() {
			t.Logf("the backend logged:\n%s", x.log)
		}
	})
	return x
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (x *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	x.Cleanup(cancel)
	return ctx
}

func (x *bench) ensure(req backends.Request) (backends.Instance, error) {
	return x.b.Ensure(x.ctx(), req, func(backends.Progress) {})
}

func (x *bench) mustEnsure(req backends.Request) backends.Instance {
	x.Helper()
	i, err := x.ensure(req)
	check(x.T, err)
	return i
}

func (x *bench) mustDelete(ref backends.Ref) {
	x.Helper()
	check(x.T, x.b.Delete(x.ctx(), ref))
	if left := x.traces(x.T, ref); len(left) > 0 {
		x.Errorf("something is left of %s: %v", ref.Proxy, left)
	}
}

// expect fails unless err has the class and names everything.
func (x *bench) expect(err, class error, names ...string) {
	x.Helper()
	if backends.Class(err) != class {
		x.Fatalf("got %v (%v), want %v", backends.Class(err), err, class)
	}
	for _, n := range names {
		if !strings.Contains(err.Error(), n) {
			x.Errorf("got %v, want it to name %q", err, n)
		}
	}
}

// eventually waits for what a watch or a cache brings.
func (x *bench) eventually(what string, ok func() error) {
	x.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	x.Fatalf("%s: not within a minute: %v", what, err)
}

// watch collects the reasons of events of a uid.
func (x *bench) watch(uid string) (told func(reason string)) {
	x.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	x.Cleanup(cancel)
	events := x.b.Watch(ctx)
	<-events // the one without a uid
	return func(reason string) {
		x.Helper()
		var heard []string
		timeout := time.After(time.Minute)
		for {
			select {
			case e := <-events:
				if e.UID != uid {
					continue
				}
				if e.Reason == reason {
					return
				}
				heard = append(heard, e.Reason)
			case <-timeout:
				x.Fatalf("no event says %s, only %v", reason, heard)
			}
		}
	}
}

// status waits until Get says so.
func (x *bench) status(ref backends.Ref, status backends.Status, reason string) (i backends.Instance) {
	x.Helper()
	x.eventually(string(status)+" "+reason, func() (err error) {
		i, err = x.b.Get(x.ctx(), ref)
		if err == nil && (i.Status != status || i.Reason != reason) {
			err = fmt.Errorf("got %s %s (%s)", i.Status, i.Reason, i.Message)
		}
		return err
	})
	return i
}

// at runs do right before a side effect.
func at(ctx context.Context, label string, do func()) context.Context {
	return backends.WithSteps(ctx, func(l string) error {
		if l == label {
			do()
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")
