//go:build pve || proxmox_real

package pvefake

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// capture is one recorded request and its answer by a real node.
type capture struct {
	name    string
	Request struct {
		Method   string
		Path     string
		Params   map[string]any
		Token    *string
		Encoding string
	}
	Status int
	Reason string
	Body   string

	exit    string   // of its task, when that was recorded
	log     []string // of its task, when that was recorded
	taskTyp string
	hasTask bool
}

// recordings are all captures: the requests to replay, and all by name.
type recordings struct {
	replay []*capture
	byName map[string]*capture
	privs  map[string][]string       // privileges on / in the recordings permissions.*
	res    map[string]*regexp.Regexp // patterns of scene.is: thousands of uses of few
}

func (r recordings) matches(pattern, name string) bool {
	re := r.res[pattern]
	if re == nil {
		re = regexp.MustCompile(pattern)
		r.res[pattern] = re
	}
	return re.MatchString(name)
}

func loadCaptures(t *testing.T) recordings {
	t.Helper()
	dir, err := FindSchema()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "captures", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded answers in %s/captures (%v): they come with the schema", dir, err)
	}
	byName := map[string]*capture{}
	var all []*capture
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		c := &capture{name: strings.TrimSuffix(filepath.Base(f), ".json")}
		if err := json.Unmarshal(raw, c); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		// agent is the token that requests without one were sent with.
		if c.Request.Token == nil && !strings.Contains(string(raw), `"token": null`) {
			agent := "proxyfleet@pve!agent"
			c.Request.Token = &agent
		}
		byName[c.name] = c
		all = append(all, c)
	}
	out := recordings{byName: byName, res: map[string]*regexp.Regexp{}}
	for _, c := range all {
		base, kind, _ := cutLast(c.name, ".")
		owner := byName[base]
		if owner == nil || kind != "task-status" && kind != "task-log" {
			if kind != "task-log" && kind != "task-status" || strings.HasPrefix(c.name, "while-cloning.") {
				out.replay = append(out.replay, c)
			}
			continue
		}
		if kind == "task-log" {
			var b struct{ Data []logLine }
			if err := json.Unmarshal([]byte(c.Body), &b); err != nil {
				t.Fatal(err)
			}
			for _, l := range b.Data {
				owner.log = append(owner.log, l.T)
			}
		}
		if kind == "task-status" {
			var b struct {
				Data struct{ Exitstatus, Type string }
			}
			if err := json.Unmarshal([]byte(c.Body), &b); err != nil {
				t.Fatal(err)
			}
			owner.exit, owner.taskTyp, owner.hasTask = b.Data.Exitstatus, b.Data.Type, true
		}
	}
	out.privs = map[string][]string{}
	for _, name := range []string{"permissions.agent", "permissions.auditor"} {
		var b struct{ Data map[string]map[string]int }
		if err := json.Unmarshal([]byte(byName[name].Body), &b); err != nil {
			t.Fatal(err)
		}
		out.privs[name] = slices.Collect(maps.Keys(b.Data["/"]))
	}
	return out
}

func cutLast(s, sep string) (string, string, bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
