package pvefake

import (
	"fmt"
	"strings"
	"time"
)

// Guest is the system inside a VM, as far as the API can see it. Times are of
// the nodes.
type Guest struct {
	// NoAgent: the agent never answers, whatever the VM's config says.
	NoAgent bool
	// AgentAfter is from the start of the VM to the agent's first answer.
	AgentAfter time.Duration
	// AddressAfter is from the start to the interfaces' addresses.
	AddressAfter time.Duration
	// Interfaces makes what network-get-interfaces answers beside lo; mac is
	// that of net0. Nil: one interface with Address(vmid).
	Interfaces func(vmid int, mac string) []Interface
	// ShutdownTakes is how long the system needs to stop when asked.
	ShutdownTakes time.Duration
	// IgnoresShutdown: the system never stops when asked.
	IgnoresShutdown bool
}

// Interface is one network interface of a guest.
type Interface struct {
	Name      string
	MAC       string
	Addresses []string // with prefix length: 192.0.2.1/24
}

// DefaultGuest boots in 5 s, has its address after 8 s and stops in 2 s.
func DefaultGuest() Guest {
	return Guest{AgentAfter: 5 * time.Second, AddressAfter: 8 * time.Second, ShutdownTakes: 2 * time.Second}
}

// Address is the address of a VM whose guest does not say otherwise: one of
// 198.18.0.0/15, the benchmark range.
func Address(vmid int) string {
	return fmt.Sprintf("198.%d.%d.%d", 18+vmid>>16&1, vmid>>8&255, vmid&255)
}

// SetGuest replaces the system inside a VM, at once.
func (c *Cluster) SetGuest(vmid int, g Guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known(vmid).guest = g
}

// agentDelay is how long qemu-server waits for an agent that does not answer.
const agentDelay = 3 * time.Second

// agentEnabled reads the agent key of a config: 1, enabled=1, 1,type=virtio.
func (c *Cluster) agentEnabled(config map[string]string) bool {
	vals, _ := parsePropertyString(config["agent"], c.configProps()["agent"].Sub)
	on, _ := checkType(vals["enabled"], "boolean")
	return on == "1"
}

// agent is the VM of the path when its agent answers, else the 500 that says
// why not; the check of the config comes first, and a silent agent costs 3 s.
func (r *request) agent() (*vm, error) {
	v, err := r.load()
	if err != nil {
		return nil, err
	}
	if !r.c.agentEnabled(v.config) {
		return nil, die("No QEMU guest agent configured")
	}
	if !v.running {
		return nil, die("VM %d is not running", v.id)
	}
	up := r.c.clock.now().Sub(v.since)
	if v.paused || v.guest.NoAgent || up < v.guest.AgentAfter {
		_ = r.c.sleep(r.c.ctx, agentDelay)
		return nil, die("QEMU guest agent is not running")
	}
	return v, nil
}

func agentResult(x any) map[string]any { return map[string]any{"result": x} }

func agentPing(r *request) (any, error) {
	_, err := r.agent()
	return agentResult(map[string]any{}), err
}

func agentOSInfo(r *request) (any, error) {
	_, err := r.agent()
	return agentResult(map[string]any{
		"id": "debian", "name": "Debian GNU/Linux", "pretty-name": "Debian GNU/Linux 12 (bookworm)",
		"version": "12 (bookworm)", "version-id": "12", "machine": "x86_64",
		"kernel-release": "6.1.0-31-amd64", "kernel-version": "#1 SMP PREEMPT_DYNAMIC",
	}), err
}

func agentHostName(r *request) (any, error) {
	v, err := r.agent()
	if err != nil {
		return nil, err
	}
	return agentResult(map[string]any{"host-name": v.name()}), nil
}

func agentInterfaces(r *request) (any, error) {
	v, err := r.agent()
	if err != nil {
		return nil, err
	}
	nic, _ := r.c.parseNIC("net0", v.config["net0"])
	mac := strings.ToLower(nic["macaddr"])
	list := []Interface{{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []string{"127.0.0.1/8", "::1/128"}}}
	switch {
	case v.guest.Interfaces != nil:
		list = append(list, v.guest.Interfaces(v.id, mac)...)
	case mac != "":
		list = append(list, Interface{Name: "eth0", MAC: mac,
			Addresses: []string{Address(v.id) + "/15", "fe80::be24:11ff:fe75:29b7/64"}})
	}
	noAddress := r.c.clock.now().Sub(v.since) < v.guest.AddressAfter
	rows := []map[string]any{}
	for _, i := range list {
		row := map[string]any{"name": i.Name, "hardware-address": i.MAC, "statistics": map[string]int{
			"rx-bytes": 0, "rx-packets": 0, "rx-errs": 0, "rx-dropped": 0,
			"tx-bytes": 0, "tx-packets": 0, "tx-errs": 0, "tx-dropped": 0}}
		if i.Name == "lo" || !noAddress {
			row["ip-addresses"] = addressRows(i.Addresses)
		}
		rows = append(rows, row)
	}
	return agentResult(rows), nil
}

func addressRows(addrs []string) []map[string]any {
	rows := []map[string]any{}
	for _, a := range addrs {
		ip, bits, _ := strings.Cut(a, "/")
		var prefix int
		_, _ = fmt.Sscan(bits, &prefix)
		kind := "ipv4"
		if strings.Contains(ip, ":") {
			kind = "ipv6"
		}
		rows = append(rows, map[string]any{"ip-address": ip, "prefix": prefix, "ip-address-type": kind})
	}
	return rows
}
