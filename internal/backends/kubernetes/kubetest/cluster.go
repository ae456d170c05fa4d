package kubetest

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"crypto/x509/pkix"

	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Held begins the images of Pods that kwok leaves alone.
const Held = "held.example.org/"

//go:embed stages.yaml
var stages []byte

// startTime is how long a program may take until it answers, on a machine that is busy.
const startTime = 2 * time.Minute

// Cluster is running until its test ends.
type Cluster struct {
	// Admin is the path of a kubeconfig that may do everything.
	Admin string
	// API has Admin's rights.
	API clientset.Interface

	t      testing.TB // whose end is the cluster's
	dir    string
	etcd   string // URL
	port   int
	server *program
}

// Start runs a cluster until t ends. It has two nodes, node-a and node-b, in a zone each, with
// eight processors and 16 GiB.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), port: freePort(t)}
	ca := newAuthority(t, c.path("ca.crt"))
	ca.issue(t, c.path("server"), pkix.Name{CommonName: "kube-apiserver"}, net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1))
	ca.issue(t, c.path("admin"), pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}})
	writeKey(t, c.path("accounts.key"), newKey(t))
	c.Admin = c.Kubeconfig(t, "admin", &clientcmdapi.AuthInfo{ClientCertificate: c.path("admin.crt"), ClientKey: c.path("admin.key")})
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Admin)
	must(t, err)
	cfg.QPS = -1
	c.API, err = clientset.NewForConfig(cfg)
	must(t, err)

	c.startEtcd(t)
	c.server = c.startServer(t)
	c.schedule(t)
	c.startKwok(t)
	for _, name := range []string{"node-a", "node-b"} {
		c.AddNode(t, name, "8", "16Gi")
	}
	return c
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// URL is where the API server listens.
func (c *Cluster) URL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.port) }

// Kubeconfig writes a kubeconfig for a user and returns its path.
func (c *Cluster) Kubeconfig(t testing.TB, name string, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["test"] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthority: c.path("ca.crt")}
	cfg.AuthInfos[name] = user
	cfg.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: name}
	cfg.CurrentContext = "test"
	path := c.path(name + ".kubeconfig")
	must(t, clientcmd.WriteToFile(*cfg, path))
	return path
}

func (c *Cluster) startEtcd(t testing.TB) {
	t.Helper()
	port, peer := freePort(t), freePort(t)
	c.etcd = fmt.Sprintf("http://127.0.0.1:%d", port)
	peers := fmt.Sprintf("http://127.0.0.1:%d", peer)
	run(t, c.path("etcd.log"), tool(t, "PROXYFLEET_ETCD"), "--data-dir", c.path("etcd"), "--listen-client-urls", c.etcd, "--advertise-client-urls", c.etcd,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--unsafe-no-fsync", "--log-level", "warn")
	eventually(t, "etcd", func() error { return dial(port) })
}

func (c *Cluster) startServer(t testing.TB) *program {
	t.Helper()
	p := run(c.t, c.path("apiserver.log"), tool(t, "PROXYFLEET_KUBE_APISERVER"),
		"--etcd-servers", c.etcd, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", fmt.Sprint(c.port),
		"--tls-cert-file", c.path("server.crt"), "--tls-private-key-file", c.path("server.key"), "--client-ca-file", c.path("ca.crt"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-signing-key-file", c.path("accounts.key"),
		"--service-account-key-file", c.path("accounts.key"), "--service-cluster-ip-range", "10.96.0.0/16", "--authorization-mode", "RBAC",
		"--endpoint-reconciler-type", "none", "--cert-dir", c.path("certs"), "--profiling=false")
	eventually(t, "kube-apiserver", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := c.API.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
	return p
}

func (c *Cluster) startKwok(t testing.TB) {
	t.Helper()
	must(t, os.WriteFile(c.path("stages.yaml"), stages, 0o600))
	run(t, c.path("kwok.log"), tool(t, "PROXYFLEET_KWOK"), "--kubeconfig", c.Admin, "--config", c.path("stages.yaml"), "--manage-all-nodes",
		"--node-lease-duration-seconds", "0", "--cidr", "10.244.0.0/16", "--node-ip", "192.0.2.1")
}

// StopServer ends the API server with SIGKILL; StartServer brings it back on the same port,
// with an empty watch cache.
func (c *Cluster) StopServer() { c.server.kill() }

// StartServer runs the API server again after StopServer.
func (c *Cluster) StartServer(t testing.TB) { c.server = c.startServer(t) }

// Restart is StopServer and StartServer.
func (c *Cluster) Restart(t testing.TB) {
	c.StopServer()
	c.StartServer(t)
}

// Stall makes the API server hang until resume is called.
func (c *Cluster) Stall(t testing.TB) (resume func()) {
	must(t, c.server.cmd.Process.Signal(syscall.SIGSTOP))
	return func() { must(t, c.server.cmd.Process.Signal(syscall.SIGCONT)) }
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func dial(port int) error {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// eventually waits until something of the cluster is as wanted.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(startTime); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, startTime, err)
		}
	}
}
