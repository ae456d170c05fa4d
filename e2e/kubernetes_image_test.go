//go:build real

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"proxyfleet/internal/backends/kubernetes/kubetest"
	"proxyfleet/internal/bus"
)

// TestTheAgentRunsAsItsImageAndManifestsSay builds what deploy/kubernetes/agent.Dockerfile builds
// and runs it with the arguments, files and rights of the Deployment: as its user, in a root that
// it cannot write to and that has nothing else.
func TestTheAgentRunsAsItsImageAndManifestsSay(t *testing.T) {
	c := kubetest.Start(t)
	f := newFleet(t, "always")
	a := deployed(t, f, c)

	var address string
	eventually(t, time.Minute, func() error {
		found := regexp.MustCompile(`metrics and health address=(\S+)`).FindStringSubmatch(a.output())
		if found == nil {
			return fmt.Errorf("it does not say where it listens")
		}
		address = found[1]
		return nil
	})
	for _, path := range []string{"/healthz", "/metrics"} {
		eventually(t, time.Minute, func() error {
			answer, err := http.Get("http://" + address + path)
			if err != nil {
				return err
			}
			defer func() { _ = answer.Body.Close() }()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s says %s", path, answer.Status)
			}
			return nil
		})
	}
	f.publish("crawl-1", `{"name":"crawl-1","spec":{"auth":{"username":"crawler","password":"secret"}}}`)
	if r := f.awaitPhase("crawl-1", bus.PhaseRunning, 2*time.Minute); r.Host != "k8s-1" {
		t.Errorf("it runs on %s", r.Host)
	}
	f.publish("crawl-1", `{"name":"crawl-1","desired":"absent"}`)
	f.awaitNoTrace("crawl-1", 2*time.Minute)
	if left := left(t, c, "proxyfleet-proxies"); left != "" {
		t.Errorf("the cluster still has %s", left)
	}
	a.stop()
}

// deployed applies the manifests, less what needs controllers, and runs the Deployment's container.
func deployed(t *testing.T, f *fleet, c *kubetest.Cluster) *proc {
	t.Helper()
	spec, config := apply(t, c)
	for from, to := range map[string]string{"tls://nats.example.org:4222": f.url, "':9464'": "127.0.0.1:0"} {
		if !strings.Contains(config, from) {
			t.Fatalf("the configuration does not say %s:\n%s", from, config)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	config += "\nprobe: {disabled: true}\n" // nothing runs in kwok's Pods

	r := container{t, t.TempDir()}
	mustRun(t, "chmod", "o+x", filepath.Dir(r.root), r.root) // a test's directories are its user's alone
	entry := r.image()
	r.serviceAccount(c)
	r.volumes(spec, config)
	server, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		t.Fatal(err)
	}
	user := fmt.Sprint(*spec.SecurityContext.RunAsUser)
	args := append([]string{"-i", "KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port(),
		chroot, "--userspec=" + user + ":" + user, "--groups=" + user, r.root, entry}, spec.Containers[0].Args...)
	return start(t, nil, "env", args...)
}

// apply makes what the manifests have, and returns the Deployment's Pod and the agent.yaml.
func apply(t *testing.T, c *kubetest.Cluster) (spec corev1.PodSpec, config string) {
	t.Helper()
	ctx := context.Background()
	c.AddNamespace(t, "proxyfleet")
	c.AddNamespace(t, "proxyfleet-proxies")
	for _, o := range append(kubetest.Manifest(t, "agent.yaml"), kubetest.Manifest(t, "rbac.yaml")...) {
		var err error
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			_, err = c.API.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.Role:
			_, err = c.API.RbacV1().Roles(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			_, err = c.API.RbacV1().RoleBindings(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.ClusterRole:
			_, err = c.API.RbacV1().ClusterRoles().Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.ClusterRoleBinding:
			_, err = c.API.RbacV1().ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
		case *corev1.ConfigMap:
			config = o.Data["agent.yaml"]
		case *appsv1.Deployment:
			spec = o.Spec.Template.Spec
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return spec, config
}

// container is a root directory that becomes a container's.
type container struct {
	t    *testing.T
	root string
}

// put writes a file that the container's user may read and not write.
func (r container) put(path, text string, mode os.FileMode) {
	r.t.Helper()
	path = filepath.Join(r.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
}

// serviceAccount is what the kubelet mounts of the agent's.
func (r container) serviceAccount(c *kubetest.Cluster) {
	r.t.Helper()
	admin, err := clientcmd.LoadFromFile(c.Admin)
	if err != nil {
		r.t.Fatal(err)
	}
	ca, err := os.ReadFile(admin.Clusters["test"].CertificateAuthority)
	if err != nil {
		r.t.Fatal(err)
	}
	const dir = "var/run/secrets/kubernetes.io/serviceaccount/"
	r.put(dir+"token", c.Token(r.t, "proxyfleet", "proxyfleet-agent"), 0o644)
	r.put(dir+"ca.crt", string(ca), 0o644)
}

// volumes are the Pod's, as the kubelet mounts them.
func (r container) volumes(spec corev1.PodSpec, config string) {
	r.t.Helper()
	for _, m := range spec.Containers[0].VolumeMounts {
		switch m.Name {
		case "config":
			r.put(m.MountPath, config, 0o644)
		case "nats":
			r.put(filepath.Join(m.MountPath, "agent.creds"), creds(r.t), 0o644)
		case "state": // made fit for the Pod's group
			dir := filepath.Join(r.root, m.MountPath)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				r.t.Fatal(err)
			}
			mustRun(r.t, "chgrp", fmt.Sprint(*spec.SecurityContext.FSGroup), dir)
			mustRun(r.t, "chmod", "2775", dir)
		default:
			r.t.Errorf("nobody knows what volume %s is", m.Name)
		}
	}
}

// image builds what the Dockerfile builds, puts there what it puts into the image, and returns
// the entry point.
func (r container) image() (entry string) {
	t := r.t
	t.Helper()
	text, err := os.ReadFile("../deploy/kubernetes/agent.Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	_, stages, _ := strings.Cut(string(text), "\nFROM golang")
	for line := range strings.Lines(stages) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "RUN":
			if !strings.Contains(rest, "go build") {
				continue // the modules are here
			}
			build := exec.Command("sh", "-c", strings.ReplaceAll(rest, "/out/", out+"/"))
			build.Dir = ".."
			if said, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", rest, err, said)
			}
		case "COPY":
			from, to, ok := strings.Cut(strings.TrimPrefix(rest, "--from=build "), " ")
			if !ok || from == rest || strings.HasPrefix(from, "go.mod") || from == "." {
				continue // into the stage that builds
			}
			file, err := os.ReadFile(strings.ReplaceAll(from, "/out/", out+"/"))
			if err != nil {
				t.Fatal(err)
			}
			r.put(to, string(file), 0o755)
		case "ENTRYPOINT":
			entry = strings.Trim(rest, `[]"`)
		}
	}
	return entry
}

// creds are credentials of NATS; the server of the tests wants none.
func creds(t *testing.T) string {
	t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return "-----BEGIN NATS USER JWT-----\nbm9ib2R5\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n" + string(seed) + "\n------END USER NKEY SEED------\n"
}
