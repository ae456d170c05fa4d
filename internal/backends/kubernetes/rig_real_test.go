//go:build real

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/kubernetes/kubetest"
)

// hostText is what tests hand from process to process.
type hostText struct {
	Admin, Kubeconfig, TokenFile, Namespace string
}

func (h hostText) String() string {
	text, _ := json.Marshal(h)
	return string(text)
}

func hostOf(text string) (h hostText) {
	_ = json.Unmarshal([]byte(text), &h)
	return h
}

// api is a client that may do everything.
func (h hostText) api() clientset.Interface {
	cfg, err := clientcmd.BuildConfigFromFlags("", h.Admin)
	if err != nil {
		panic(err)
	}
	cfg.QPS = -1
	return clientset.NewForConfigOrDie(cfg)
}

var namespaces atomic.Int64

// newHost is a namespace of a cluster with an agent's account.
func newHost(t testing.TB, c *kubetest.Cluster) hostText {
	t.Helper()
	ns := fmt.Sprintf("proxies-%d", namespaces.Add(1))
	c.AddNamespace(t, ns)
	a := c.AddAgent(t, ns, "agent")
	return hostText{Admin: c.Admin, Kubeconfig: a.Kubeconfig, TokenFile: a.TokenFile, Namespace: ns}
}

func hostConfig() backends.HostConfig {
	return backends.HostConfig{
		Images:       map[string]backends.Image{"squid": {Container: "registry.example.org/squid:6"}, "held": {Container: kubetest.Held + "squid:6"}},
		MachineTypes: map[string]backends.MachineType{"small": {VCPUs: 1, MemoryMiB: 128}, "huge": {VCPUs: 1, MemoryMiB: 1 << 24}},
		Defaults:     backends.Defaults{Image: "squid", MachineType: "small"},
	}
}

func (h hostText) config() Config {
	return Config{Kubeconfig: h.Kubeconfig, Namespace: h.Namespace, Drain: time.Second}
}

func openWith(conf Config, owner backends.Owner, log *slog.Logger) (*Backend, error) {
	return New(conf, hostConfig(), Options{Owner: owner, Log: log})
}

func request(ref backends.Ref) backends.Request {
	return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, Image: "squid", MachineType: "small", Pool: "pool",
		Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
}

// objects are all that could be a uid's, whoever's they are, as JSON by kind.
func (h hostText) objects(t testing.TB, name string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	api, out := h.api(), map[string]string{}
	see := func(kind string, o metav1.Object, err error) {
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(o)
		out[kind] = string(text)
	}
	s, err := api.CoreV1().Secrets(h.Namespace).Get(ctx, name, metav1.GetOptions{})
	see("secret", s, err)
	p, err := api.CoreV1().Pods(h.Namespace).Get(ctx, name, metav1.GetOptions{})
	see("pod", p, err)
	v, err := api.CoreV1().Services(h.Namespace).Get(ctx, name, metav1.GetOptions{})
	see("service", v, err)
	n, err := api.NetworkingV1().NetworkPolicies(h.Namespace).Get(ctx, name, metav1.GetOptions{})
	see("networkpolicy", n, err)
	budgets, err := api.PolicyV1().PodDisruptionBudgets(h.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range budgets.Items {
		for _, o := range b.OwnerReferences {
			if o.Name == name {
				see("budget", &b, nil)
			}
		}
	}
	return out
}

func (h hostText) traces(t testing.TB, ref backends.Ref) []string {
	return slices.Sorted(maps.Keys(h.objects(t, backends.InstanceName(ref.UID))))
}

// marked is the metadata of a planted thing.
func marked(h hostText, ref backends.Ref, m backends.Mark) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: backends.InstanceName(ref.UID), Namespace: h.Namespace}
	if m != (backends.Mark{}) {
		meta.Labels = map[string]string{labelInstallation: m.Installation, labelHostID: m.HostID, labelProxy: m.Proxy, labelUID: m.UID}
		meta.Annotations = map[string]string{annotationRecord: record{Generation: 1, Desired: backends.Running, Expose: exposePod, Port: DefaultPort}.encode()}
	}
	return meta
}

// plant puts one thing there and tells how it looks.
func plant(kind string, create func(context.Context, clientset.Interface, metav1.ObjectMeta) error,
	remove func(context.Context, clientset.Interface, string, string) error) func(testing.TB, string, backends.Ref, backends.Mark) func() string {
	return func(t testing.TB, host string, ref backends.Ref, m backends.Mark) func() string {
		h := hostOf(host)
		meta := marked(h, ref, m)
		if err := create(context.Background(), h.api(), meta); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := remove(context.Background(), h.api(), h.Namespace, meta.Name); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
		return func() string {
			// Of a Pod only what people wrote: kwok changes its status, and binding it adds where
			// it is.
			if kind == "pod" {
				p, err := h.api().CoreV1().Pods(h.Namespace).Get(context.Background(), meta.Name, metav1.GetOptions{})
				if err != nil {
					return "gone"
				}
				maps.DeleteFunc(p.Labels, func(k, _ string) bool { return strings.HasPrefix(k, "topology.kubernetes.io/") })
				if len(p.Labels) == 0 {
					p.Labels = nil
				}
				return fmt.Sprint(p.UID, p.Labels, p.Annotations, p.DeletionTimestamp)
			}
			if text, ok := h.objects(t, meta.Name)[kind]; ok {
				return text
			}
			return "gone"
		}
	}
}

func foreignPod(meta metav1.ObjectMeta) *corev1.Pod {
	p := (&Backend{conf: Config{Namespace: meta.Namespace}.withDefaults()}).pod(plan{image: "registry.example.org/theirs", shape: backends.MachineType{VCPUs: 1, MemoryMiB: 64}, listen: 80},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "theirs", UID: "theirs"}})
	p.ObjectMeta = meta
	return p
}

func foreignPolicy(meta metav1.ObjectMeta) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}}
}

// setPod changes the status of a Pod as a kubelet would.
func (h hostText) setPod(t testing.TB, ref backends.Ref, change func(*corev1.Pod)) {
	t.Helper()
	pods := h.api().CoreV1().Pods(h.Namespace)
	for {
		p, err := pods.Get(context.Background(), backends.InstanceName(ref.UID), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(p)
		_, err = pods.UpdateStatus(context.Background(), p, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

func evict(p *corev1.Pod) {
	p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodReady {
			p.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
}

// removePod deletes a Pod and waits until it is gone.
func (h hostText) removePod(t testing.TB, ref backends.Ref) {
	t.Helper()
	name := backends.InstanceName(ref.UID)
	if err := h.api().CoreV1().Pods(h.Namespace).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for h.objects(t, name)["pod"] != "" {
		time.Sleep(20 * time.Millisecond)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
