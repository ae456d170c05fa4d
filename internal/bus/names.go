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

func (n Names) Intents() string     { return n.stream("INTENTS") }
func (n Names) Assignments() string { return n.stream("ASSIGNMENTS") }
func (n Names) LeaseStream() string { return n.stream("LEASE") }
func (n Names) States() string      { return n.stream("STATES") }
func (n Names) Events() string      { return n.stream("EVENTS") }

// Buckets. Each has a key [FenceKey] that readers skip.

func (n Names) Proxies() string   { return n.bucket("proxies") }
func (n Names) Pools() string     { return n.bucket("pools") }
func (n Names) Hosts() string     { return n.bucket("hosts") }
func (n Names) Endpoints() string { return n.bucket("endpoints") }

// FenceKey is the key of a bucket that holds the leader's fence.
const FenceKey = "_fence"

// Subjects.

func (n Names) IntentProxy(proxy string) string { return n.root() + ".intent.proxy." + proxy }
func (n Names) IntentPool(pool string) string   { return n.root() + ".intent.pool." + pool }
func (n Names) Assign(host, proxy, uid string) string {
	return n.root() + ".assign." + host + "." + proxy + "." + uid
}
func (n Names) AssignHost(host string) string   { return n.root() + ".assign." + host + ".>" }
func (n Names) Ledger(kind, name string) string { return n.root() + ".ledger." + kind + "." + name }
func (n Names) Fence() string                   { return n.root() + ".fence" }
func (n Names) Lease() string                   { return n.root() + ".lease" }
func (n Names) StateHost(host string) string    { return n.root() + ".state." + host + ".host" }
func (n Names) EventProxy(proxy string) string  { return n.root() + ".event.proxy." + proxy }
func (n Names) EventHost(host string) string    { return n.root() + ".event.host." + host }
func (n Names) EventFleet() string              { return n.root() + ".event.fleet" }
func (n Names) Beat(host string) string         { return n.root() + ".beat." + host }
func (n Names) API() string                     { return n.root() + ".api" }
func (n Names) StateProxy(host, proxy, uid string) string {
	return n.root() + ".state." + host + ".proxy." + proxy + "." + uid
}

// Wildcards of each stream.

func (n Names) AllIntents() string { return n.root() + ".intent.>" }
func (n Names) AllAssign() string  { return n.root() + ".assign.>" }
func (n Names) AllLedger() string  { return n.root() + ".ledger.>" }
func (n Names) AllStates() string  { return n.root() + ".state.>" }
func (n Names) AllEvents() string  { return n.root() + ".event.>" }
func (n Names) AllBeats() string   { return n.root() + ".beat.*" }

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
	case p.Kind == "intent" && len(t) == 3, p.Kind == "ledger" && len(t) == 3:
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
