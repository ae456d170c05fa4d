package pvefake

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// render gives a config value its JSON type: numbers for what the schema calls
// integer, number or boolean, else text.
func (c *Cluster) render(key, val string) any {
	p := c.configProps()[key]
	if p == nil || p.Type == "string" {
		return val
	}
	return json.Number(val)
}

func getConfig(r *request) (any, error) {
	v, err := r.load()
	if err != nil {
		return nil, err
	}
	if s := r.params["snapshot"]; s != "" {
		return nil, die("snapshot '%s' does not exist", s)
	}
	config := maps.Clone(v.config)
	if !r.flag("current") {
		for k, p := range v.pending {
			if p == nil {
				delete(config, k)
			} else {
				config[k] = *p
			}
		}
	}
	d := map[string]any{"digest": v.digest()}
	for k, val := range config {
		d[k] = r.c.render(k, val)
	}
	return d, nil
}

func getPending(r *request) (any, error) {
	v, err := r.load()
	if err != nil {
		return nil, err
	}
	rows := []map[string]any{{"key": "digest", "value": v.digest()}}
	for k, val := range v.config {
		row := map[string]any{"key": k, "value": r.c.render(k, val)}
		if p, ok := v.pending[k]; ok {
			if p == nil {
				row["delete"] = 1
			} else {
				row["pending"] = r.c.render(k, *p)
			}
		}
		rows = append(rows, row)
	}
	for k, p := range v.pending {
		if _, ok := v.config[k]; !ok && p != nil {
			rows = append(rows, map[string]any{"key": k, "pending": r.c.render(k, *p)})
		}
	}
	return rows, nil
}

// change is one config update on its way.
type change struct {
	who    caller
	node   string
	vmid   int
	set    map[string]string
	del    []string
	revert []string
	digest string
	force  bool
}

// notConfig are the parameters of the call that are not keys of the config.
var notConfig = []string{"node", "vmid", "digest", "skiplock", "delete", "revert", "force", "background_delay"}

func putConfig(r *request) (any, error) {
	ch, err := r.change()
	if err != nil {
		return nil, err
	}
	unlock, err := r.c.flock(r.c.ctx, r.vmid, false, func() {})
	if err != nil {
		return nil, err
	}
	defer unlock()
	return nil, r.c.update(ch)
}

func postConfig(r *request) (any, error) {
	ch, err := r.change()
	if err != nil {
		return nil, err
	}
	upid, err := r.c.fork(r.who, r.node.name, "qmconfig", fmt.Sprint(r.vmid), func(t *task) error {
		line := fmt.Sprintf("update VM %d:", r.vmid)
		all := maps.Clone(ch.set)
		if len(ch.del) > 0 {
			all["delete"] = strings.Join(ch.del, ",")
		}
		for _, k := range slices.Sorted(maps.Keys(all)) {
			line += " -" + k + " " + all[k]
		}
		t.logf("%s", wide(line))
		if err := t.sleep(200 * time.Millisecond); err != nil {
			return err
		}
		unlock, err := t.flock(r.vmid)
		if err != nil {
			return err
		}
		defer unlock()
		return r.c.update(ch)
	})
	if err != nil {
		return nil, err
	}
	return r.orDone(upid, "background_delay", fmt.Sprintf("failed to update VM %d: ", r.vmid))
}

// wide is how a text beyond Latin-1 comes out of Perl's print: each byte of its
// UTF-8 as a character.
func wide(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r > 0xFF }) {
		return s
	}
	out := make([]rune, len(s))
	for i := range len(s) {
		out[i] = rune(s[i])
	}
	return string(out)
}

// orDone answers the UPID at once, or, when the parameter gives seconds to
// wait, null if the task ends well in that time.
func (r *request) orDone(upid, param, failed string) (any, error) {
	if r.params[param] == "" {
		return upid, nil
	}
	t := r.c.tasks[upid]
	if !r.c.await(r.c.ctx, time.Duration(r.int(param, 0))*time.Second, func() bool { return t.exit != "" }) {
		return upid, nil
	}
	if t.exit != "OK" && !strings.HasPrefix(t.exit, "WARNINGS") {
		return nil, die("%s%s", failed, t.exit)
	}
	return nil, nil
}

// change does what both calls check before they take the lock file.
func (r *request) change() (*change, error) {
	ch := &change{who: r.who, node: r.node.name, vmid: r.vmid, set: map[string]string{},
		del: splitList(r.params["delete"]), revert: splitList(r.params["revert"]),
		digest: r.params["digest"], force: r.flag("force")}
	if r.flag("skiplock") && r.who.String() != "root@pam" {
		return nil, paramErr("skiplock", "Only root may use this option.")
	}
	for k, val := range r.params {
		if !slices.Contains(notConfig, k) {
			ch.set[k] = val
		}
	}
	if r.null != "" {
		return nil, die("unable to parse value of '%s' - got undefined value", r.null)
	}
	if len(ch.set)+len(ch.del)+len(ch.revert) == 0 {
		return nil, die("no options specified")
	}
	for _, k := range slices.Concat(ch.del, ch.revert) {
		if r.c.configProps()[k] == nil || slices.Contains(notConfig, k) {
			return nil, paramErr("delete", "unknown option '"+k+"'")
		}
		if _, both := ch.set[k]; both {
			return nil, paramErr("delete", "Cannot set and delete property '"+k+"' at the same time!")
		}
	}
	if val, ok := ch.set["cdrom"]; ok { // an alias
		delete(ch.set, "cdrom")
		ch.set["ide2"] = val
	}
	keys := slices.Concat(slices.Collect(maps.Keys(ch.set)), ch.del, ch.revert)
	if err := r.c.mayConfigure(r.who, r.vmid, keys); err != nil {
		return nil, err
	}
	if err := r.c.needBridges(r.who, ch.set); err != nil {
		return nil, err
	}
	if err := r.c.mayUseDrives(r.who, r.node.name, r.vmid, ch.set); err != nil {
		return nil, err
	}
	v, err := r.load()
	if err != nil {
		return nil, err
	}
	return ch, v.checkLock()
}

// update applies a change under the lock file.
func (c *Cluster) update(ch *change) error {
	v, err := c.load(ch.node, ch.vmid)
	if err != nil {
		return err
	}
	if ch.digest != "" && ch.digest != v.digest() {
		return die("checksum mismatch (file change by other user?)")
	}
	if err := v.checkLock(); err != nil {
		return err
	}
	for _, k := range ch.revert {
		delete(v.pending, k)
	}
	for _, k := range ch.del {
		if err := c.remove(v, k, ch); err != nil {
			return err
		}
	}
	for _, k := range slices.Sorted(maps.Keys(ch.set)) {
		if err := c.set(v, k, ch.set[k], ch.who); err != nil {
			return err
		}
	}
	c.notify()
	return nil
}

// immediate are the keys that change at once under a running VM.
var immediate = []string{"lock", "name", "onboot", "shares", "startup", "description", "protection",
	"vmstatestorage", "hookscript", "tags", "autostart"}

// live tells whether a key of a running VM changes at once: the fast keys,
// NICs and disks by hotplug, and the medium of a CD drive.
func (c *Cluster) live(v *vm, key string) bool {
	if !v.running || slices.Contains(immediate, key) || netRE.MatchString(key) ||
		strings.HasPrefix(key, "scsi") && key != "scsihw" || strings.HasPrefix(key, "virtio") {
		return true
	}
	if old, ok := v.config[key]; ok && driveRE.MatchString(key) {
		d, err := c.parseDrive(key, old)
		return err == nil && d.cdrom()
	}
	return false
}

func (v *vm) write(key string, val *string, live bool) {
	delete(v.pending, key)
	switch {
	case !live && val == nil:
		if _, ok := v.config[key]; ok {
			v.pending[key] = nil
		}
	case !live:
		if old, ok := v.config[key]; !ok || old != *val {
			v.pending[key] = val
		}
	case val == nil:
		delete(v.config, key)
	default:
		v.config[key] = *val
	}
}
