package proxmox

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"proxyfleet/internal/backends"
)

// spec is what a guest was told, as far as it can never change in place: name of a part →
// its value or a digest. Image, shape and disk size are not in it, because an agent's
// defaults may change under a proxy whose intent leaves them open; what exists stays.
type spec map[string]string

// rounds makes guessing a password from a digest about as slow as from the guest's own
// password file. A digest takes some milliseconds.
const rounds = 20_000

// specOf is a request's. Parts that may be secret are salted, slow digests.
func specOf(req backends.Request) (spec, error) {
	a := req.Access
	networks := make([]string, 0, len(a.AllowFrom))
	for _, n := range a.AllowFrom {
		networks = append(networks, n.String())
	}
	slices.Sort(networks)
	ports := slices.Sorted(slices.Values(a.ConnectPorts))
	s := spec{}
	for part, value := range map[string]any{
		"auth":      []string{a.Username, a.Password.Reveal()},
		"allowFrom": slices.Compact(networks),
		"egress":    []any{a.Private, slices.Compact(ports)},
		"userData":  req.UserData,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, backends.Wrap(backends.ErrPermanent, "check request", err, "proxy %s: %s", req.Proxy, part)
		}
		digest, err := pbkdf2.Key(sha256.New, string(text), []byte("proxyfleet\x00"+req.UID+"\x00"+part), rounds, 16)
		if err != nil {
			return nil, backends.Wrap(backends.ErrPermanent, "check request", err, "proxy %s: %s", req.Proxy, part)
		}
		s[part] = hex.EncodeToString(digest)
	}
	return s, nil
}

// differs names the parts in which a request differs from what a guest was told. A part
// that the guest's mark lacks, written by an older version, does not count.
func (s spec) differs(asked spec) []string {
	var out []string
	for part, value := range asked {
		if told, ok := s[part]; ok && told != value {
			out = append(out, part)
		}
	}
	slices.Sort(out)
	return out
}

func (s spec) String() string {
	parts := make([]string, 0, len(s))
	for k, v := range s {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func parseSpec(text string) spec {
	s := spec{}
	for _, f := range strings.Fields(text) {
		if k, v, ok := strings.Cut(f, "="); ok {
			s[k] = v
		}
	}
	return s
}

// checkUnchanged refuses a request that the guest of m was not made from.
func checkUnchanged(m mark, req backends.Request, asked spec) error {
	parts := m.Spec.differs(asked)
	if req.Port != 0 && req.Port != m.Port {
		parts = append(parts, "port "+strconv.Itoa(m.Port))
	}
	if len(parts) == 0 {
		return nil
	}
	return backends.Errorf(backends.ErrPermanent, "compare request",
		"proxy %s: its VM was made with another %s, which cannot change in place; it is kept as it is, and a new uid replaces it",
		req.Proxy, strings.Join(parts, ", "))
}
