package gcpfake

import (
	"context"
	"crypto/rsa"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// projectNumber is the number of every project.
const projectNumber = "123456789012"

// Options of a server. The zero value has one project with networks, machine types and images.
type Options struct {
	Project string   // default "fleet-test"
	Zones   []string // default us-central1-a, us-central1-b, europe-west1-b
	// Latency is how long an operation takes; default 20 ms.
	Latency time.Duration
	// PageSize is the largest page of a list, whatever a client asks for; default 500, as
	// Google's.
	PageSize int
	// Token, if any, is good for ever, and a request without a good token is refused.
	Token string
	// InProcess opens no socket; requests come through Client.
	InProcess bool
}

// Server is Compute Engine, and of Resource Manager and IAM as much as belongs to it. Its
// methods may be called at any time and from hooks.
type Server struct {
	t         testing.TB
	options   Options
	discovery *discovery
	http      *httptest.Server
	ctx       context.Context // ends with the test

	mu         sync.Mutex // guards the fields that follow
	changed    chan struct{}
	projects   map[string]bool
	resources  map[string]*resource // by key: projects/p/zones/z/instances/n
	byRequest  map[string]replay
	pending    []*operation
	held       int
	stockOut   map[string]*stock // by zone
	quotas     map[string]map[string]float64
	silent     map[string]bool // zones and regions that do not answer
	denied     map[string]bool // permissions
	granted    map[string]bool // permissions; nil: all but those denied
	serial     map[string]string
	lastID     uint64
	lastIP     map[string]int
	requests   []*Request
	hook       func(Request) Action
	fates      []*Fate
	authentic  bool // a request must carry one of tokens
	tokens     map[string]bool
	accountKey *rsa.PublicKey // of the service account, nil where it has none
	rate       rate
	rateRecent []time.Time
}

// New starts a server that ends with the test.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	d, err := loadDiscovery()
	if err != nil {
		t.Fatalf("gcpfake: %v", err)
	}
	if o.Project == "" {
		o.Project = "fleet-test"
	}
	if o.Zones == nil {
		o.Zones = []string{"us-central1-a", "us-central1-b", "europe-west1-b"}
	}
	if o.Latency == 0 {
		o.Latency = 20 * time.Millisecond
	}
	if o.PageSize == 0 {
		o.PageSize = 500
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		t: t, options: o, discovery: d, ctx: ctx, changed: make(chan struct{}),
		projects: map[string]bool{}, resources: map[string]*resource{}, byRequest: map[string]replay{},
		stockOut: map[string]*stock{}, quotas: map[string]map[string]float64{}, silent: map[string]bool{},
		denied: map[string]bool{}, serial: map[string]string{}, lastID: 4_000_000_000_000_000_000, lastIP: map[string]int{}, tokens: map[string]bool{},
	}
	s.furnish(o.Project)
	if o.Token != "" {
		s.authentic, s.tokens[o.Token] = true, true
	}
	if o.InProcess {
		t.Cleanup(cancel)
		return s
	}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() {
		cancel()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// URL is the endpoint for option.WithEndpoint: http://127.0.0.1:port.
func (s *Server) URL() string {
	if s.http == nil {
		return "http://compute.test"
	}
	return s.http.URL
}

// Project is the first project.
func (s *Server) Project() string { return s.options.Project }

// Client talks to the server without a socket, whatever the host, so that it works in
// testing/synctest.
func (s *Server) Client() *http.Client { return &http.Client{Transport: roundTripper{s}} }

type roundTripper struct{ s *Server }

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	if req.Body != nil {
		defer req.Body.Close()
	} else {
		req.Body = http.NoBody
	}
	aborted := func() (aborted bool) {
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				aborted = true
			} else if p != nil {
				panic(p)
			}
		}()
		r.s.ServeHTTP(rec, req)
		return false
	}()
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if aborted {
		return nil, errCut
	}
	return rec.Result(), nil
}

// locked runs f with the state locked and up to date, and wakes whoever waits.
func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	f()
	s.wake()
}

// wake tells waiting calls to look again.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}
