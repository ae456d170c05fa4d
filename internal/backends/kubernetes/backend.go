package kubernetes

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"

	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"proxyfleet/internal/backends"
)

// Kind is this backend's.
const Kind = "kubernetes"

// DefaultPort is where a proxy listens when its request leaves that open: each has an
// address of its own.
const DefaultPort = 3128

// Backend makes proxies real in one namespace. See [backends.Backend].
type Backend struct {
	conf   Config
	host   backends.HostConfig
	owner  backends.Owner
	log    *slog.Logger
	access *access
	api    clientset.Interface
	meta   metadata.Interface
	seen   *informers
	pools  pools
	names  names
}

var (
	_ backends.Backend = (*Backend)(nil)
	_ backends.Watcher = (*Backend)(nil)
)

// Requests of one agent: a burst is what creating a pool takes, a rate what API servers
// take from a controller. Priority and fairness of the server have the last word.
const (
	requestsPerSecond = 100
	requestsInBurst   = 200
)

// New checks the configuration and makes a backend. It waits for no answer: an agent starts
// while its cluster is away. Watching begins at once and ends with Close.
func New(conf Config, host backends.HostConfig, opts Options) (*Backend, error) {
	conf = conf.withDefaults()
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("backend kubernetes: %w", err)
	}
	if err := validateHost(host); err != nil {
		return nil, fmt.Errorf("backend kubernetes: %w", err)
	}
	if !isName(opts.Owner.Installation) || !isName(opts.Owner.HostID) {
		return nil, fmt.Errorf("backend kubernetes: installation %q and host id %q must be lower-case ULIDs", opts.Owner.Installation, opts.Owner.HostID)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.ServiceAccountDir == "" {
		opts.ServiceAccountDir = DefaultServiceAccountDir
	}
	a := newAccess(conf, opts.ServiceAccountDir)
	// The address is a stand-in: access sends each request to the server that its
	// configuration names by then.
	shared := &rest.Config{Host: "https://" + standIn, UserAgent: "proxyfleet-agent", QPS: requestsPerSecond, Burst: requestsInBurst,
		ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"}}
	client := &http.Client{Transport: a}
	api, err := clientset.NewForConfigAndClient(shared, client)
	if err != nil {
		return nil, fmt.Errorf("backend kubernetes: %w", err)
	}
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(shared), client)
	if err != nil {
		return nil, fmt.Errorf("backend kubernetes: %w", err)
	}
	b := &Backend{conf: conf, host: host, owner: opts.Owner, log: opts.Log, access: a, api: api, meta: meta, names: names{resolver: net.DefaultResolver}}
	b.seen = watchCluster(b)
	return b, nil
}

// Kind implements [backends.Backend].
func (b *Backend) Kind() string { return Kind }

// InPlace implements [backends.Backend]. The Pod is replaced by one with the changed rules,
// and may have another address; name, Service, port and uid stay.
func (b *Backend) InPlace() []backends.Field {
	return []backends.Field{backends.FieldAuth, backends.FieldAllowFrom, backends.FieldEgress}
}

// Close implements [backends.Backend].
func (b *Backend) Close() error {
	b.seen.stop()
	b.access.close()
	return nil
}
