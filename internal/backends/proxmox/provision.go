package proxmox

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// provision finishes a VM that was cloned and never started: seed, configuration, disk.
// It begins from the start each time: what an earlier call left half done is not trusted.
func (b *Backend) provision(ctx context.Context, j *job, f found) (found, error) {
	f, err := b.unlocked(ctx, f)
	if err != nil {
		return f, err
	}
	seed, err := b.putSeed(ctx, j, f)
	if err != nil {
		return f, err
	}
	j.step("configuring VM")
	set, remove, err := b.options(j, f, seed)
	if err != nil {
		return f, backends.Wrap(backends.ErrPermanent, "configure VM", err, "%s", f)
	}
	if err := backends.Step(ctx, "vm.config"); err != nil {
		return f, err
	}
	if err := b.api.Configure(ctx, f.vm.Node, f.vm.ID, f.conf["digest"], set, remove...); err != nil {
		return f, classify("configure VM", err, "%s cannot be configured", f)
	}
	if f, err = b.verify(ctx, f); err != nil {
		return f, err
	}
	if f, err = b.grown(ctx, j, f); err != nil {
		return f, err
	}
	return b.remark(ctx, f, j.Generation)
}

// options are what a clone's configuration gets. Everything that is not named stays the
// template's.
func (b *Backend) options(j *job, f found, seed string) (set map[string]string, remove []string, err error) {
	slot, err := cdSlot(f.conf, seed)
	if err != nil {
		return nil, nil, err
	}
	// A template that was once a proxy may have its agent's tag.
	tags := slices.DeleteFunc(pve.Tags(f.conf["tags"]), isOwnerTag)
	tags = slices.Concat(tags, []string{generalTag, b.ownerTag}, b.conf.Tags)
	slices.Sort(tags)
	set = map[string]string{
		"sockets": "1",
		"cores":   strconv.Itoa(j.need.cpus),
		"memory":  strconv.FormatInt(j.need.memory/mib, 10),
		"agent":   agentOn(f.conf["agent"]),
		"onboot":  "0", // the agent starts what its record wants running
		"tags":    strings.Join(slices.Compact(tags), ";"),
		slot:      seed + ",media=cdrom",
	}
	if net := rewire(f.conf["net0"], b.conf.Network); net != f.conf["net0"] {
		set["net0"] = net
	}
	if f.conf["protection"] == "1" {
		set["protection"] = "0" // the template's; later on it is somebody's wish
	}
	// Processors that are plugged in later, and a balloon larger than the memory, do not go
	// with other numbers of them.
	if f.conf["vcpus"] != "" {
		remove = append(remove, "vcpus")
	}
	if n, _ := strconv.ParseInt(f.conf["balloon"], 10, 64); n > j.need.memory/mib {
		remove = append(remove, "balloon")
	}
	return set, remove, nil
}

// grown grows the disk to what was asked for. It never shrinks one.
func (b *Backend) grown(ctx context.Context, j *job, f found) (found, error) {
	key, size, err := bootDisk(f.conf)
	if err != nil {
		return f, backends.Wrap(backends.ErrPermanent, "resize disk", err, "%s", f)
	}
	if j.need.disk == 0 || size >= j.need.disk {
		return f, nil
	}
	j.step("growing disk")
	if err := backends.Step(ctx, "vm.resize"); err != nil {
		return f, err
	}
	task, err := b.api.Resize(ctx, f.vm.Node, f.vm.ID, f.conf["digest"], key, j.DiskGiB)
	if err == nil {
		var outcome pve.Outcome
		if outcome, err = b.api.Follow(ctx, task); pve.IsNoTask(err) {
			err = nil
		}
		b.warned(ctx, "resize disk", f.vm.ID, outcome)
	}
	if err != nil {
		return f, classify("resize disk", err, "disk %s of %s cannot be grown to %d GiB", key, f, j.DiskGiB)
	}
	if f, err = b.verify(ctx, f); err != nil {
		return f, err
	}
	if _, size, err := bootDisk(f.conf); err != nil || size < j.need.disk {
		return f, backends.Errorf(backends.ErrTransient, "resize disk", "disk %s of %s has %d MiB after it was grown to %d GiB", key, f, size/mib, j.DiskGiB)
	}
	return f, nil
}

// withDescription is a configuration after its mark was written.
func withDescription(f found, m mark) pve.VMConfig {
	conf := maps.Clone(f.conf)
	conf["description"] = describe(m, f.conf["description"])
	return conf
}
