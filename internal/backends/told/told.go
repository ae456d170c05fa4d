// Package told keeps what a guest was told at its first boot, as far as that can never change in
// place, so that a request for something else is noticed. Nothing secret can be read from it.
//
// It imports the contract only and is pure.
package told

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

// Parts are what a guest was told: name of a part → a digest of its value. Image, shape and disk
// size are not in it, because an agent's defaults may change under a proxy whose intent leaves them
// open; what exists stays.
type Parts map[string]string

// rounds makes guessing a password from a digest about as slow as from the guest's own
// password file. A digest takes some milliseconds.
const rounds = 20_000

// Of is a request's. Each part is a salted, slow digest.
func Of(req backends.Request) (Parts, error) {
	a := req.Access
	networks := make([]string, 0, len(a.AllowFrom))
	for _, n := range a.AllowFrom {
		networks = append(networks, n.String())
	}
	slices.Sort(networks)
	ports := slices.Sorted(slices.Values(a.ConnectPorts))
	p := Parts{}
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
		p[part] = hex.EncodeToString(digest)
	}
	return p, nil
}

// Differs names the parts in which a request differs from what a guest was told, sorted. A part
// that the guest's lack, written by an older version, does not count.
func (p Parts) Differs(asked Parts) []string {
	var out []string
	for part, value := range asked {
		if told, ok := p[part]; ok && told != value {
			out = append(out, part)
		}
	}
	slices.Sort(out)
	return out
}

// String is one line, for [Parse].
func (p Parts) String() string {
	parts := make([]string, 0, len(p))
	for k, v := range p {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// Parse reads what String wrote.
func Parse(text string) Parts {
	p := Parts{}
	for f := range strings.FieldsSeq(text) {
		if k, v, ok := strings.Cut(f, "="); ok {
			p[k] = v
		}
	}
	return p
}

// Unchanged refuses a request for something else than a guest was told, as ErrPermanent; port is
// the one that it listens on, thing what people call it ("VM").
func (p Parts) Unchanged(thing string, port int, req backends.Request, asked Parts) error {
	parts := p.Differs(asked)
	if req.Port != 0 && req.Port != port {
		parts = append(parts, "port "+strconv.Itoa(port))
	}
	if len(parts) == 0 {
		return nil
	}
	return backends.Errorf(backends.ErrPermanent, "compare request",
		"proxy %s: its %s was made with another %s, which cannot change in place; it is kept as it is, and a new uid replaces it",
		req.Proxy, thing, strings.Join(parts, ", "))
}
