//go:build pve || proxmox_real

package proxmox

import (
	"slices"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

func TestWhatAVMDoesHasOneWord(t *testing.T) {
	for name, c := range map[string]struct {
		in     pve.VMStatus
		status backends.Status
		reason string
	}{
		"it runs":                       {pve.VMStatus{Status: "running", QMP: "running"}, backends.StatusRunning, ""},
		"it is stopped":                 {pve.VMStatus{Status: "stopped", QMP: "stopped"}, backends.StatusStopped, ""},
		"it hibernates":                 {pve.VMStatus{Status: "stopped", QMP: "stopped", Lock: "suspended"}, backends.StatusStopped, "Hibernated"},
		"it is about to hibernate":      {pve.VMStatus{Status: "running", QMP: "paused", Lock: "suspending"}, backends.StatusPaused, "Hibernating"},
		"it is paused":                  {pve.VMStatus{Status: "running", QMP: "paused"}, backends.StatusPaused, "Paused"},
		"the guest sleeps":              {pve.VMStatus{Status: "running", QMP: "suspended"}, backends.StatusPaused, "Suspended"},
		"its disk failed":               {pve.VMStatus{Status: "running", QMP: "io-error"}, backends.StatusPaused, "IOError"},
		"it is started":                 {pve.VMStatus{Status: "running", QMP: "prelaunch"}, backends.StatusStarting, "Migrating"},
		"its kernel panicked":           {pve.VMStatus{Status: "running", QMP: "guest-panicked"}, backends.StatusCrashed, "GuestPanicked"},
		"it is backed up while it runs": {pve.VMStatus{Status: "running", QMP: "running", Lock: "backup"}, backends.StatusRunning, "Locked"},
		"it is locked and stopped":      {pve.VMStatus{Status: "stopped", QMP: "stopped", Lock: "rollback"}, backends.StatusStopped, "Locked"},
		"nobody knows":                  {pve.VMStatus{Status: "unknown"}, backends.StatusPaused, "Unknown"},
		"QEMU says something new":       {pve.VMStatus{Status: "running", QMP: "dreaming"}, backends.StatusPaused, "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			if i := describeVM(mark{Generation: 1}, pve.VM{}, c.in); i.Status != c.status || i.Reason != c.reason {
				t.Errorf("got %s %s (%s), want %s %s", i.Status, i.Reason, i.Message, c.status, c.reason)
			}
		})
	}
}

func TestWhatBringsAVMNearerToWhatIsDesired(t *testing.T) {
	running, paused, stopped := pve.VMStatus{Status: "running", QMP: "running"}, pve.VMStatus{Status: "running", QMP: "paused"}, pve.VMStatus{Status: "stopped"}
	asleep := pve.VMStatus{Status: "stopped", Lock: "suspended"}
	for name, c := range map[string]struct {
		desired backends.Desired
		s       pve.VMStatus
		changed bool
		want    action
	}{
		"running as desired":                    {backends.Running, running, false, actNone},
		"stopped as desired":                    {backends.Stopped, stopped, false, actNone},
		"stopped and to run":                    {backends.Running, stopped, false, actStart},
		"hibernating and to run":                {backends.Running, asleep, false, actStart},
		"hibernating and to be stopped":         {backends.Stopped, asleep, false, actNone},
		"hibernating, stopped and to be marked": {backends.Stopped, asleep, true, actStart},
		"paused and to run":                     {backends.Running, paused, false, actResume},
		"running and to be stopped":             {backends.Stopped, running, false, actShutdown},
		"paused and to be stopped":              {backends.Stopped, paused, false, actStop},
		"panicked and to run":                   {backends.Running, pve.VMStatus{Status: "running", QMP: "guest-panicked"}, false, actStop},
		"just started":                          {backends.Running, pve.VMStatus{Status: "running", QMP: "prelaunch"}, false, actWait},
		"failed by its disk and to run":         {backends.Running, pve.VMStatus{Status: "running", QMP: "io-error"}, false, actResume},
	} {
		t.Run(name, func(t *testing.T) {
			if got := next(c.desired, c.s, c.changed); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestAPausedVMIsResumed(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.SetPaused(vm.ID, true)
	if i, err := r.b.Get(r.ctx(), req.Ref); err != nil || i.Status != backends.StatusPaused || i.Reason != "Paused" {
		t.Errorf("got %+v, %v", i, err)
	}
	if _, vm := r.mustEnsure(req); vm.Paused {
		t.Error("it is still paused")
	}
	r.c.SetPaused(vm.ID, true)
	req.Desired = backends.Stopped
	if _, vm := r.mustEnsure(req); vm.Running {
		t.Error("it still runs")
	}
	r.mustDelete(req.Ref)
}

func TestAHibernatedVMIsStoppedAndResumedAndDeleted(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	sleeps := func() {
		r.c.SetRunning(vm.ID, false)
		r.c.SetLock(vm.ID, "suspended")
	}
	sleeps()
	if i, err := r.b.Get(r.ctx(), req.Ref); err != nil || i.Status != backends.StatusStopped || i.Reason != "Hibernated" {
		t.Errorf("got %+v, %v", i, err)
	}
	if _, vm := r.mustEnsure(req); !vm.Running || vm.Config["lock"] != "" {
		t.Errorf("got %+v, want it resumed", vm)
	}
	sleeps()
	req.Desired = backends.Stopped
	if _, vm := r.mustEnsure(req); vm.Running || vm.Config["lock"] != "suspended" {
		t.Errorf("got %+v, want it left asleep", vm)
	}
	req.Generation = 2
	if i, vm := r.mustEnsure(req); vm.Running || i.Generation != 2 {
		t.Errorf("got %+v %+v, want it marked", i, vm)
	}
	sleeps()
	r.mustDelete(req.Ref)
}

func TestAddressesAreOfOurCardOnly(t *testing.T) {
	guest := pvefake.DefaultGuest()
	guest.Interfaces = func(_ int, mac string) []pvefake.Interface {
		return []pvefake.Interface{
			{Name: "docker0", MAC: "02:42:00:00:00:01", Addresses: []string{"172.17.0.1/16"}},
			{Name: "eth0", MAC: strings.ToLower(mac), Addresses: []string{"2001:db8::21/64", "fe80::1/64", "192.0.2.21/24", "169.254.3.4/16"}},
		}
	}
	for name, c := range map[string]struct {
		ipv6 bool
		want string
	}{"IPv4 by default": {false, "192.0.2.21"}, "IPv6 where asked": {true, "192.0.2.21 2001:db8::21"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pvefake.Options{}, func(conf *Config, _ *backends.HostConfig) { conf.IPv6 = c.ipv6 })
			req := r.request()
			_, vm := r.mustEnsure(req)
			r.c.SetGuest(vm.ID, guest)
			r.wait("it has addresses", func() bool {
				i, err := r.b.Get(r.ctx(), req.Ref)
				var got []string
				for _, a := range i.Addresses {
					got = append(got, a.String())
				}
				return err == nil && strings.Join(got, " ") == c.want && !i.AddressUnread
			})
		})
	}
}

func TestASilentGuestAgentIsNotNoAddress(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.SetGuest(vm.ID, pvefake.Guest{NoAgent: true})
	i, err := r.b.Get(r.ctx(), req.Ref)
	if err != nil || i.Status != backends.StatusRunning || !i.AddressUnread || len(i.Addresses) != 0 || !strings.Contains(i.Message, "does not answer") {
		t.Errorf("got %+v, %v", i, err)
	}
}

func TestAVMWithoutAChannelForItsAgentIsRestarted(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	// Somebody has switched it off, and the VM was restarted since.
	r.c.SetRunning(vm.ID, false)
	if err := r.b.api.Configure(r.ctx(), vm.Node, vm.ID, "", map[string]string{"agent": "0"}); err != nil {
		t.Fatal(err)
	}
	r.c.SetRunning(vm.ID, true)
	if i, err := r.b.Get(r.ctx(), req.Ref); err != nil || i.Reason != "AgentOff" {
		t.Errorf("got %+v, %v", i, err)
	}
	if _, vm := r.mustEnsure(req); !vm.Running || !hasAgent(vm.Config["agent"]) {
		t.Errorf("got %+v", vm)
	}
	r.wait("it has an address", func() bool {
		i, err := r.b.Get(r.ctx(), req.Ref)
		return err == nil && len(i.Addresses) == 1
	})
}

func TestASeedThatWasRemovedByHandIsMadeAgainBeforeAStart(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	before, _ := r.c.Volume(vm.Node, r.b.seedVolume(req.Ref))
	r.c.SetRunning(vm.ID, false)
	if err := r.b.removeVolume(r.ctx(), vm.Node, "shared", r.b.seedVolume(req.Ref)); err != nil {
		t.Fatal(err)
	}
	r.mustEnsure(req)
	if after, ok := r.c.Volume(vm.Node, r.b.seedVolume(req.Ref)); !ok || !slices.Equal(before, after) {
		t.Error("the seed is not the same again")
	}
}

func TestAGuestThatDoesNotShutDownIsSwitchedOff(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.SetGuest(vm.ID, pvefake.Guest{IgnoresShutdown: true, NoAgent: true})
	req.Desired = backends.Stopped
	if _, vm := r.mustEnsure(req); vm.Running {
		t.Error("it still runs")
	}
}

func TestUnderHATheStatusIsPolled(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.RemoveVM(vm.ID)
	r.c.AddVM(pvefake.VMSpec{ID: vm.ID, Name: vm.Name, HA: true, Config: map[string]string{"description": vm.Config["description"], "agent": "1"}})
	r.c.ForgetRequests()
	if _, vm := r.mustEnsure(req); !vm.Running {
		t.Error("it does not run")
	}
	req.Desired = backends.Stopped
	if _, vm := r.mustEnsure(req); vm.Running {
		t.Error("it still runs")
	}
	for _, verb := range []string{"start", "shutdown"} {
		if n := r.c.Count("POST", "/nodes/{node}/qemu/{vmid}/status/"+verb); n != 1 {
			t.Errorf("%s was asked for %d times, want once", verb, n)
		}
	}
}

func TestAWatcherTellsOfChangesAndRestsInQuiet(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.RefreshStats()
	time.Sleep(r.b.watchMin) // what was listed before is too old to begin with
	events := r.b.Watch(r.ctx())
	next := func(want string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e.Reason == want {
					if everything := strings.HasSuffix(want, "nnected"); (e.UID == "") != everything || !everything && e.UID != req.UID {
						t.Errorf("%s: got uid %q", want, e.UID)
					}
					return
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("no event %s", want)
			}
		}
	}
	next("Connected")
	r.c.SetRunning(vm.ID, false)
	next("Status:stopped")
	r.c.SetLock(vm.ID, "backup")
	next("Lock:backup")
	r.c.SetLock(vm.ID, "")
	r.c.MoveVM(vm.ID, "pve2")
	next("Migrated")
	r.c.AddressDown("pve1", true)
	r.c.AddressDown("pve2", true)
	r.wait("it has noticed", func() bool { return strings.Contains(r.said.String(), "cannot be watched") })
	r.c.AddressDown("pve1", false)
	next("Reconnected")
	r.c.RemoveVM(vm.ID)
	next("Vanished")
}

func TestThePaceOfWatchingSlowsDownInQuiet(t *testing.T) {
	var got []time.Duration
	d := time.Duration(0)
	for i := range 9 {
		d = pace(d, i == 0, 3*time.Second)
		got = append(got, d)
	}
	if got[0] != 3*time.Second || got[8] != watchMax || !slices.IsSorted(got) || pace(got[8], true, 3*time.Second) != 3*time.Second {
		t.Errorf("got %v", got)
	}
}
