package bus

import (
	"strings"

	"proxyfleet/internal/secret"
)

// Intent is what a person publishes for one proxy: always the whole document.
type Intent struct {
	Type    string  `json:"type,omitempty"`
	Name    string  `json:"name" jsonschema:"pattern=^[a-z0-9]([a-z0-9-]*[a-z0-9])?$,maxLength=52"`
	Desired Desired `json:"desired,omitempty" jsonschema:"enum=running,enum=stopped,enum=absent,default=running"` // default running
	Spec    Spec    `json:"spec,omitzero"`
}

// Spec says how a proxy should be. Every field but the access rule (auth, allowFrom, or
// both) has a default.
type Spec struct {
	// Port the proxy listens on. 0, the default, lets the host choose.
	Port int `json:"port,omitempty" jsonschema:"minimum=0,maximum=65535"`
	// Auth are the credentials that clients must present.
	Auth *Auth `json:"auth,omitempty"`
	// AllowFrom are the client networks in CIDR form. The whole world must be written out.
	AllowFrom []string `json:"allowFrom,omitempty"`
	// Image is a key of the host's images, or a URL where the host allows that.
	Image string `json:"image,omitempty"`
	// MachineType is a key of the host's machine types.
	MachineType string `json:"machineType,omitempty"`
	// DiskGiB is the size of the root disk; 0 is the host's default.
	DiskGiB int `json:"diskGiB,omitempty" jsonschema:"minimum=0"`
	// Zones are zones or regions of a cloud, the preferred one first; the proxy is made in the
	// first that has room. Only hosts that offer one of them take it. Empty: the host's choice.
	Zones []string `json:"zones,omitempty"`
	// Address is where clients reach a proxy of a cloud. Empty: the host's choice.
	Address string `json:"address,omitempty" jsonschema:"enum=internal,enum=external"`
	// Egress loosens what clients may reach through the proxy.
	Egress *Egress `json:"egress,omitempty"`
	// Placement restricts the hosts.
	Placement Placement `json:"placement,omitzero"`
	// CloudInit is the user's own cloud-init user-data, passed to the guest byte for byte.
	CloudInit string `json:"cloudInit,omitempty"`
	// CloudInitBase64 is the same for user-data that is not text. At most one of both.
	CloudInitBase64 string `json:"cloudInitBase64,omitempty"`
	// OnHostLoss says what happens when the host falls silent: "replace" (the default)
	// places the proxy elsewhere after a delay, "wait" does not. Kept, and not acted on yet.
	OnHostLoss string `json:"onHostLoss,omitempty" jsonschema:"enum=replace,enum=wait,default=replace"`
}

// Auth are a proxy's credentials. Both are printable ASCII; the name has no colon.
type Auth struct {
	Username string        `json:"username" jsonschema:"minLength=1,pattern=^[ -9;-~]+$"`
	Password secret.String `json:"password" jsonschema:"minLength=1,pattern=^[ -~]+$"`
}

// Egress loosens the closed rules on destinations. The zero value is closed.
type Egress struct {
	// Private allows private ranges (RFC 1918, ULA, CGNAT) as destinations. Loopback,
	// link-local, the proxy's own addresses and cloud metadata stay refused.
	Private bool `json:"private,omitempty"`
	// ConnectPorts are allowed for CONNECT beside 443.
	ConnectPorts []int `json:"connectPorts,omitempty"`
}

// Placement restricts where a proxy may run. Empty fields match every host.
type Placement struct {
	Host    string            `json:"host,omitempty"`
	Backend string            `json:"backend,omitempty"`
	Zone    string            `json:"zone,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// AntiAffinity names proxies that must not be on the same host, a * at the end for any
	// that begin so. It holds for both sides, whichever was placed first.
	AntiAffinity []string `json:"antiAffinity,omitempty"`
	// Prefer are hosts to be taken before others that fit as well.
	Prefer Preference `json:"prefer,omitzero"`
}

// Preference is what a host should be like where there is a choice. Of several hosts that
// which has the most of it is taken, whatever the load.
type Preference struct {
	Zone   string            `json:"zone,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// KeepsFrom reports whether p keeps its proxy, called self, away from the proxy called other.
func (p Placement) KeepsFrom(self, other string) bool {
	if self == other {
		return false
	}
	for _, pattern := range p.AntiAffinity {
		if prefix, ok := strings.CutSuffix(pattern, "*"); pattern == other || ok && strings.HasPrefix(other, prefix) {
			return true
		}
	}
	return false
}
