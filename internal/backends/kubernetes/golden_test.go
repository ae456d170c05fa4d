package kubernetes

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/squid"
)

var update = flag.Bool("update", false, "write the golden files anew")

const goldenUID = "01jd3v6q4m8e2x5y7z9abcdefg"

// goldens are proxies whose objects stand in testdata as manifests.
var goldens = map[string]struct {
	conf    func(*Config)
	request func(*backends.Request)
}{
	"pod":  {},
	"pool": {request: func(r *backends.Request) { r.Pool = "crawl" }},
	"privileged-port": {
		conf: func(c *Config) {
			c.PullSecret, c.NodeSelector, c.Drain = "registry", map[string]string{"example.org/egress": "true"}, 30*time.Second
			c.ImagePullPolicy, c.PriorityClass = "Always", "proxies"
			c.Tolerations = []Toleration{{Key: "example.org/egress", Operator: "Exists", Effect: "NoSchedule"},
				{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(30))}}
			c.Prober = Prober{Namespace: "proxyfleet", Labels: map[string]string{labelName: "proxyfleet-agent"}}
		},
		request: func(r *backends.Request) { r.Port = 443 },
	},
	"node-port": {conf: func(c *Config) { c.Expose = exposeNodePort }, request: func(r *backends.Request) { r.Port = 30128 }},
	"load-balancer": {conf: func(c *Config) {
		c.Expose, c.ServiceAnnotations = exposeLoadBalancer, map[string]string{"example.org/internal": "true"}
	}, request: func(r *backends.Request) { r.Port = 8080 }},
}

// goldenObjects are everything that is made for a case, in the order of making.
func goldenObjects(t *testing.T, name string) []runtime.Object {
	t.Helper()
	c := goldens[name]
	b := &Backend{conf: Config{Namespace: "proxies"}.withDefaults(), owner: backends.Owner{Installation: "01installation", HostID: "01host"}, host: backends.HostConfig{
		Images:       map[string]backends.Image{"squid": {Container: "registry.example.org/squid:6", Digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}},
		MachineTypes: map[string]backends.MachineType{"small": {VCPUs: 1, MemoryMiB: 256}}}}
	if c.conf != nil {
		c.conf(&b.conf)
	}
	if err := b.conf.validate(); err != nil {
		t.Fatal(err)
	}
	req := backends.Request{Ref: backends.Ref{Proxy: "crawl-1", UID: goldenUID}, Generation: 1, Desired: backends.Running, Image: "squid", MachineType: "small",
		Access: backends.Access{Username: "crawler", Password: "secret", AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}}}
	if c.request != nil {
		c.request(&req)
	}
	p, err := b.plan(req)
	if err != nil {
		t.Fatal(err)
	}
	s := b.secret(p, record{Desired: req.Desired, Fixed: p.fixed, Config: p.config, Expose: b.conf.Expose, Policy: true, Pool: req.Pool})
	s.UID = "c0ffee00-0000-4000-8000-000000000000"
	out := []runtime.Object{s, b.policy(p, s)}
	if b.conf.Expose != exposePod {
		out = append(out, b.service(p, s))
	}
	if req.Pool != "" {
		out = append(out, b.budget(req.Pool, []corev1.Secret{*s}))
	}
	return append(out, b.pod(p, s))
}

// manifest writes objects as people do.
func manifest(t *testing.T, objects []runtime.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	for i, o := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			t.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
		if s, ok := o.(*corev1.Secret); ok {
			s.StringData = map[string]string{}
			for k, v := range s.Data {
				s.StringData[k] = string(v)
			}
			s.Data = nil
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes()
}

func TestManifestsAreAsReviewed(t *testing.T) {
	for name := range goldens {
		t.Run(name, func(t *testing.T) {
			got := manifest(t, goldenObjects(t, name))
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("differs (-want +got); go test -update writes it anew:\n%s", diff)
			}
		})
	}
}

// TestThePodHasTimeToDrain holds the pause, Squid's own time and the kubelet's together.
func TestThePodHasTimeToDrain(t *testing.T) {
	for _, drain := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		b := &Backend{conf: Config{Drain: drain}.withDefaults()}
		p := b.pod(plan{listen: DefaultPort}, &corev1.Secret{})
		grace := time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
		pause := time.Duration(p.Spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
		if pause != drain || grace <= pause+squid.ShutdownLifetime {
			t.Errorf("drain %v: the Pod pauses %v, Squid takes %v, and the kubelet kills it after %v", drain, pause, squid.ShutdownLifetime, grace)
		}
	}
}

// TestNoSecretIsInAPod looks through everything but the Secret for what it holds.
func TestNoSecretIsInAPod(t *testing.T) {
	for name := range goldens {
		objects := goldenObjects(t, name)
		hash := bytes.TrimSpace(objects[0].(*corev1.Secret).Data[passwordsKey])
		if bytes.Contains(manifest(t, objects[:1]), []byte("secret\"")) {
			t.Errorf("%s: the Secret has the password, want its hash only", name)
		}
		rest := manifest(t, objects[1:])
		for _, secret := range [][]byte{hash, hash[len("crawler:"):], []byte("crawler")} {
			if bytes.Contains(rest, secret) {
				t.Errorf("%s: %q stands outside the Secret", name, secret)
			}
		}
	}
}

// Every member owns the budget, and one of those that run may be evicted at a time.
func TestABudgetCountsWhoRuns(t *testing.T) {
	b := &Backend{conf: Config{Namespace: "proxies"}.withDefaults()}
	member := func(desired backends.Desired) corev1.Secret {
		s := corev1.Secret{}
		s.Annotations = map[string]string{annotationRecord: record{Desired: desired, Expose: exposePod}.encode()}
		return s
	}
	for want, members := range map[int32][]corev1.Secret{
		0: {member(backends.Running)},
		1: {member(backends.Running), member(backends.Stopped), member(backends.Running)},
		2: {member(backends.Running), member(backends.Running), member(backends.Running)},
	} {
		got := b.budget("p", members)
		if got.Spec.MinAvailable.IntVal != want || len(got.OwnerReferences) != len(members) {
			t.Errorf("of %d members: got at least %v and %d owners, want %d and each", len(members), got.Spec.MinAvailable, len(got.OwnerReferences), want)
		}
	}
}
