package pvefake

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

func (c *Cluster) mayList(who caller, id string) bool {
	return c.allowed(who, "/storage/"+id, true, "Datastore.Audit", "Datastore.AllocateSpace")
}

func (c *Cluster) sortedStorages() []*storage {
	out := make([]*storage, 0, len(c.storages))
	for _, s := range c.storages {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *storage) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// statusOf is a storage as seen from a node.
func (s *storage) statusOf(node string) map[string]any {
	d := map[string]any{
		"type": s.Type, "content": strings.Join(s.Content, ","), "shared": bit(s.Shared),
		"enabled": bit(!s.Disabled), "active": 0, "total": 0, "used": 0, "avail": 0,
	}
	if !s.Disabled && !s.Inactive {
		d["active"], d["total"], d["used"], d["avail"] = 1, s.Total, s.used(node), s.avail(node)
	}
	return d
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func listStorages(r *request) (any, error) {
	rows := []map[string]any{}
	want := splitList(r.params["content"])
	for _, s := range r.c.sortedStorages() {
		fits := len(want) == 0 || slices.ContainsFunc(want, func(x string) bool { return slices.Contains(s.Content, x) })
		if !s.here(r.node.name) || !fits || !r.c.mayList(r.who, s.ID) ||
			r.params["storage"] != "" && r.params["storage"] != s.ID ||
			(r.flag("enabled") || len(want) > 0) && s.Disabled ||
			r.params["target"] != "" && !s.here(r.params["target"]) {
			continue
		}
		d := s.statusOf(r.node.name)
		d["storage"] = s.ID
		if d["active"] == 1 && s.Total > 0 {
			d["used_fraction"] = float64(s.used(r.node.name)) / float64(s.Total)
		}
		rows = append(rows, d)
	}
	return rows, nil
}

func storageStatus(r *request) (any, error) {
	s := r.c.storages[r.params["storage"]]
	if s == nil || !s.here(r.node.name) {
		return nil, paramErr("storage", "No such storage.")
	}
	return s.statusOf(r.node.name), nil
}

func (s *storage) config() map[string]any {
	d := map[string]any{"storage": s.ID, "type": s.Type, "content": strings.Join(s.Content, ","),
		"digest": strings.Repeat("b3", 20)}
	if s.Path != "" {
		d["path"] = s.Path
	}
	if s.Shared {
		d["shared"] = 1
	}
	if s.Disabled {
		d["disable"] = 1
	}
	if len(s.Nodes) > 0 {
		d["nodes"] = strings.Join(s.Nodes, ",")
	}
	return d
}

func listStorageConfigs(r *request) (any, error) {
	rows := []map[string]any{}
	for _, s := range r.c.sortedStorages() {
		if r.c.mayList(r.who, s.ID) && (r.params["type"] == "" || r.params["type"] == s.Type) {
			rows = append(rows, s.config())
		}
	}
	return rows, nil
}

func getStorageConfig(r *request) (any, error) {
	s := r.c.storages[r.params["storage"]]
	if s == nil {
		return nil, die("storage '%s' does not exist", r.params["storage"])
	}
	return s.config(), nil
}

// mayRead is PVE::Storage::check_volume_access.
func (c *Cluster) mayRead(who caller, st *storage, v *volume, name string, vmid int) error {
	p := "/storage/" + st.ID
	switch {
	case strings.HasPrefix(name, "iso/"), strings.HasPrefix(name, "vztmpl/"), strings.HasPrefix(name, "import/"):
		return c.needAny(who, p, "Datastore.AllocateSpace", "Datastore.Audit")
	case v != nil && v.vmid != 0 && v.vmid == vmid:
		return nil
	case v != nil && v.vmid != 0:
		if err := c.need(who, p, "Datastore.Audit"); err != nil {
			return err
		}
		return c.need(who, fmt.Sprintf("/vms/%d", v.vmid), "VM.Config.Disk")
	}
	return c.need(who, p, "Datastore.Allocate")
}

func listContent(r *request) (any, error) {
	st, err := r.c.usable(r.params["storage"], r.node.name)
	if err != nil {
		return nil, err
	}
	rows := []map[string]any{}
	for _, v := range st.on(r.node.name) {
		if r.params["content"] != "" && r.params["content"] != v.content ||
			r.params["vmid"] != "" && r.params["vmid"] != fmt.Sprint(v.vmid) ||
			!slices.Contains(st.Content, v.content) ||
			r.c.mayRead(r.who, st, v, v.name, r.vmid) != nil {
			continue
		}
		d := map[string]any{"volid": st.volid(v), "content": v.content, "format": v.format, "size": v.size, "ctime": v.ctime}
		if v.vmid != 0 {
			d["vmid"], d["used"], d["parent"] = v.vmid, v.used, nil
			if v.parent != "" {
				d["parent"] = "../" + v.parent
			}
		}
		rows = append(rows, d)
	}
	slices.SortFunc(rows, func(a, b map[string]any) int { return cmp.Compare(a["volid"].(string), b["volid"].(string)) })
	return rows, nil
}

// volumeParam is the volume of the path, which may omit the storage.
func (r *request) volumeParam() (*storage, string, error) {
	id, vol := r.params["storage"], r.params["volume"]
	if r.c.storages[id] == nil {
		return nil, "", die("storage '%s' does not exist", id)
	}
	if !strings.Contains(vol, ":") {
		vol = id + ":" + vol
	}
	st, name, err := r.c.parse(vol)
	if err == nil && st.ID != id {
		err = die("storage ID mismatch")
	}
	return st, name, err
}

func getVolume(r *request) (any, error) {
	st, name, err := r.volumeParam()
	if err != nil {
		return nil, err
	}
	v := st.on(r.node.name)[name]
	if err := r.c.mayRead(r.who, st, v, name, 0); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, die("volume_size_info on '%s:%s' failed - no format", st.ID, name)
	}
	format := v.format
	if format == "iso" {
		format = "raw"
	}
	return map[string]any{"path": st.path(v.name), "size": v.size, "used": v.used, "format": format}, nil
}

func deleteVolume(r *request) (any, error) {
	st, name, err := r.volumeParam()
	if err != nil {
		return nil, err
	}
	if err := r.c.need(r.who, "/storage/"+st.ID, "Datastore.Allocate"); err != nil {
		return nil, err
	}
	id := st.ID
	v := st.on(r.node.name)[name]
	if v != nil && v.vmid != 0 {
		id = fmt.Sprintf("%d@%s", v.vmid, st.ID)
	}
	node := r.node.name
	upid, err := r.c.fork(r.who, node, "imgdel", id, func(t *task) error {
		if err := t.sleep(300 * time.Millisecond); err != nil {
			return err
		}
		if _, err := r.c.usable(st.ID, node); err != nil {
			return err
		}
		if st.children(node, name) {
			return die("base volume '%s' is still in use by linked clones", name)
		}
		if st.on(node)[name] == nil {
			t.logf("disk image '%s' does not exist", st.path(name))
		}
		delete(st.on(node), name)
		t.logf("Removed volume '%s:%s'", st.ID, path.Clean(name))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.orDone(upid, "delay", "")
}
