package proxmox

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// template is a VM that proxies are cloned from.
type template struct {
	vm       pve.VM
	boot     string   // key of the disk that it boots from
	size     int64    // of that disk, bytes
	storages []string // of all its disks
	storage  string   // of the disk that it boots from
}

// named are the VMs that an image's template may mean: the one with that VMID, and every
// template of that name, of which there may be one on each node.
func named(snap *snapshot, want string) []pve.VM {
	id, _ := strconv.Atoi(want)
	var out []pve.VM
	for _, v := range snap.VMs {
		if v.Type == "qemu" && (v.ID == id || v.Template && v.Name == want) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b pve.VM) int { return a.ID - b.ID })
	return out
}

// templates reads and checks those of an image. The error is about the first one that does
// not serve, if none does.
func (b *Backend) templates(ctx context.Context, snap *snapshot, image string) ([]template, error) {
	want := b.host.Images[image].Template
	vms := named(snap, want)
	if len(vms) == 0 {
		return nil, backends.Errorf(backends.ErrPermanent, "find template",
			"image %s: the cluster has no template %q, or the token may not see it (VM.Audit)", image, want)
	}
	var out []template
	var first error
	for _, vm := range vms {
		t, err := b.template(ctx, vm)
		if err == nil {
			out = append(out, t)
		} else if first == nil {
			first = err
		}
	}
	if len(out) == 0 {
		return nil, first
	}
	return out, nil
}

func (b *Backend) template(ctx context.Context, vm pve.VM) (template, error) {
	vm, conf, err := b.configOf(ctx, vm)
	if errors.Is(err, errAbsent) {
		return template{}, backends.Errorf(backends.ErrTransient, "read template", "template %d was removed meanwhile", vm.ID)
	}
	if err != nil {
		return template{}, err
	}
	t, err := checkTemplate(vm, conf)
	if err != nil {
		return template{}, backends.Wrap(backends.ErrPermanent, "check template", err, "template %d on node %s does not serve", vm.ID, vm.Node)
	}
	return t, nil
}

// checkTemplate refuses what a clone of could not become a proxy.
func checkTemplate(vm pve.VM, conf pve.VMConfig) (template, error) {
	if conf["template"] != "1" {
		return template{}, errors.New("it is a VM, not a template; convert it with `qm template`")
	}
	for key, option := range conf {
		if isDiskSlot(key) && isCloudInit(option) {
			return template{}, errors.New("it has a cloud-init drive (" + key + "), which would stand beside the seed; remove it")
		}
	}
	if netMAC(conf["net0"]) == "" {
		return template{}, errors.New("it has no network card net0")
	}
	boot, size, err := bootDisk(conf)
	if err != nil {
		return template{}, err
	}
	if size == 0 {
		return template{}, errors.New("its disk " + boot + " has no size; `qm rescan` adds it")
	}
	t := template{vm: vm, boot: boot, size: size, storage: storageOf(volumeOf(conf[boot]))}
	for _, key := range disks(conf) {
		if s := storageOf(volumeOf(conf[key])); s != "" && !slices.Contains(t.storages, s) {
			t.storages = append(t.storages, s)
		}
	}
	if t.storage == "" {
		return template{}, errors.New("its disk " + boot + " is on no storage (" + strings.TrimSpace(volumeOf(conf[boot])) + ")")
	}
	return t, nil
}
