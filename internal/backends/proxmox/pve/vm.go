package pve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// VMConfig is a VM's configuration: option → value, as PVE writes it. "digest" guards a
// change against another's.
type VMConfig map[string]string

// Config reads a VM's configuration, with changes that wait for a restart; current is as
// the VM runs now.
func (c *Client) Config(ctx context.Context, node string, vmid int, current bool) (VMConfig, error) {
	k := call{method: http.MethodGet, path: vmPath(node, vmid, "config")}
	if current {
		k.query = url.Values{"current": {"1"}}
	}
	var raw map[string]json.RawMessage
	if err := c.do(ctx, k, &raw); err != nil {
		return nil, err
	}
	conf := VMConfig{}
	for name, value := range raw {
		var t text
		if err := t.UnmarshalJSON(value); err == nil {
			conf[name] = string(t)
		}
	}
	return conf, nil
}

// Configure changes a VM's configuration at once. PVE refuses the change when the
// configuration is no longer the one that digest is of.
func (c *Client) Configure(ctx context.Context, node string, vmid int, digest string, set map[string]string, remove ...string) error {
	form := url.Values{"digest": {digest}}
	for name, value := range set {
		form.Set(name, value)
	}
	if len(remove) > 0 {
		form.Set("delete", strings.Join(remove, ","))
	}
	return c.do(ctx, call{method: http.MethodPut, path: vmPath(node, vmid, "config"), form: form}, nil)
}

// VMStatus is what a VM does now, without delay.
type VMStatus struct {
	Status  string // "running" or "stopped"
	QMP     string // QEMU's own word: "running", "paused", "io-error", "prelaunch", …
	Lock    string
	Managed bool // by HA: start and stop end before the VM does what was asked
}

// Status reads it.
func (c *Client) Status(ctx context.Context, node string, vmid int) (VMStatus, error) {
	var s struct {
		Status, QMPStatus, Lock text
		HA                      struct{ Managed flag }
	}
	err := c.do(ctx, call{method: http.MethodGet, path: vmPath(node, vmid, "status", "current")}, &s)
	return VMStatus{Status: string(s.Status), QMP: string(s.QMPStatus), Lock: string(s.Lock), Managed: bool(s.HA.Managed)}, err
}

// CloneOptions are a new VM's.
type CloneOptions struct {
	ID          int
	Name        string
	Description string
	Target      string // node; empty: the template's
	Full        bool   // copy the disks
	Storage     string // for a full clone; empty: where the template's disks are
}

// Clone starts a clone and returns its task.
func (c *Client) Clone(ctx context.Context, node string, template int, o CloneOptions) (UPID, error) {
	form := url.Values{"newid": {strconv.Itoa(o.ID)}, "name": {o.Name}, "description": {o.Description}, "full": {"0"}}
	if o.Full {
		form.Set("full", "1")
		if o.Storage != "" {
			form.Set("storage", o.Storage)
		}
	}
	if o.Target != "" && o.Target != node {
		form.Set("target", o.Target)
	}
	return c.task(ctx, call{method: http.MethodPost, path: vmPath(node, template, "clone"), form: form})
}

// Resize starts growing a disk to a size in GiB.
func (c *Client) Resize(ctx context.Context, node string, vmid int, digest, disk string, gib int) (UPID, error) {
	form := url.Values{"disk": {disk}, "size": {strconv.Itoa(gib) + "G"}, "digest": {digest}}
	return c.task(ctx, call{method: http.MethodPut, path: vmPath(node, vmid, "resize"), form: form})
}

// Start starts a VM; one that hibernates resumes.
func (c *Client) Start(ctx context.Context, node string, vmid int) (UPID, error) {
	return c.power(ctx, node, vmid, "start", nil)
}

// Stop switches a VM off.
func (c *Client) Stop(ctx context.Context, node string, vmid int) (UPID, error) {
	return c.power(ctx, node, vmid, "stop", nil)
}

// Shutdown asks the guest to shut down and switches it off after so many seconds.
func (c *Client) Shutdown(ctx context.Context, node string, vmid, seconds int) (UPID, error) {
	return c.power(ctx, node, vmid, "shutdown", url.Values{"timeout": {strconv.Itoa(seconds)}, "forceStop": {"1"}})
}

// Resume lets a paused VM go on.
func (c *Client) Resume(ctx context.Context, node string, vmid int) (UPID, error) {
	return c.power(ctx, node, vmid, "resume", nil)
}

func (c *Client) power(ctx context.Context, node string, vmid int, verb string, form url.Values) (UPID, error) {
	if form == nil {
		form = url.Values{}
	}
	return c.task(ctx, call{method: http.MethodPost, path: vmPath(node, vmid, "status", verb), form: form})
}

// Destroy removes a VM that is stopped, with its disks, and takes it out of backup,
// replication and HA jobs. Volumes of the same VMID that its configuration does not name
// stay: they may be another cluster's.
func (c *Client) Destroy(ctx context.Context, node string, vmid int) (UPID, error) {
	q := url.Values{"purge": {"1"}, "destroy-unreferenced-disks": {"0"}}
	return c.task(ctx, call{method: http.MethodDelete, path: vmPath(node, vmid), query: q})
}

// Interface is a network card as the guest sees it.
type Interface struct {
	MAC       string
	Addresses []netip.Addr
}

// Interfaces asks a VM's guest agent.
func (c *Client) Interfaces(ctx context.Context, node string, vmid int) ([]Interface, error) {
	var said struct {
		Result []struct {
			MAC       text `json:"hardware-address"`
			Addresses []struct {
				Address text `json:"ip-address"`
			} `json:"ip-addresses"`
		}
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: vmPath(node, vmid, "agent", "network-get-interfaces")}, &said); err != nil {
		return nil, err
	}
	var out []Interface
	for _, r := range said.Result {
		i := Interface{MAC: strings.ToLower(string(r.MAC))}
		for _, a := range r.Addresses {
			if addr, err := netip.ParseAddr(string(a.Address)); err == nil {
				i.Addresses = append(i.Addresses, addr)
			}
		}
		out = append(out, i)
	}
	return out, nil
}

func vmPath(node string, vmid int, rest ...string) string {
	return path(append([]string{"nodes", node, "qemu", strconv.Itoa(vmid)}, rest...)...)
}
