package kubernetes

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// standIn is the host of requests before they are sent.
const standIn = "kubernetes.invalid"

// access sends requests to the API server with the credentials that stand in the files at
// that moment, so that tokens, certificates and whole kubeconfigs are exchanged without a
// restart. The files are small and are compared by their content: a second change within
// one time stamp counts. A connection of older credentials serves what is on its way.
type access struct {
	load func() (*rest.Config, error) // reads the configuration anew
	from []string                     // files to look at before anything was loaded

	conns connections

	mu     sync.Mutex // guards what follows
	files  []string   // that the configuration was made of
	texts  [][]byte   // their content then
	sender http.RoundTripper
	server *url.URL
}

// credentialError says that the credentials cannot be read.
type credentialError struct{ cause error }

func (e *credentialError) Error() string {
	return "the credentials for the API server cannot be used: " + e.cause.Error()
}
func (e *credentialError) Unwrap() error { return e.cause }

func newAccess(conf Config, serviceAccount string) *access {
	if conf.Kubeconfig == "" {
		return &access{load: func() (*rest.Config, error) { return inCluster(serviceAccount) }, from: []string{filepath.Join(serviceAccount, "token")}}
	}
	return &access{from: []string{conf.Kubeconfig}, load: func() (*rest.Config, error) {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: conf.Kubeconfig}
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: conf.Context}).ClientConfig()
	}}
}

// inCluster is rest.InClusterConfig for a directory that is known.
func inCluster(dir string) (*rest.Config, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, rest.ErrNotInCluster
	}
	return &rest.Config{Host: "https://" + net.JoinHostPort(host, port), BearerTokenFile: filepath.Join(dir, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")}}, nil
}

// RoundTrip implements [http.RoundTripper].
func (a *access) RoundTrip(req *http.Request) (*http.Response, error) {
	sender, server, err := a.current()
	if err != nil {
		return nil, &credentialError{err}
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = server.Scheme, server.Host, ""
	out.URL.Path = strings.TrimSuffix(server.Path, "/") + out.URL.Path
	return sender.RoundTrip(out)
}

// close ends all connections.
func (a *access) close() { a.conns.close() }

// current is the sender for the files as they are now.
func (a *access) current() (http.RoundTripper, *url.URL, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sender != nil {
		texts, err := readAll(a.files)
		if err != nil {
			return nil, nil, err
		}
		if same(texts, a.texts) {
			return a.sender, a.server, nil
		}
	}
	if err := a.renew(); err != nil {
		return nil, nil, err
	}
	return a.sender, a.server, nil
}

// renew reads everything anew. The caller holds mu.
func (a *access) renew() error {
	// Each file is remembered as it was before it was used: a change in between is seen by
	// the next request.
	texts, err := readAll(a.from)
	if err != nil {
		return err
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	var named []string
	for _, f := range []string{cfg.BearerTokenFile, cfg.CAFile, cfg.CertFile, cfg.KeyFile} {
		if f != "" {
			named = append(named, f)
		}
	}
	more, err := readAll(named)
	if err != nil {
		return err
	}
	texts = append(texts, more...)
	sender, server, err := a.senderFor(cfg)
	if err != nil {
		return err
	}
	if a.sender != nil {
		(&http.Client{Transport: a.sender}).CloseIdleConnections()
	}
	a.files, a.texts, a.sender, a.server = slices.Concat(a.from, named), texts, sender, server
	return nil
}

// senderFor makes a transport that has all credentials in memory: client-go would read
// token files again once a minute only.
func (a *access) senderFor(cfg *rest.Config) (http.RoundTripper, *url.URL, error) {
	if cfg.BearerTokenFile != "" {
		token, err := os.ReadFile(cfg.BearerTokenFile)
		if err != nil {
			return nil, nil, err
		}
		if cfg.BearerToken = strings.TrimSpace(string(token)); cfg.BearerToken == "" {
			return nil, nil, fmt.Errorf("the token file %s is empty", cfg.BearerTokenFile)
		}
		cfg.BearerTokenFile = ""
	}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, nil, err
	}
	// A dialler of our own also keeps client-go from sharing the transport with other users
	// of the same CA, whose connections are not ours to close.
	cfg.Dial = a.conns.dial
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, nil, err
	}
	sender, err := rest.TransportFor(cfg)
	return sender, server, err
}

func readAll(files []string) ([][]byte, error) {
	out := make([][]byte, len(files))
	for i, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		out[i] = text
	}
	return out, nil
}

func same(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
