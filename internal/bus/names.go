package bus

import "strings"

// DefaultRoot is the root of all subjects where none is configured.
const DefaultRoot = "fleet"

// Names derives every subject, stream and bucket name from one root, so that two fleets
// can share an account. The zero value uses [DefaultRoot]. Root is a DNS label.
type Names struct{ Root string }

func (n Names) root() string {
	if n.Root == "" {
		return DefaultRoot
	}
	return n.Root
}

func (n Names) stream(s string) string {
	return strings.ToUpper(strings.ReplaceAll(n.root(), "-", "_")) + "_" + s
}

func (n Names) bucket(s string) string {
	return strings.ReplaceAll(n.root(), "-", "_") + "_" + s
}

// Streams.

// Intents is the stream of what people want.
func (n Names) Intents() string { return n.stream("INTENTS") }

// Assignments is the stream of the leader: assignments, ledger and fence.
func (n Names) Assignments() string { return n.stream("ASSIGNMENTS") }

// LeaseStream is the stream of the lease.
func (n Names) LeaseStream() string { return n.stream("LEASE") }

// States is the stream of what agents see.
func (n Names) States() string { return n.stream("STATES") }

// Events is the stream of what people are told.
func (n Names) Events() string { return n.stream("EVENTS") }

// Buckets. Each has a key [FenceKey] that readers skip.

// Proxies is the bucket of records, by proxy.
func (n Names) Proxies() string { return n.bucket("proxies") }

// Pools is the bucket of pools.
func (n Names) Pools() string { return n.bucket("pools") }

// Hosts is the bucket of hosts.
func (n Names) Hosts() string { return n.bucket("hosts") }

// Endpoints is the bucket of proxies that are healthy now, by pool and proxy.
func (n Names) Endpoints() string { return n.bucket("endpoints") }

// FenceKey is the key of a bucket that holds the leader's fence.
const FenceKey = "_fence"

// Subjects.

// IntentProxy is where the intent for a proxy is published.
func (n Names) IntentProxy(proxy string) string { return n.root() + ".intent.proxy." + proxy }

// IntentPool is where the intent for a pool is published.
func (n Names) IntentPool(pool string) string { return n.root() + ".intent.pool." + pool }

// Assign is the subject of one binding.
func (n Names) Assign(host, proxy, uid string) string {
	return n.root() + ".assign." + host + "." + proxy + "." + uid
}

// AssignHost matches all bindings of a host.
func (n Names) AssignHost(host string) string { return n.root() + ".assign." + host + ".>" }

// Ledger is the subject of a ledger entry; kind is proxy, pool or host.
func (n Names) Ledger(kind, name string) string { return n.root() + ".ledger." + kind + "." + name }

// Fence is the subject of the fence.
func (n Names) Fence() string { return n.root() + ".fence" }

// Lease is the subject of the lease.
func (n Names) Lease() string { return n.root() + ".lease" }

// StateHost is where an agent tells of its host.
func (n Names) StateHost(host string) string { return n.root() + ".state." + host + ".host" }

// EventProxy has the events of a proxy.
func (n Names) EventProxy(proxy string) string { return n.root() + ".event.proxy." + proxy }

// EventHost has the events of a host.
func (n Names) EventHost(host string) string { return n.root() + ".event.host." + host }

// EventPool has the events of a pool; its members have their own.
func (n Names) EventPool(pool string) string { return n.root() + ".event.pool." + pool }

// EventFleet has the events that are of no proxy, pool or host.
func (n Names) EventFleet() string { return n.root() + ".event.fleet" }

// Beat is where an agent shows that it lives.
func (n Names) Beat(host string) string { return n.root() + ".beat." + host }

// API is the group of the coordinator's micro service.
func (n Names) API() string { return n.root() + ".api" }

// StateProxy is where an agent tells of one binding.
func (n Names) StateProxy(host, proxy, uid string) string {
	return n.root() + ".state." + host + ".proxy." + proxy + "." + uid
}

// Wildcards of each stream.

// AllIntents matches every intent.
func (n Names) AllIntents() string { return n.root() + ".intent.>" }

// AllAssign matches every assignment.
func (n Names) AllAssign() string { return n.root() + ".assign.>" }

// AllLedger matches every ledger entry.
func (n Names) AllLedger() string { return n.root() + ".ledger.>" }

// AllStates matches every state.
func (n Names) AllStates() string { return n.root() + ".state.>" }

// AllEvents matches every event.
func (n Names) AllEvents() string { return n.root() + ".event.>" }

// AllBeats matches every beat.
func (n Names) AllBeats() string { return n.root() + ".beat.*" }

// Consumer is the name of a host's durable consumer of the assignments.
func (n Names) Consumer(host string) string { return "agent-" + host }

// Parsed is a subject taken apart. Fields that its kind does not have are empty.
type Parsed struct {
	Kind  string // "intent", "assign", "ledger", "fence", "lease", "state", "event", "beat"
	Class string // intent and ledger: "proxy" or "pool", ledger also "host"; state: "host" or "proxy"
	Name  string // intent and ledger: the name
	Host  string
	Proxy string
	UID   string
}

// Parse takes a subject of this root apart. ok is false for any other subject.
func (n Names) Parse(subject string) (p Parsed, ok bool) {
	rest, found := strings.CutPrefix(subject, n.root()+".")
	if !found {
		return Parsed{}, false
	}
	t := strings.Split(rest, ".")
	p.Kind = t[0]
	switch {
	case len(t) == 1 && (p.Kind == "fence" || p.Kind == "lease"):
	case p.Kind == "intent" && len(t) == 3 && (t[1] == "proxy" || t[1] == "pool"), p.Kind == "ledger" && len(t) == 3:
		p.Class, p.Name = t[1], t[2]
	case p.Kind == "assign" && len(t) == 4:
		p.Host, p.Proxy, p.UID = t[1], t[2], t[3]
	case p.Kind == "state" && len(t) == 3 && t[2] == "host":
		p.Host, p.Class = t[1], "host"
	case p.Kind == "state" && len(t) == 5 && t[2] == "proxy":
		p.Host, p.Class, p.Proxy, p.UID = t[1], "proxy", t[3], t[4]
	case p.Kind == "beat" && len(t) == 2:
		p.Host = t[1]
	default:
		return Parsed{}, false
	}
	return p, true
}
