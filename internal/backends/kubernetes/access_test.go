package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"proxyfleet/internal/backends"
)

// echo answers with the credentials and the path that a request came with.
func echo(t *testing.T) (server *httptest.Server, ca string) {
	t.Helper()
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Saw", r.Header.Get("Authorization")+" "+r.URL.Path)
	}))
	t.Cleanup(server.Close)
	return server, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ask(a *access) (saw string, err error) {
	resp, err := (&http.Client{Transport: a}).Get("https://" + standIn + "/api")
	if err != nil {
		return "", err
	}
	_ = resp.Body.Close()
	return resp.Header.Get("Saw"), nil
}

func kubeconfig(server, ca, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: '%s', certificate-authority: '%s'}}]
users: [{name: u, user: %s}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server, ca, user)
}

func TestCredentialsAreThoseThatStandInTheFilesNow(t *testing.T) {
	dir := t.TempDir()
	one, caOne := echo(t)
	two, caTwo := echo(t)
	config, token, ca := filepath.Join(dir, "config"), filepath.Join(dir, "token"), filepath.Join(dir, "ca")
	a := newAccess(Config{Kubeconfig: config}, "")
	defer a.close()
	if _, err := ask(a); err == nil {
		t.Error("it asks without a kubeconfig")
	} else if class, _ := judgeError(err); class != backends.ErrHostFault || code(err) != backends.CheckCredentialsUnavailable {
		t.Errorf("without a kubeconfig: got %v, %s", class, code(err))
	}
	expect := func(what, want string) {
		t.Helper()
		if saw, err := ask(a); err != nil || saw != want {
			t.Errorf("%s: the server saw %q (%v), want %q", what, saw, err, want)
		}
	}
	put(t, ca, caOne)
	put(t, token, "first\n")
	put(t, config, kubeconfig(one.URL, ca, "{tokenFile: token}")) // beside the kubeconfig
	expect("the file came", "Bearer first /api")
	put(t, token, "again\n") // of the same size, within one time stamp
	expect("the token changed", "Bearer again /api")
	put(t, config, kubeconfig(one.URL, ca, "{token: inline}"))
	expect("the kubeconfig changed", "Bearer inline /api")
	put(t, ca, caTwo)
	put(t, config, kubeconfig(two.URL+"/clusters/x", ca, "{token: inline}"))
	expect("the cluster moved", "Bearer inline /clusters/x/api")
	put(t, ca, "no certificate")
	if _, err := ask(a); err == nil {
		t.Error("it trusts a server without a CA")
	}
	put(t, ca, caTwo)
	expect("the CA was mended", "Bearer inline /clusters/x/api")
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(a); err == nil {
		t.Error("it goes on with credentials that were taken away")
	}
}

func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAnotherCANamesTheCertificate(t *testing.T) {
	dir := t.TempDir()
	server, _ := echo(t)
	ca := filepath.Join(dir, "ca")
	put(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: selfSigned(t)})))
	put(t, filepath.Join(dir, "config"), kubeconfig(server.URL, ca, "{token: x}"))
	a := newAccess(Config{Kubeconfig: filepath.Join(dir, "config")}, "")
	defer a.close()
	_, err := ask(a)
	if class, _ := judgeError(err); class != backends.ErrHostFault || code(err) != backends.CheckCertificateInvalid {
		t.Errorf("got %v, %s; want the certificate at fault (%v)", class, code(err), err)
	}
}

func TestInAClusterTheServiceAccountIsUsed(t *testing.T) {
	dir := t.TempDir()
	server, ca := echo(t)
	a := newAccess(Config{}, dir)
	defer a.close()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := ask(a); err == nil {
		t.Error("it asks outside a cluster")
	}
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", at.Hostname())
	t.Setenv("KUBERNETES_SERVICE_PORT", at.Port())
	put(t, filepath.Join(dir, "ca.crt"), ca)
	for _, token := range []string{"first", "second"} { // as the kubelet exchanges it
		put(t, filepath.Join(dir, "token"), token)
		if saw, err := ask(a); err != nil || saw != "Bearer "+token+" /api" {
			t.Errorf("the server saw %q (%v), want the token %s", saw, err, token)
		}
	}
	put(t, filepath.Join(dir, "token"), "")
	if _, err := ask(a); err == nil {
		t.Error("it asks without a token")
	}
}
