package pvefake

import (
	"crypto/rand"
	"crypto/sha1"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VMSpec describes a VM to add to the cluster.
type VMSpec struct {
	ID       int
	Node     string // default: the first
	Name     string
	Template bool
	Storage  string            // of scsi0; default local
	Disk     string            // size of scsi0; default 2G; "none" for no disk
	Format   string            // of scsi0 on files; default qcow2
	Config   map[string]string // further keys; an empty value removes one
	Running  bool
	Pool     string
	HA       bool // managed by HA: its start and stop tasks end early
	// Guest is the system on the disk; clones inherit it. Default: DefaultGuest.
	Guest *Guest
}

// VM is a VM as it stands.
type VM struct {
	ID              int
	Node, Name      string
	Running, Paused bool
	Template        bool
	Config          map[string]string // without pending changes
	Pending         map[string]string // values to come with the next start; "" deletes
}

type vm struct {
	id      int
	node    string
	config  map[string]string
	pending map[string]*string // nil deletes
	running bool
	paused  bool
	since   time.Time // start
	pid     int
	created int64
	guest   Guest
	ha      bool
	stat    *stat // what pvestatd last saw; nil: nothing yet
}

const gib = 1 << 30

// AddVM adds a VM with what a template needs: a sized disk on scsi0, a NIC on
// vmbr0 and the agent enabled.
func (c *Cluster) AddVM(s VMSpec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vms[s.ID] != nil {
		c.t.Errorf("pvefake: VM %d exists", s.ID)
		return
	}
	if s.Node == "" {
		s.Node = c.order[0]
	}
	if s.Storage == "" {
		s.Storage = "local"
	}
	if s.Disk == "" {
		s.Disk = "2G"
	}
	if s.Format == "" {
		s.Format = "qcow2"
	}
	v := c.newVM(s.ID, s.Node)
	maps.Copy(v.config, map[string]string{
		"cores": "1", "memory": "512", "ostype": "l26", "scsihw": "virtio-scsi-pci", "agent": "1",
		"serial0": "socket", "net0": "virtio=" + newMAC() + ",bridge=vmbr0", "boot": "order=scsi0;net0",
	})
	if s.Name != "" {
		v.config["name"] = s.Name
	}
	if size, ok := parseSize(s.Disk); ok {
		st := c.storages[s.Storage]
		d := c.newDisk(st, s.Node, s.ID, size, s.Format)
		d.used = size / 4
		if s.Template {
			c.makeBase(st, s.Node, d)
		}
		v.config["scsi0"] = st.volid(d) + ",size=" + printSize(size)
	}
	if s.Template {
		v.config["template"] = "1"
	}
	for k, val := range s.Config {
		v.config[k] = val
		if val == "" {
			delete(v.config, k)
		}
	}
	c.addVolumes(v)
	v.guest = DefaultGuest()
	if s.Guest != nil {
		v.guest = *s.Guest
	}
	v.ha = s.HA
	if s.Pool != "" {
		c.addToPool(s.Pool, s.ID)
	}
	if s.Running {
		c.boot(v)
		v.since = v.since.Add(-time.Hour)
	}
	v.stat = c.observe(v)
	c.notify()
}

// addVolumes makes the VM's own volumes that its config names and that are not
// there yet.
func (c *Cluster) addVolumes(v *vm) {
	for _, k := range c.disks(v.config) {
		d, _ := c.parseDrive(k, v.config[k])
		st, name, err := c.parse(d.file)
		if err != nil || st.on(v.node)[name] != nil || !strings.Contains(name, fmt.Sprintf("-%d-", v.id)) {
			continue
		}
		vol := &volume{name: name, format: "raw", content: "images", vmid: v.id, ctime: v.created}
		if i := strings.LastIndex(name, "."); i >= 0 {
			vol.format = name[i+1:]
		}
		if base, _, linked := strings.Cut(strings.TrimPrefix(d.file, st.ID+":"), "/"+name); linked {
			vol.parent = base
		}
		vol.size, _ = parseSize(d.opts["size"])
		vol.used = vol.size / 4
		st.put(v.node, vol)
	}
}

func (c *Cluster) newVM(id int, node string) *vm {
	v := &vm{id: id, node: node, pending: map[string]*string{}, created: c.clock.now().Unix(), guest: DefaultGuest()}
	v.config = map[string]string{
		"smbios1": "uuid=" + newUUID(), "vmgenid": newUUID(),
		"meta": fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", v.created),
	}
	c.vms[id] = v
	return v
}

// AddPool makes a resource pool.
func (c *Cluster) AddPool(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools[name] == nil {
		c.pools[name] = map[string]bool{}
	}
}

func (c *Cluster) addToPool(pool string, vmid int) {
	if c.pools[pool] == nil {
		c.pools[pool] = map[string]bool{}
	}
	c.pools[pool][fmt.Sprintf("/vms/%d", vmid)] = true
}

// VM is one VM and whether it exists.
func (c *Cluster) VM(id int) (VM, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vms[id]
	if v == nil {
		return VM{}, false
	}
	return v.snapshot(), true
}

// VMs are all VMs, by ID.
func (c *Cluster) VMs() []VM {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []VM
	for _, v := range c.sortedVMs() {
		out = append(out, v.snapshot())
	}
	return out
}

func (c *Cluster) sortedVMs() []*vm {
	var out []*vm
	for _, id := range slices.Sorted(maps.Keys(c.vms)) {
		out = append(out, c.vms[id])
	}
	return out
}

func (v *vm) snapshot() VM {
	pending := map[string]string{}
	for k, p := range v.pending {
		pending[k] = ""
		if p != nil {
			pending[k] = *p
		}
	}
	return VM{ID: v.id, Node: v.node, Name: v.config["name"], Running: v.running, Paused: v.paused,
		Template: v.template(), Config: maps.Clone(v.config), Pending: pending}
}

func (v *vm) template() bool { return v.config["template"] == "1" }

func (v *vm) lock() string { return v.config["lock"] }

// name is what the lists show; a VM without one is "VM 100" there.
func (v *vm) name() string {
	if n := v.config["name"]; n != "" {
		return n
	}
	return fmt.Sprintf("VM %d", v.id)
}

// checkLock fails when the config carries a lock.
func (v *vm) checkLock() error {
	if l := v.lock(); l != "" {
		return die("VM is locked (%s)", l)
	}
	return nil
}

// digest changes with every change of the config file.
func (v *vm) digest() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(v.config)) {
		fmt.Fprintf(&b, "%s: %s\n", k, v.config[k])
	}
	for _, k := range slices.Sorted(maps.Keys(v.pending)) {
		if p := v.pending[k]; p != nil {
			fmt.Fprintf(&b, "[PENDING] %s: %s\n", k, *p)
		} else {
			fmt.Fprintf(&b, "[PENDING] delete: %s\n", k)
		}
	}
	return fmt.Sprintf("%x", sha1.Sum([]byte(b.String())))
}

func (v *vm) applyPending() {
	for k, p := range v.pending {
		if p == nil {
			delete(v.config, k)
		} else {
			v.config[k] = *p
		}
	}
	clear(v.pending)
}

func (v *vm) int(key string, def int) int {
	if n, err := strconv.Atoi(v.config[key]); err == nil {
		return n
	}
	return def
}

func (v *vm) memory() int64 { return int64(v.int("memory", 512)) << 20 }

// load is the VM of the path on its node, or the 500 of a missing config.
func (r *request) load() (*vm, error) { return r.c.load(r.node.name, r.vmid) }

func (c *Cluster) load(node string, vmid int) (*vm, error) {
	v := c.vms[vmid]
	if v == nil || v.node != node {
		return nil, noConfig(node, vmid)
	}
	return v, nil
}

// known is a VM that a test names. When there is none the test fails and a
// blank VM takes the change. The caller holds the mutex.
func (c *Cluster) known(vmid int) *vm {
	if v := c.vms[vmid]; v != nil {
		return v
	}
	c.t.Errorf("pvefake: no VM %d", vmid)
	return &vm{node: c.order[0], config: map[string]string{}, pending: map[string]*string{}}
}

// newMAC is an address under Proxmox's default prefix.
func newMAC() string {
	var b [3]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2])
}
