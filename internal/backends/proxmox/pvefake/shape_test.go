//go:build pve || proxmox_real

package pvefake

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// compare holds a body against the recorded one. An error's body and a
// config must be equal; of other answers the keys and types.
func (s *scene) compare(rec *capture, body []byte) {
	s.t.Helper()
	var got, want any
	if json.Unmarshal([]byte(rec.Body), &want) != nil {
		if strings.TrimSpace(string(body)) != strings.TrimSpace(rec.Body) {
			s.t.Errorf("body: got %q, want %q", body, rec.Body)
		}
		return
	}
	if err := json.Unmarshal(body, &got); err != nil {
		s.t.Errorf("body %q is not JSON: %v", body, err)
		return
	}
	exact := rec.Status != 200 || strings.HasPrefix(rec.name, "permissions.") ||
		readsConfig(rec) || strings.HasPrefix(rec.name, "nextid")
	if exact {
		g, w := toJSON(anonymous(got)), toJSON(anonymous(want))
		if g != w {
			s.t.Errorf("body:\n got %s\nwant %s", g, w)
		}
		return
	}
	for _, diff := range shape("", got, want) {
		s.t.Error(diff)
	}
}

func readsConfig(rec *capture) bool {
	return rec.Request.Method == "GET" && strings.HasSuffix(rec.Request.Path, "/config")
}

var generated = []*regexp.Regexp{
	regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), // uuids
	regexp.MustCompile(`^[0-9a-f]{40}$`),                            // digests
	regexp.MustCompile(`BC:24:11(:[0-9A-F]{2}){3}`),                 // MACs
	regexp.MustCompile(`creation-qemu=.*`),
}

// anonymous replaces what is made at random.
func anonymous(x any) any {
	switch x := x.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range x {
			out[k] = anonymous(v)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, v := range x {
			out[i] = anonymous(v)
		}
		return out
	case string:
		for _, re := range generated {
			x = re.ReplaceAllString(x, "#")
		}
		return x
	}
	return x
}

// optionalKeys may be absent on either side: a real node adds them by what
// QEMU, cgroups or the hardware offer.
var optionalKeys = []string{
	"blockstat", "nics", "ballooninfo", "proxmox-support", "running-machine", "running-qemu", // QEMU's version
	"diskread", "diskwrite", "balloon", "freemem", "pid", "shares",
	"pressurecpusome", "pressurecpufull", "pressureiosome", "pressureiofull", "pressurememorysome", "pressurememoryfull",
	"cgroup-mode", "secureboot", "used_fraction", "lock", "tags", "name", "level",
	"mkdir", "is_mountpoint", "disable", "path", "shared", // of the recorded storages
	"tokenid", "exitstatus", "endtime", "serial", "agent", "template", "pending", "value", "delete", "memhost",
	"ip-addresses",
}

// shape reports where got has other keys or types than want.
func shape(at string, got, want any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s: got %T, want an object", at, got)}
		}
		return objectShape(at, g, w)
	case []any:
		g, ok := got.([]any)
		if !ok {
			return []string{fmt.Sprintf("%s: got %T, want a list", at, got)}
		}
		return listShape(at, g, w)
	case nil:
		return nil
	}
	if got != nil && fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
		return []string{fmt.Sprintf("%s: got %v (%T), want %T as in %v", at, got, got, want, want)}
	}
	return nil
}

func objectShape(at string, g, w map[string]any) []string {
	var out []string
	for k, v := range w {
		x, ok := g[k]
		switch {
		case ok:
			out = append(out, shape(at+"."+k, x, v)...)
		case !slices.Contains(optionalKeys, k):
			out = append(out, at+"."+k+": missing")
		}
	}
	for k := range g {
		if _, ok := w[k]; !ok && !slices.Contains(optionalKeys, k) {
			out = append(out, at+"."+k+": a real node does not answer it")
		}
	}
	slices.Sort(out)
	return out
}

// listShape wants every element of got to look like one element of want that
// has the same type and status, or like some element when none has.
func listShape(at string, got, want []any) []string {
	if len(want) == 0 || len(got) == 0 {
		if len(want) != len(got) {
			return []string{fmt.Sprintf("%s: got %d elements, want %d", at, len(got), len(want))}
		}
		return nil
	}
	var out []string
	for i, g := range got {
		var best []string
		for j, w := range want {
			if diff := shape(fmt.Sprintf("%s[%d]", at, i), g, w); j == 0 || len(diff) < len(best) {
				best = diff
			}
		}
		out = append(out, best...)
	}
	return out
}
