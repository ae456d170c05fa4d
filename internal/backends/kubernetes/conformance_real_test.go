//go:build real

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/kubernetes/kubetest"
)

func TestMain(m *testing.M) { backendtest.Main(m, harness) }

// TestConformance shares one cluster, with a namespace for each case.
func TestConformance(t *testing.T) {
	c := kubetest.Start(t)
	h := harness
	h.NewHost = func(t testing.TB) string { return newHost(t, c).String() }
	h.Stall = func(t testing.TB, _ string) func() { return c.Stall(t) }
	backendtest.Run(t, h)
}

var harness = backendtest.Harness{
	NewHost: func(testing.TB) string { panic("TestConformance gives its own") },
	Open: func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
		return openWith(hostOf(host).config(), owner, log)
	},
	Request: request,
	Traces:  func(t testing.TB, host string, ref backends.Ref) []string { return hostOf(host).traces(t, ref) },
	Plants: map[string]backendtest.Plant{
		"instance": plant("pod", func(ctx context.Context, api clientset.Interface, m metav1.ObjectMeta) error {
			_, err := api.CoreV1().Pods(m.Namespace).Create(ctx, foreignPod(m), metav1.CreateOptions{})
			return err
		}, func(ctx context.Context, api clientset.Interface, ns, name string) error {
			return api.CoreV1().Pods(ns).Delete(ctx, name, metav1.DeleteOptions{})
		}),
		"secret": plant("secret", func(ctx context.Context, api clientset.Interface, m metav1.ObjectMeta) error {
			_, err := api.CoreV1().Secrets(m.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: m}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context, api clientset.Interface, ns, name string) error {
			return api.CoreV1().Secrets(ns).Delete(ctx, name, metav1.DeleteOptions{})
		}),
		"service": plant("service", func(ctx context.Context, api clientset.Interface, m metav1.ObjectMeta) error {
			_, err := api.CoreV1().Services(m.Namespace).Create(ctx, &corev1.Service{ObjectMeta: m,
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
			return err
		}, func(ctx context.Context, api clientset.Interface, ns, name string) error {
			return api.CoreV1().Services(ns).Delete(ctx, name, metav1.DeleteOptions{})
		}),
		"networkpolicy": plant("networkpolicy", func(ctx context.Context, api clientset.Interface, m metav1.ObjectMeta) error {
			_, err := api.NetworkingV1().NetworkPolicies(m.Namespace).Create(ctx, foreignPolicy(m), metav1.CreateOptions{})
			return err
		}, func(ctx context.Context, api clientset.Interface, ns, name string) error {
			return api.NetworkingV1().NetworkPolicies(ns).Delete(ctx, name, metav1.DeleteOptions{})
		}),
	},
	Oversize: func(req *backends.Request) { req.MachineType = "huge" },
	Unread: func(t testing.TB, host string, ref backends.Ref) func() {
		h, name := hostOf(host), backends.InstanceName(ref.UID)
		var s corev1.Secret
		if err := json.Unmarshal([]byte(h.objects(t, name)["secret"]), &s); err != nil {
			t.Fatal(err)
		}
		write := func(text string) {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotationRecord, text)
			_, _ = h.api().CoreV1().Secrets(h.Namespace).Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		}
		write("cut")
		return func() { write(s.Annotations[annotationRecord]) } // nothing, where it was deleted
	},
	Crash:  func(t testing.TB, host string, ref backends.Ref) { hostOf(host).setPod(t, ref, evict) },
	Vanish: func(t testing.TB, host string, ref backends.Ref) { hostOf(host).removePod(t, ref) },
	Stall:  func(testing.TB, string) func() { panic("TestConformance gives its own") },
	Lockout: func(t testing.TB, host string) func() {
		h := hostOf(host)
		token := readFile(t, h.TokenFile)
		writeFile(t, h.TokenFile, "stale")
		return func() { writeFile(t, h.TokenFile, token) }
	},
	Patience: 60 * time.Second, Promptness: 5 * time.Second,
}
