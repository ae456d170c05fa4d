//go:build real

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends/kubernetes/kubetest"
	"proxyfleet/internal/bus"
)

// TestAPodFromIntentToDeletion is the whole way on a real API server, with nothing but
// the rights of the manifest. kwok says that the Pod runs, so nobody answers a probe.
func TestAPodFromIntentToDeletion(t *testing.T) {
	c := kubetest.Start(t)
	c.AddNamespace(t, "proxies")
	account := c.AddAgent(t, "proxies", "agent")
	token, err := os.ReadFile(account.TokenFile)
	if err != nil {
		t.Fatal(err)
	}

	f := newFleet(t, "always")
	const password = "a-word-that-nobody-logs"
	a := f.startCloudAgent("k8s", fmt.Sprintf(`backend:
  type: kubernetes
  kubeconfig: %s
  namespace: proxies
  drain: 1s
images: {squid: {container: registry.example.org/squid:6}}
machineTypes: {small: {vcpus: 1, memoryMiB: 128}}
defaults: {image: squid, machineType: small}
probe: {disabled: true}
log: {level: debug}
`, account.Kubeconfig))

	f.publish("crawl-1", `{"name":"crawl-1","spec":{"auth":{"username":"crawler","password":"`+password+`"},"allowFrom":["10.0.0.0/8"]}}`)
	r := f.awaitPhase("crawl-1", bus.PhaseRunning, 2*time.Minute)
	pods := podsOf(t, c, "proxies")
	if len(pods) != 1 || len(r.Addresses) != 1 || r.Addresses[0].Address != pods[0].Status.PodIP || r.Addresses[0].Port != 3128 {
		t.Fatalf("the record says %+v, the cluster has %+v", r.Addresses, pods)
	}

	// A Pod that somebody deletes comes back by itself.
	if err := c.API.CoreV1().Pods("proxies").Delete(context.Background(), pods[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, func() error {
		again := podsOf(t, c, "proxies")
		if len(again) == 1 && again[0].UID != pods[0].UID && again[0].Status.Phase == corev1.PodRunning {
			return nil
		}
		return fmt.Errorf("pods: %d", len(again))
	})
	f.awaitPhase("crawl-1", bus.PhaseRunning, 2*time.Minute)

	f.publish("crawl-1", `{"name":"crawl-1","desired":"absent"}`)
	f.awaitNoTrace("crawl-1", 2*time.Minute)
	if left := left(t, c, "proxies"); left != "" {
		t.Errorf("the cluster still has %s", left)
	}
	a.stop()
	for what, text := range map[string]string{"password": password, "token": string(token)} {
		if strings.Contains(a.output(), text) || strings.Contains(f.coordinator.output(), text) {
			t.Errorf("the %s was logged", what)
		}
	}
}

func podsOf(t *testing.T, c *kubetest.Cluster, namespace string) []corev1.Pod {
	t.Helper()
	list, err := c.API.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// left names everything in the namespace that an agent could have made.
func left(t *testing.T, c *kubetest.Cluster, namespace string) (out string) {
	t.Helper()
	ctx, opts := context.Background(), metav1.ListOptions{}
	secrets, err1 := c.API.CoreV1().Secrets(namespace).List(ctx, opts)
	services, err2 := c.API.CoreV1().Services(namespace).List(ctx, opts)
	policies, err3 := c.API.NetworkingV1().NetworkPolicies(namespace).List(ctx, opts)
	budgets, err4 := c.API.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, opts)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	for _, p := range podsOf(t, c, namespace) {
		out += " pod " + p.Name
	}
	for _, s := range secrets.Items {
		out += " secret " + s.Name
	}
	for _, s := range services.Items {
		out += " service " + s.Name
	}
	for _, p := range policies.Items {
		out += " networkpolicy " + p.Name
	}
	for _, b := range budgets.Items {
		out += " poddisruptionbudget " + b.Name
	}
	return out
}
