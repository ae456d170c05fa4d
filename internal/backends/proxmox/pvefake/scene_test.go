//go:build pve || proxmox_real

package pvefake

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// notModelled are the recordings that are not replayed, with the reason.
var notModelled = map[string]string{
	"agent-info.ok":                    "agent/info is of no use to a proxy backend",
	"pmxcfs-down.version":              "a dead pmxcfs takes the whole node; NodeDown stands for it",
	"suspend.todisk":                   "recorded failing for want of Proxmox's QEMU patches",
	"status.after-suspend-todisk":      "what that failure left behind",
	"nodes":                            "recorded before pvestatd ever ran",
	"cluster-resources.empty":          "recorded before pvestatd ever ran",
	"cluster-resources.vm.no-pvestatd": "recorded with pvestatd stopped in between",
}

// scene is the node as it was when an answer was recorded.
type scene struct {
	t       *testing.T
	c       *Cluster
	all     recordings
	name    string
	secrets map[string]string // by token
	upid    string            // of a task that the recording asks about
}

func newScene(t *testing.T, all recordings, rec *capture) *scene {
	c := New(t, Options{Nodes: []string{"pve1"}, Speed: 1, InProcess: true})
	s := &scene{t: t, c: c, all: all, name: rec.name, secrets: map[string]string{}}
	s.storages()
	s.users()
	if s.is(`\.empty`) {
		return s
	}
	s.guests(rec)
	s.files()
	s.adjust()
	if readsConfig(rec) && rec.Status == 200 && !s.is(`^while-cloning`) {
		s.recordedConfig(rec)
	}
	s.task(rec)
	c.RefreshStats()
	return s
}

// is tells whether the recording's name matches.
func (s *scene) is(pattern string) bool { return s.all.matches(pattern, s.name) }

func (s *scene) storages() {
	c := s.c
	delete(c.storages, "local-lvm")
	delete(c.storages, "shared")
	c.SetStorage(Storage{ID: "local", Type: "dir", Path: "/var/lib/vz", Total: 12638253056, Used: 6422528,
		Content: []string{"backup", "images", "import", "iso", "snippets", "vztmpl"}})
	both := []string{"images", "iso"}
	c.SetStorage(Storage{ID: "tiny", Type: "dir", Path: "/srv/tiny", Total: 1 << 20, Content: both})
	c.SetStorage(Storage{ID: "imgonly", Type: "dir", Path: "/srv/imgonly", Total: 1 << 33, Content: both[:1]})
	c.SetStorage(Storage{ID: "isoonly", Type: "dir", Path: "/srv/isoonly", Total: 1 << 33, Content: both[1:]})
	c.SetStorage(Storage{ID: "disabled1", Type: "dir", Path: "/srv/disabled1", Content: both, Disabled: true})
	if s.is(`unmounted|inactive|storage|resources`) {
		c.SetStorage(Storage{ID: "unmounted", Type: "dir", Path: "/mnt/pve/unmounted", Content: both, Inactive: true})
	}
}

func (s *scene) users() {
	c := s.c
	token := func(user, id string, privs ...string) {
		var g []Grant
		if len(privs) > 0 {
			g = []Grant{{"/", privs}}
		}
		s.secrets[user+"!"+id] = c.AddToken(user, id, g...)
	}
	token("proxyfleet@pve", "agent", s.all.privs["permissions.agent"]...)
	token("auditor@pve", "ro", s.all.privs["permissions.auditor"]...)
	token("nobody@pve", "none")
	token("off@pve", "tok")
	c.DisableUser("off@pve")
	s.secrets["proxyfleet@pve!old"] = c.AddToken("proxyfleet@pve", "old")
	c.ExpireToken("proxyfleet@pve!old")
	s.secrets["proxyfleet@pve!privsep"] = c.AddSeparatedToken("proxyfleet@pve", "privsep")
	token("p1@pve", "tk", "VM.Config.Options")
	token("p2@pve", "tk", "VM.Clone")
	token("p3@pve", "tk", "VM.Clone", "VM.Allocate")
	token("p4@pve", "tk", "VM.Clone", "VM.Allocate", "Datastore.AllocateSpace")
	token("p5@pve", "tk", "VM.Config.Network", "VM.Config.CDROM")
	// The role of the recordings, which lacked Datastore.Allocate and Sys.Audit.
	token("min@pve", "tk", "VM.Clone", "VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.CPU", "VM.Config.Memory",
		"VM.Config.Options", "VM.Config.Network", "VM.Config.CDROM", "VM.Config.Disk", "VM.GuestAgent.Audit",
		"Datastore.Audit", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "SDN.Use")
}

var vmInPath = regexp.MustCompile(`/qemu/(\d{3,})`)

// guests makes the templates, two linked clones, and the VM of the path.
func (s *scene) guests(rec *capture) {
	nic := map[string]string{"net0": "virtio=BC:24:11:70:9D:A9", "tags": "proxyfleet-template", "memory": "256"}
	raw := VMSpec{ID: 9000, Name: "base-img", Disk: "1G", Format: "raw", Template: !s.is(`of-non-template|^template\.convert$`), Config: nic}
	s.c.AddVM(raw)
	s.c.AddVM(VMSpec{ID: 9001, Name: "base-qcow", Disk: "1G", Template: true, Config: nic})
	ids := []int{201, 202}
	if m := vmInPath.FindStringSubmatch(rec.Request.Path); m != nil {
		id, _ := strconv.Atoi(m[1])
		ids = append(ids, id)
	}
	switch {
	case s.is(`vmid-taken|nextid\.taken|by-vmid|disk-in-use`):
		ids = append(ids, 100)
	case s.is(`nextid\.after-create`):
		ids = append(ids, 100, 101)
	}
	newid := fmt.Sprint(rec.Request.Params["newid"])
	for _, id := range ids {
		if strconv.Itoa(id) == newid && rec.Status == 200 {
			continue
		}
		if _, exists := s.c.VM(id); exists || id == 999 || s.is(`^config-get\.after-(destroy|clone-aborted|failed-clone)$|^status\.after-destroy`) && id != 201 {
			continue
		}
		if s.is(`^while-cloning.*-target|^while-cloning\.(config|status|destroy-target)$`) && id != 201 && id != 202 {
			continue
		}
		s.plain(id)
	}
}

func (s *scene) plain(id int) {
	config := map[string]string{"net0": "virtio=" + newMAC(), "tags": "proxyfleet"}
	linked := id == 201 || id == 202 || id == 320
	spec := VMSpec{ID: id, Name: "agent-" + strconv.Itoa(id), Disk: "1G", Format: "raw", Config: config}
	if s.is(`^destroy\.again`) {
		spec.Format = "qcow2"
	}
	if !linked {
		s.c.AddVM(spec)
		return
	}
	spec.Disk = "none"
	config["scsi0"] = fmt.Sprintf("local:9001/base-9001-disk-0.qcow2/%d/vm-%d-disk-0.qcow2,size=1G", id, id)
	s.c.AddVM(spec)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.storages["local"].put("pve1", &volume{name: fmt.Sprintf("%d/vm-%d-disk-0.qcow2", id, id), format: "qcow2",
		content: "images", parent: "9001/base-9001-disk-0.qcow2", vmid: id, size: gib, used: 528384})
}

// seedISO has the size of the recorded ISOs; made once, for it is large.
var seedISO = make([]byte, 374784)

func (s *scene) files() {
	for _, name := range []string{"proxyfleet-seed-1.iso", "seed.ISO", "seed.img", "ck.iso", "min.iso"} {
		s.c.AddISO("pve1", "local", name, seedISO)
	}
	if s.is(`^volume-delete\.iso-attached`) {
		s.c.AddISO("pve1", "local", "proxyfleet-seed-9.iso", seedISO)
	}
}

// edit changes a VM's config directly; "" removes a key.
func (s *scene) edit(id int, kv ...string) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	v := s.c.vms[id]
	for i := 0; i < len(kv); i += 2 {
		v.config[kv[i]] = kv[i+1]
		if kv[i+1] == "" {
			delete(v.config, kv[i])
		}
	}
}

// recordedConfig gives the VM the config that was recorded, before the change
// of the same name if there was one, and then makes that change.
func (s *scene) recordedConfig(rec *capture) {
	var b struct{ Data map[string]any }
	if err := json.Unmarshal([]byte(rec.Body), &b); err != nil {
		s.t.Fatal(err)
	}
	id, _ := strconv.Atoi(vmInPath.FindStringSubmatch(rec.Request.Path)[1])
	suffix := strings.TrimPrefix(rec.name, "config-get.")
	change := s.all.byName["config-put."+suffix]
	switch suffix {
	case "after-put":
		change = s.all.byName["config-put.ok"]
	case "after-form-charset", "after-json-charset":
		change = s.all.byName["body."+strings.TrimPrefix(suffix, "after-")]
	case "cdrom-while-running", "cdrom-without-media":
		change = nil
	}
	s.c.mu.Lock()
	v := s.c.vms[id]
	clear(v.config)
	for k, x := range b.Data {
		v.config[k] = fmt.Sprint(x)
	}
	delete(v.config, "digest")
	if change != nil && suffix != "description-only-newlines" {
		for k := range change.Request.Params {
			v.config[k] = "before"
			if k == "net0" {
				delete(v.config, k)
			}
		}
		delete(v.config, "_raw_body")
		delete(v.config, "_content_type")
		delete(v.config, "_chunked")
	}
	s.c.mu.Unlock()
	if change == nil {
		return
	}
	resp, err := s.c.RoundTripper().RoundTrip(s.request(change))
	if err != nil || resp.StatusCode != 200 {
		s.t.Fatalf("%s: %v %v", change.name, resp, err)
	}
}

// path puts the scene's own task into a recorded path.
func (s *scene) path(p string) string {
	if i := strings.Index(p, "UPID"); i >= 0 && s.upid != "" {
		rest := ""
		if j := strings.Index(p[i:], "/"); j >= 0 {
			rest = p[i+j:]
		}
		upid := url.QueryEscape(s.upid)
		if s.is(`unescaped`) {
			upid = s.upid
		}
		return p[:i] + upid + rest
	}
	return p
}

// authorize sends the token of the recording, or what its name says instead.
func (s *scene) authorize(rec *capture, req *http.Request) {
	agent := "proxyfleet@pve!agent=" + s.secrets["proxyfleet@pve!agent"]
	header := "PVEAPIToken=" + agent
	if tok := rec.Request.Token; tok != nil {
		header = "PVEAPIToken=" + *tok + "=" + s.secrets[*tok]
	}
	switch {
	case s.is(`^auth\.(bad-secret|unknown|upload)`):
		header = strings.TrimSuffix(header, s.secrets["proxyfleet@pve!agent"]) + "wrong"
	case s.is(`^auth\.bearer`):
		header = "Bearer " + agent
	case s.is(`^auth\.malformed`):
		header = "PVEAPIToken=garbage"
	case s.is(`^auth\.no-auth|noauth`):
		return
	case s.is(`^auth\.bad-ticket`):
		req.AddCookie(&http.Cookie{Name: "PVEAuthCookie", Value: "PVE:root@pam:0::x"})
		return
	}
	req.Header.Set("Authorization", header)
}

func sha256Of(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

// call makes a change through the API as the usual token.
func (s *scene) call(method, path string, params url.Values) string {
	s.t.Helper()
	req, err := http.NewRequest(method, "https://pve.invalid"+apiPrefix+path, strings.NewReader(params.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "PVEAPIToken=proxyfleet@pve!agent="+s.secrets["proxyfleet@pve!agent"])
	resp, err := s.c.RoundTripper().RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	var b struct{ Data string }
	if err := json.NewDecoder(resp.Body).Decode(&b); err != nil || resp.StatusCode != 200 {
		s.t.Fatalf("%s %s: %s %v", method, path, resp.Status, err)
	}
	return b.Data
}

func (s *scene) idle() {
	if err := s.c.WaitIdle(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// task starts what was going on during the recording.
func (s *scene) task(rec *capture) {
	clone := func(newid string, takes time.Duration) {
		s.c.SetTaskDuration("qmclone", takes)
		s.upid = s.call("POST", "/nodes/pve1/qemu/9000/clone", form("newid", newid, "name", "slow", "full", "1"))
		time.Sleep(time.Second)
		s.c.SetTaskDuration("qmclone", 4*time.Second)
	}
	switch {
	case s.is(`^while-cloning-long\..*-target`):
		clone("230", 10*time.Minute)
	case s.is(`^while-cloning\.destroy-target`):
		clone("213", 5*time.Second)
	case s.is(`^while-cloning\.(start|stop|resize)-target`):
		clone("210", 5*time.Second)
	case s.is(`^while-cloning\.`):
		clone("210", 10*time.Minute)
	case s.is(`^task-stop\.running-clone`):
		clone("212", 10*time.Minute)
	case s.is(`^task-status\.running|^tasks\.list-active`):
		clone("230", 10*time.Minute)
	case s.is(`^tasks\.list|^cluster-tasks`):
		clone("212", 0)
		s.call("POST", "/nodes/pve1/qemu/999/status/start", nil)
		s.call("POST", "/nodes/pve1/qemu/201/config", form("cores", "1"))
		s.idle()
	case strings.Contains(rec.Request.Path, "UPID") && !s.is(`unknown|malformed|other-node`):
		s.upid = s.call("POST", "/nodes/pve1/qemu/201/config", form("cores", "1"))
		s.idle()
	}
}
