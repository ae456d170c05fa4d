package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// readers bounds requests that a listing makes at once.
const readers = 8

// List implements [backends.Backend]. It makes one request for the whole cluster, one for
// the token's rights, one for each place of seeds, and one for each VM of ours whose mark is
// not remembered. Power is
// as the cluster's listing has it, some ten seconds late; addresses are not read.
func (b *Backend) List(ctx context.Context) (backends.Listing, error) {
	snap, err := b.inv.fresh(ctx)
	if err != nil {
		return backends.Listing{}, classify("list resources", err, "the cluster's VMs cannot be listed")
	}
	recs, err := b.records.all()
	if err != nil {
		return backends.Listing{}, backends.Wrap(backends.ErrHostFault, "list records", err, "the records of clones cannot be read")
	}
	l := listing{b: b, snap: snap, now: time.Now(), uids: map[string]bool{}, recs: map[int]record{}}
	for _, r := range recs {
		l.recs[r.VMID] = r
	}
	if err := b.maySee(ctx, b.conf.VMIDRange.Min); err != nil {
		l.blind = true
		l.out.Unread = append(l.out.Unread, backends.Unread{What: "VMs", Err: err})
	}
	l.instances(ctx)
	seeds, unread := b.seeds(ctx, snap)
	l.out.Unread = append(l.out.Unread, unread...)
	l.leftovers(seeds)
	if ctx.Err() != nil {
		return backends.Listing{}, classify("list", context.Cause(ctx), "the listing was not finished")
	}
	b.marks.keep(snap.vms)
	return l.out, nil
}

// listing is one that is being made.
type listing struct {
	b    *Backend
	snap *snapshot
	now  time.Time
	recs map[int]record // by VMID
	// blind says that VMs which are not listed may be there all the same.
	blind bool

	mu   sync.Mutex // guards the fields that follow
	out  backends.Listing
	uids map[string]bool // that have an instance
	dark []pve.VM        // that may be ours and could not be read
}

// instances reads every VM that may be ours.
func (l *listing) instances(ctx context.Context) {
	slots := make(chan struct{}, readers)
	var wg sync.WaitGroup
	for _, vm := range l.snap.VMs {
		rec, recorded := l.recs[vm.ID]
		probe := vm.ID >= l.b.conf.VMIDRange.Min && vm.ID <= l.b.conf.VMIDRange.Max && vm.Name == "" && vm.Type == "qemu" && !vm.Template
		switch {
		case vm.Type != "qemu" || !(recorded || probe || l.b.looksOurs(vm)):
			continue
		case vm.Name == "" && isMaking(vm.Lock):
			l.making(vm, rec, recorded)
			continue
		}
		if e, ok := l.b.marks.get(vm, l.now); ok {
			l.take(vm, e)
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			l.read(ctx, vm)
		})
	}
	wg.Wait()
	slices.SortFunc(l.out.Instances, func(x, y backends.Instance) int { return strings.Compare(x.Mark.UID, y.Mark.UID) })
}

// making takes a VM that is being cloned. Without a record it may be anybody's.
func (l *listing) making(vm pve.VM, rec record, recorded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if recorded {
		l.uids[rec.UID] = true
		l.out.Instances = append(l.out.Instances, l.b.unborn(&cloning{vm: vm, record: rec}))
		return
	}
	l.darkLocked(vm, backends.Errorf(backends.ErrTransient, "read VM", "the VM is being cloned and does not show yet whose it is"))
}

func (l *listing) darkLocked(vm pve.VM, err error) {
	l.dark = append(l.dark, vm)
	l.out.Unread = append(l.out.Unread, backends.Unread{What: fmt.Sprintf("VM %d on node %s", vm.ID, vm.Node), Err: err})
}

func (l *listing) read(ctx context.Context, vm pve.VM) {
	if l.snap.offline(vm.Node) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.darkLocked(vm, backends.Errorf(backends.ErrTransient, "read VM", "node %s is offline; what the VM does is not known", vm.Node))
		return
	}
	now, conf, err := l.b.configOf(ctx, vm)
	if errors.Is(err, errAbsent) {
		return
	}
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.darkLocked(vm, err)
		return
	}
	l.take(now, l.b.marks.put(now, conf, l.now))
}

// take adds a VM whose configuration is known, if it is ours.
func (l *listing) take(vm pve.VM, e *cached) {
	if !e.marked || !e.mark.Owned(l.b.owner) {
		return
	}
	if e.name != backends.InstanceName(e.mark.UID) {
		l.b.log.Warn("a VM carries the mark of a proxy and has another name; it is left alone", "vmid", vm.ID, "node", vm.Node, "name", e.name, "proxy", e.mark.Proxy)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uids[e.mark.UID] = true
	if l.snap.offline(vm.Node) {
		l.darkLocked(vm, backends.Errorf(backends.ErrTransient, "read VM", "node %s is offline; what proxy %s does is not known", vm.Node, e.mark.Proxy))
		return
	}
	i := describeVM(e.mark, vm, pve.VMStatus{Status: vm.Status, Lock: vm.Lock})
	if vm.Status == "unknown" || vm.Status == "" {
		i.Reason, i.Message = "Unknown", "the VM is new, and its node has not told of it yet"
	}
	i.AddressUnread = true
	l.out.Instances = append(l.out.Instances, i)
}

// leftovers are seeds and records whose VM does not exist. What may belong to a VM that
// could not be read is none.
func (l *listing) leftovers(seeds []placed) {
	for _, s := range seeds {
		if !l.hasVM(s.mark.UID) {
			l.out.Leftovers = append(l.out.Leftovers, backends.Leftover{Mark: s.mark, Kind: "seed", Name: s.node + "/" + s.volume.ID})
		}
	}
	for _, r := range l.recs {
		if !l.hasVM(r.UID) {
			m := backends.Mark{Installation: l.b.owner.Installation, HostID: l.b.owner.HostID, Proxy: r.Proxy, UID: r.UID, CreatedAt: r.CreatedAt}
			l.out.Leftovers = append(l.out.Leftovers, backends.Leftover{Mark: m, Kind: "state", Name: fmt.Sprintf("record of a clone to VM %d", r.VMID)})
		}
	}
	slices.SortFunc(l.out.Leftovers, func(x, y backends.Leftover) int { return strings.Compare(x.Name, y.Name) })
}

// hasVM reports whether a uid has a VM, or may have one.
func (l *listing) hasVM(uid string) bool {
	if l.blind || l.uids[uid] {
		return true
	}
	for _, vm := range l.dark {
		if vm.Name == backends.InstanceName(uid) || vm.Name == "" && slices.Contains(vmids(uid, l.b.conf.VMIDRange), vm.ID) {
			return true
		}
	}
	return false
}
