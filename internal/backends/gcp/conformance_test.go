package gcp

import (
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/gcp/gcpfake"
)

func TestMain(m *testing.M) { backendtest.Main(m, suite()) }

func TestConformance(t *testing.T) { backendtest.Run(t, suite()) }

// hostText is what the suite hands from process to process: how to reach the server, which lives in
// the process that made it.
type hostText struct {
	URL, Project, Dir string
	Change            string // of configuration, see changesOf
}

// servers are those of this process, by host.
var servers sync.Map

func serverOf(host string) *gcpfake.Server {
	s, _ := servers.Load(host)
	return s.(*gcpfake.Server)
}

func decode(host string) (h hostText) {
	_ = json.Unmarshal([]byte(host), &h)
	return h
}

const token = "ya29.the-agents-own"

// newHost makes a project, and a credentials file for it.
func newHost(t testing.TB, o gcpfake.Options, change string) string {
	o.Token = token
	s := gcpfake.New(t, o)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "credentials.json"), `{"type": "authorized_user", "client_id": "agent", "client_secret": "its-secret", "refresh_token": "its-refresh-token"}`)
	text, _ := json.Marshal(hostText{URL: s.URL(), Project: s.Project(), Dir: dir, Change: change})
	servers.Store(string(text), s)
	return string(text)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// network is the way to Google: the server, and in front of it the one that gives tokens.
type network struct {
	url string
	tr  *http.Transport
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.URL.Host {
	case "oauth2.googleapis.com":
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
			Body: io.NopCloser(strings.NewReader(`{"access_token": "` + token + `", "token_type": "Bearer", "expires_in": 3600}`))}, nil
	case "iamcredentials.googleapis.com":
		req = req.Clone(req.Context())
		req.URL.Scheme, req.URL.Host, _ = strings.Cut(n.url, "://")
	}
	return n.tr.RoundTrip(req)
}

func (n *network) CloseIdleConnections() { n.tr.CloseIdleConnections() }

func hostConfig() backends.HostConfig {
	return backends.HostConfig{
		Images:       map[string]backends.Image{"debian-13": {Family: "projects/debian-cloud/global/images/family/debian-13", CloudInit: new(bool)}, "ubuntu": {Family: "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"}},
		MachineTypes: map[string]backends.MachineType{"small": {Name: "e2-small"}, "spot": {Name: "e2-small", Spot: true}},
		Defaults:     backends.Defaults{Image: "debian-13", MachineType: "small", DiskGiB: 10},
	}
}

func config(host string) Config {
	h := decode(host)
	conf := Config{Project: h.Project, Zones: []string{"us-central1-a", "us-central1-b", "europe-west1-b"}, CredentialsFile: filepath.Join(h.Dir, "credentials.json"),
		Endpoints: Endpoints{Compute: h.URL, ResourceManager: h.URL}, Tags: []string{"crawl"}, Labels: map[string]string{"team": "Crawl Team"}, RequestTimeout: 5 * time.Second}
	if h.Change == "reserved" {
		conf.ReservedAddress = true
	}
	return conf
}

func openOn(host string, owner backends.Owner, log *slog.Logger) (*Backend, error) {
	return openWith(host, owner, log, config(host), hostConfig())
}

func openWith(host string, owner backends.Owner, log *slog.Logger, conf Config, hc backends.HostConfig) (*Backend, error) {
	h := decode(host)
	return New(conf, hc, Options{Owner: owner, Log: log, StateDir: filepath.Join(h.Dir, "state-"+owner.Installation+"-"+owner.HostID), Poll: 10 * time.Millisecond,
		Transport: &network{url: h.URL, tr: &http.Transport{}}})
}

// fakeSuite is the suite on simulated projects.
func fakeSuite() backendtest.Harness {
	var mu sync.Mutex
	n := 0
	return backendtest.Harness{
		NewHost: func(t testing.TB) string {
			host := newHost(t, gcpfake.Options{}, "reserved")
			b := &Backend{conf: config(host).withDefaults()}
			serverOf(host).AllowOnly(b.permissions()[b.conf.Project]...) // what the check asks for suffices
			return host
		},
		Open: func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
			return openOn(host, owner, log)
		},
		// Each request begins in another zone, so that one zone can be silent for one proxy only.
		Request: func(ref backends.Ref) backends.Request {
			mu.Lock()
			defer mu.Unlock()
			n++
			zones := []string{"us-central1-a", "us-central1-b"}
			return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, Image: "ubuntu", MachineType: "small", DiskGiB: 10,
				Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, UserData: []byte("#cloud-config\n{}\n"),
				Zones: []string{zones[n%2], zones[(n+1)%2]}}
		},
		Traces:   traces,
		Plants:   map[string]backendtest.Plant{"instance": plant("instances"), "disk": plant("disks"), "address": plant("addresses"), "firewall": plant("firewalls")},
		Oversize: func(req *backends.Request) { req.DiskGiB = 60000 },
		Unread: func(t testing.TB, host string, ref backends.Ref) func() {
			s := serverOf(host)
			zone := zoneNow(t, s, ref)
			s.Unreachable(zone, true)
			return func() { s.Unreachable(zone, false) }
		},
		Crash: func(t testing.TB, host string, ref backends.Ref) {
			s := serverOf(host)
			s.Terminate(zoneNow(t, s, ref), backends.InstanceName(ref.UID))
		},
		Vanish: func(t testing.TB, host string, ref backends.Ref) {
			s := serverOf(host)
			s.RemoveInstance(zoneNow(t, s, ref), backends.InstanceName(ref.UID))
		},
		Stall: func(t testing.TB, host string) func() {
			s := serverOf(host)
			resume := make(chan struct{})
			s.OnRequest(func(gcpfake.Request) gcpfake.Action { return gcpfake.Action{Before: func() { <-resume }} })
			return func() { s.OnRequest(nil); close(resume) }
		},
		Lockout: func(t testing.TB, host string) func() {
			s := serverOf(host)
			s.OnRequest(func(gcpfake.Request) gcpfake.Action {
				return gcpfake.Action{Error: &gcpfake.Error{Code: 401, Reason: "authError", Status: "UNAUTHENTICATED", Message: "Request had invalid authentication credentials."}}
			})
			return func() { s.OnRequest(nil) }
		},
	}
}

// keysOf are the resources that have a uid's name.
func keysOf(s *gcpfake.Server, uid string) (out []string) {
	for _, collection := range []string{"instances", "disks", "addresses", "firewalls"} {
		for _, key := range s.Keys(collection) {
			if strings.HasPrefix(filepath.Base(key), backends.InstanceName(uid)) {
				out = append(out, key)
			}
		}
	}
	return out
}

func zoneNow(t testing.TB, s *gcpfake.Server, ref backends.Ref) string {
	t.Helper()
	for _, key := range keysOf(s, ref.UID) {
		if parts := strings.Split(key, "/"); parts[4] == "instances" {
			return parts[3]
		}
	}
	t.Fatalf("there is no instance %s", backends.InstanceName(ref.UID))
	return ""
}

func traces(t testing.TB, host string, ref backends.Ref) []string {
	out := keysOf(serverOf(host), ref.UID)
	_ = filepath.WalkDir(decode(host).Dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, ref.UID) {
			out = append(out, filepath.Base(path))
		}
		return nil
	})
	slices.Sort(out)
	return out
}
