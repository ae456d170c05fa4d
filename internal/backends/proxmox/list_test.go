//go:build pve || proxmox_real

package proxmox

import (
	"fmt"
	"net/http"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

// TestAListingOf200VMsAsksLittle has 200 VMs of ours, and as many of another agent and of
// people beside them.
func TestAListingOf200VMsAsksLittle(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	other := backends.Owner{Installation: r.owner.Installation, HostID: newID()}
	for i := range 200 {
		for n, o := range []backends.Owner{r.owner, other} {
			m := backends.Mark{Installation: o.Installation, HostID: o.HostID, Proxy: fmt.Sprintf("crawl-%d", i), UID: newID()}
			r.c.AddVM(pvefake.VMSpec{ID: 100000 + 1000*n + i, Name: backends.InstanceName(m.UID), Running: true, Node: []string{"pve1", "pve2"}[i%2], Config: map[string]string{
				"description": describe(mark{Mark: m, Generation: 1, Port: 3128}, ""), "tags": generalTag + ";" + ownerTag(o)}})
		}
		r.c.AddVM(pvefake.VMSpec{ID: 3000 + i, Name: fmt.Sprintf("db-%d", i)})
	}
	r.c.RefreshStats()
	count := func(what string, most int, do func()) {
		t.Helper()
		r.c.ForgetRequests()
		do()
		if n := len(r.c.Requests()); n > most {
			t.Errorf("%s took %d requests, want at most %d", what, n, most)
		}
		if n := r.c.Count(http.MethodGet, "/cluster/resources"); n > 1 {
			t.Errorf("%s listed the cluster %d times", what, n)
		}
	}
	var first backends.Listing
	// The cluster, the token's rights, the seeds on the shared storage, and one for each of
	// ours.
	count("the first listing", 3+200, func() { first = r.list(r.b) })
	if len(first.Instances) != 200 || len(first.Leftovers) != 0 || len(first.Unread) != 0 {
		t.Errorf("got %d instances, %d left over, %d unread", len(first.Instances), len(first.Leftovers), len(first.Unread))
	}
	count("the next listing", 3, func() { r.list(r.b) })
	r.c.MoveVM(100000, "pve2")
	count("a listing after a migration", 4, func() { r.list(r.b) })
	count("a get", 4, func() {
		if _, err := r.b.Get(r.ctx(), backends.Ref{Proxy: first.Instances[7].Mark.Proxy, UID: first.Instances[7].Mark.UID}); err != nil {
			t.Error(err)
		}
	})
}

func TestAnOfferCountsNodesStoragesAndTemplates(t *testing.T) {
	r := newRig(t, pvefake.Options{}, func(c *Config, hc *backends.HostConfig) {
		hc.Images["gone"] = backends.Image{Template: "nope"}
		hc.Images["by-name"] = backends.Image{Template: "debian-13"}
		hc.Limits.Reserve.MemoryMiB, hc.Limits.Reserve.DiskGiB, hc.Limits.Slots = 1024, 10, 50
	})
	r.c.AddVM(pvefake.VMSpec{ID: 700, Name: "db", Running: true, Config: map[string]string{"memory": "4096"}})
	r.c.RefreshStats()
	before, err := r.b.Offer(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(before.Images) != "[by-name debian-13]" || before.DefaultImage != "debian-13" || len(before.MachineTypes) != 2 || before.DefaultDiskGiB != 4 {
		t.Errorf("got %+v", before)
	}
	// Two nodes of 32 GiB, 2 GiB in use each beside what VMs use, 1 GiB kept free.
	want := backends.Capacity{VCPUs: 16, Slots: 50, DiskGiB: 500 - 10, MemoryMiB: 2*(32-1)*1024 - 2*2048}
	if got := before.Capacity; got.VCPUs != want.VCPUs || got.Slots != want.Slots || got.DiskGiB < want.DiskGiB-5 || got.DiskGiB > want.DiskGiB ||
		got.MemoryMiB > want.MemoryMiB-2048 || got.MemoryMiB < want.MemoryMiB-6144 {
		t.Errorf("got %+v, want about %+v less what the VM uses", got, want)
	}
	r.mustEnsure(r.request())
	r.c.RefreshStats()
	after, err := r.b.Offer(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if d := before.Capacity.MemoryMiB - after.Capacity.MemoryMiB; d > 8 || d < -8 {
		t.Errorf("one of our own changed the capacity: %+v, then %+v", before.Capacity, after.Capacity)
	}
	r.c.NodeDown("pve2", true)
	r.wait("one node counts no more", func() bool {
		half, err := r.b.Offer(r.ctx())
		return err == nil && half.Capacity.VCPUs == 8
	})
}

func TestSlotsAreAtMostAsConfigured(t *testing.T) {
	r := newRig(t, pvefake.Options{}, func(_ *Config, hc *backends.HostConfig) { hc.Limits.Slots = 2 })
	first := r.request()
	r.mustEnsure(first)
	r.c.RefreshStats()
	r.mustEnsure(r.request())
	r.c.RefreshStats()
	_, err := r.ensure(r.request())
	r.expect(err, backends.ErrNoCapacity, "2 of 2")
	r.mustEnsure(first)
	r.mustDelete(first.Ref)
	r.mustEnsure(r.request())
}
