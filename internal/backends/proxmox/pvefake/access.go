package pvefake

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"
)

// Grant gives privileges on a path and everything below it, as an ACL entry
// does. A grant on a deeper path replaces what was inherited, also when it is
// smaller: that is how Proxmox reads its ACL tree.
type Grant struct {
	Path       string
	Privileges []string
}

type principal struct {
	grants  []Grant
	enabled bool
	expires time.Time
	secret  string
	privSep bool // a token's rights are cut down to its own grants
}

// caller is who sends a request: a user's token.
type caller struct {
	user  string // name@realm
	token string // id, or "" for a ticket
}

func (a caller) String() string {
	if a.token == "" {
		return a.user
	}
	return a.user + "!" + a.token
}

// AddUser makes a user with these rights, or replaces it.
func (c *Cluster) AddUser(user string, grants ...Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkGrants(grants)
	c.users[user] = &principal{grants: grants, enabled: true}
}

// AddToken makes a token that has its user's rights and returns its secret.
// A user that does not exist is made, with these rights.
func (c *Cluster) AddToken(user, id string, grants ...Grant) (secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkGrants(grants)
	if c.users[user] == nil {
		c.users[user] = &principal{grants: grants, enabled: true}
	} else if len(grants) > 0 {
		c.t.Errorf("pvefake: user %s exists; its rights are set by SetGrants", user)
	}
	return c.addToken(user+"!"+id, &principal{})
}

// AddSeparatedToken makes a token with privilege separation for a user that
// exists: it has those of the user's rights that it was granted too.
func (c *Cluster) AddSeparatedToken(user, id string, grants ...Grant) (secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkGrants(grants)
	return c.addToken(user+"!"+id, &principal{grants: grants, privSep: true})
}

func (c *Cluster) addToken(full string, p *principal) string {
	p.enabled, p.secret = true, newUUID()
	c.tokens[full] = p
	return p.secret
}

// SetGrants replaces the rights of a user ("a@pve") or token ("a@pve!id").
func (c *Cluster) SetGrants(who string, grants ...Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkGrants(grants)
	c.principal(who).grants = grants
}

// ExpireToken makes a token end at an instant in the past.
func (c *Cluster) ExpireToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.principal(token).expires = c.clock.now().Add(-time.Hour)
}

// RotateToken gives a token a new secret and returns it; the old one fails.
func (c *Cluster) RotateToken(token string) (secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.principal(token)
	p.secret = newUUID()
	return p.secret
}

// DisableUser makes every authentication of the user fail.
func (c *Cluster) DisableUser(user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.principal(user).enabled = false
}

// principal is a user or token that a test names; see known.
func (c *Cluster) principal(who string) *principal {
	p := c.users[who]
	if strings.Contains(who, "!") {
		p = c.tokens[who]
	}
	if p == nil {
		c.t.Errorf("pvefake: no user or token %q", who)
		return &principal{}
	}
	return p
}

func (c *Cluster) checkGrants(grants []Grant) {
	known := Privileges(c.version)
	for _, g := range grants {
		for _, p := range g.Privileges {
			if !slices.Contains(known, p) {
				c.t.Errorf("pvefake: PVE %s has no privilege %q", c.version, p)
			}
		}
	}
}

// authenticate reads the Authorization header. It never says why a token was
// refused; Proxmox does not either.
func (c *Cluster) authenticate(header, cookie string) (caller, error) {
	if cookie != "" && header == "" {
		return caller{}, &apiError{status: 401, text: "Authentication failed!", empty: true}
	}
	value, ok := strings.CutPrefix(header, "PVEAPIToken")
	if !ok || value == "" {
		return caller{}, &apiError{status: 401, text: "No ticket", empty: true}
	}
	failed := &apiError{status: 401, text: "Authentication failed!", empty: true}
	full, secret, ok := strings.Cut(strings.TrimLeft(value, "= "), "=")
	user, id, ok2 := strings.Cut(full, "!")
	if !ok || !ok2 {
		return caller{}, failed
	}
	u, t := c.users[user], c.tokens[full]
	if u == nil || !u.enabled || t == nil || t.secret != secret {
		return caller{}, failed
	}
	if !t.expires.IsZero() && c.clock.now().After(t.expires) {
		return caller{}, failed
	}
	return caller{user: user, token: id}, nil
}

// tokenName is the part of the Authorization header before the secret.
func tokenName(header string) string {
	value, ok := strings.CutPrefix(header, "PVEAPIToken")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimLeft(value, "= "), "=")
	return name
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	const hex = "0123456789abcdef"
	var s strings.Builder
	for i, x := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			s.WriteByte('-')
		}
		s.WriteByte(hex[x>>4])
		s.WriteByte(hex[x&15])
	}
	return s.String()
}
