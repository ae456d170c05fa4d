package pvefake

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// privileges of who on path; the value tells whether it is inherited further.
func (c *Cluster) privileges(who caller, path string) map[string]int {
	own := c.effective(c.users[who.user], path)
	if who.token == "" {
		return own
	}
	t := c.tokens[who.String()]
	if t == nil {
		return nil
	}
	if !t.privSep {
		return own
	}
	cut := map[string]int{}
	for p := range c.effective(t, path) {
		if _, ok := own[p]; ok {
			cut[p] = 1
		}
	}
	return cut
}

func (c *Cluster) effective(p *principal, path string) map[string]int {
	out := map[string]int{}
	if p == nil {
		return out
	}
	add := func(path string) {
		best, found := -1, []string(nil)
		for _, g := range p.grants {
			switch {
			case g.Path != path && g.Path != "/" && !strings.HasPrefix(path, g.Path+"/"):
			case len(g.Path) > best:
				best, found = len(g.Path), g.Privileges
			case len(g.Path) == best:
				found = append(slices.Clone(found), g.Privileges...)
			}
		}
		for _, x := range found {
			out[x] = 1
		}
	}
	add(path)
	if pool := c.poolOf(path); pool != "" {
		add("/pool/" + pool)
	}
	return out
}

// poolOf is the pool of /vms/{id} or /storage/{id}, whose rights count too.
func (c *Cluster) poolOf(path string) string {
	for name, p := range c.pools {
		if p[path] {
			return name
		}
	}
	return ""
}

func (c *Cluster) allowed(who caller, path string, any bool, privs ...string) bool {
	have := c.privileges(who, path)
	n := 0
	for _, p := range privs {
		if _, ok := have[p]; ok {
			n++
		}
	}
	return n == len(privs) || any && n > 0
}

// need returns the 403 that names path and privileges unless who has them all.
func (c *Cluster) need(who caller, path string, privs ...string) error {
	if c.allowed(who, path, false, privs...) {
		return nil
	}
	return forbidden(path + ", " + strings.Join(privs, ", "))
}

func (c *Cluster) needAny(who caller, path string, privs ...string) error {
	if c.allowed(who, path, true, privs...) {
		return nil
	}
	return forbidden(path + ", " + strings.Join(privs, "|"))
}

// checkMethod evaluates the permission tree of the schema.
func (c *Cluster) checkMethod(who caller, p permission, params map[string]string) error {
	if p.User == "all" || p.User == "world" {
		return nil
	}
	if len(p.Check) == 0 {
		return forbidden("user != root@pam")
	}
	return c.checkTree(who, p.Check, params)
}

func (c *Cluster) checkTree(who caller, raw json.RawMessage, params map[string]string) error {
	var node []json.RawMessage
	var op string
	if json.Unmarshal(raw, &node) != nil || len(node) < 2 || json.Unmarshal(node[0], &op) != nil {
		return forbidden("")
	}
	switch op {
	case "and":
		for _, sub := range node[1:] {
			if err := c.checkTree(who, sub, params); err != nil {
				return err
			}
		}
		return nil
	case "or":
		for _, sub := range node[1:] {
			if c.checkTree(who, sub, params) == nil {
				return nil
			}
		}
		return forbidden("")
	case "perm":
		return c.checkPerm(who, node[1:], params)
	}
	return forbidden("")
}

var placeholderRE = regexp.MustCompile(`\{[^}]*\}`)

func (c *Cluster) checkPerm(who caller, node []json.RawMessage, params map[string]string) error {
	var path string
	var privs []string
	if len(node) < 2 || json.Unmarshal(node[0], &path) != nil || json.Unmarshal(node[1], &privs) != nil {
		return forbidden("")
	}
	any := false
	for i := 2; i+1 < len(node); i += 2 {
		var name, param string
		_ = json.Unmarshal(node[i], &name)
		_ = json.Unmarshal(node[i+1], &param)
		switch name {
		case "any":
			any = true
		case "require_param":
			if _, ok := params[param]; !ok {
				return forbidden("")
			}
		}
	}
	for k, v := range params {
		path = strings.ReplaceAll(path, "{"+k+"}", v)
	}
	path = placeholderRE.ReplaceAllString(path, "") // a parameter that is missing
	if any {
		return c.needAny(who, path, privs...)
	}
	return c.need(who, path, privs...)
}
