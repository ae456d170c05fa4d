package proxmox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/nocloud"
	"proxyfleet/internal/backends/proxmox/pve"
	"proxyfleet/internal/backends/squid"
)

// seedName is the file name of a uid's seed, which is its mark as well, since an ISO image
// can carry no other: pf-<hash of the uid>_<installation>_<host id>_<proxy>_<uid>.iso. Its
// time of creation is the file's. At most 217 of 255 characters, none of which PVE replaces.
func seedName(o backends.Owner, ref backends.Ref) string {
	return strings.Join([]string{backends.InstanceName(ref.UID), o.Installation, o.HostID, ref.Proxy, ref.UID}, "_") + ".iso"
}

// parseSeed reads a volume's mark, "local:iso/<name>". ok is false for what is no seed.
func parseSeed(v pve.Volume) (m backends.Mark, ok bool) {
	_, name, _ := strings.Cut(v.ID, ":iso/")
	name, isISO := strings.CutSuffix(name, ".iso")
	parts := strings.Split(name, "_")
	if !isISO || len(parts) != 5 {
		return backends.Mark{}, false
	}
	m = backends.Mark{Installation: parts[1], HostID: parts[2], Proxy: parts[3], UID: parts[4], CreatedAt: v.Created}
	if (backends.Ref{Proxy: m.Proxy, UID: m.UID}).Validate() != nil || parts[0] != backends.InstanceName(m.UID) {
		return backends.Mark{}, false
	}
	return m, true
}

// seedVolume is the volume of a uid's seed.
func (b *Backend) seedVolume(ref backends.Ref) string {
	return b.conf.SeedStorage + ":iso/" + seedName(b.owner, ref)
}

// seedImage builds the seed of a job for the card with this MAC.
func (b *Backend) seedImage(j *job, mac string, port int) ([]byte, error) {
	files, err := squid.Render(squid.Params{UID: j.UID, Port: port, Access: j.Access, OwnAddresses: squid.DefaultOwnAddresses})
	if err != nil {
		return nil, err
	}
	boot := nocloud.Bootstrap{
		InstallGuestAgent: b.host.InstallGuestAgent == nil || *b.host.InstallGuestAgent,
		Files: []nocloud.File{
			{Path: "/etc/systemd/system/squid.service.d/proxyfleet.conf", Data: squid.DropIn(squid.DefaultOwnAddresses)},
			{Path: "/etc/squid/squid.conf", Data: files.Conf, Squid: true},
		},
	}
	if files.Passwords != nil {
		boot.Files = append(boot.Files, nocloud.File{Path: squid.DefaultPasswords, Data: files.Passwords, Squid: true})
	}
	vendor, err := nocloud.VendorData(
		nocloud.Part{Name: "operator", Data: []byte(b.host.VendorData)},
		nocloud.Part{Name: "proxyfleet.sh", ContentType: "text/x-shellscript", Data: boot.Script()})
	if err != nil {
		return nil, err
	}
	return nocloud.Build(nocloud.Seed{InstanceID: j.UID, Hostname: j.Proxy, UserData: j.UserData, VendorData: vendor, MAC: mac})
}

// putSeed builds and uploads the seed of a VM, over one that may be there, and returns its
// volume.
func (b *Backend) putSeed(ctx context.Context, j *job, f found) (volume string, err error) {
	j.step("uploading seed")
	mac := netMAC(f.conf["net0"])
	if mac == "" {
		return "", backends.Errorf(backends.ErrPermanent, "build seed", "%s has no network card net0 with a MAC address", f)
	}
	image, err := b.seedImage(j, mac, f.mark.Port)
	if err != nil {
		var done *backends.Error
		if errors.As(err, &done) {
			return "", err
		}
		return "", backends.Wrap(backends.ErrPermanent, "build seed", err, "the seed of proxy %s cannot be built", j.Proxy)
	}
	volume = b.seedVolume(j.Ref)
	if err := backends.Step(ctx, "seed.upload"); err != nil {
		return "", err
	}
	task, err := b.api.Upload(ctx, f.vm.Node, b.conf.SeedStorage, seedName(b.owner, j.Ref), image)
	if err == nil {
		var outcome pve.Outcome
		if outcome, err = b.api.Follow(ctx, task); pve.IsNoTask(err) {
			err = nil
		}
		b.warned(ctx, "upload seed", f.vm.ID, outcome)
	}
	if err != nil {
		return "", classify("upload seed", err, "the seed of proxy %s cannot be stored on %s, node %s", j.Proxy, b.conf.SeedStorage, f.vm.Node)
	}
	v, err := b.api.Volume(ctx, f.vm.Node, b.conf.SeedStorage, volume)
	if err != nil {
		return "", classify("upload seed", err, "the seed of proxy %s was uploaded, and %s does not have it", j.Proxy, b.conf.SeedStorage)
	}
	if v.Size != int64(len(image)) {
		return "", backends.Errorf(backends.ErrTransient, "upload seed", "the seed of proxy %s was uploaded with %d bytes, and %s has %d", j.Proxy, len(image), b.conf.SeedStorage, v.Size)
	}
	return volume, nil
}

// haveSeed uploads the seed again where somebody has removed it: a VM does not start
// without.
func (b *Backend) haveSeed(ctx context.Context, j *job, f found) error {
	volume := b.seedVolume(j.Ref)
	attached := false
	for key, option := range f.conf {
		attached = attached || isDiskSlot(key) && volumeOf(option) == volume
	}
	if !attached {
		return nil // taken out by somebody, after the first boot: the guest has read it
	}
	_, err := b.api.Volume(ctx, f.vm.Node, b.conf.SeedStorage, volume)
	if err == nil {
		return nil
	}
	if !pve.IsNoVolume(err) {
		return classify("look for seed", err, "the seed of %s cannot be looked for", f)
	}
	_, err = b.putSeed(ctx, j, f)
	return err
}

// seat is where seeds may be: a storage as seen from one node.
type seat struct{ node, storage string }

// seats are all places of seeds, each with the nodes that can be asked about it: a shared
// storage is one place, of which any node tells; else each node has its own. away are those
// that nobody can be asked about now.
func (b *Backend) seats(snap *snapshot) (here [][]seat, away []string) {
	var shared []seat
	known, sharedAway := false, false
	for _, s := range snap.Storages {
		if s.Name != b.conf.SeedStorage {
			continue
		}
		known = true
		switch {
		case snap.offline(s.Node):
			if sharedAway = sharedAway || s.Shared; !s.Shared {
				away = append(away, "node "+s.Node+" is offline")
			}
		case !s.Available:
			if sharedAway = sharedAway || s.Shared; !s.Shared {
				away = append(away, fmt.Sprintf("storage %s on node %s is not active", s.Name, s.Node))
			}
		case s.Shared:
			shared = append(shared, seat{s.Node, s.Name})
		default:
			here = append(here, []seat{{s.Node, s.Name}})
		}
	}
	switch {
	case len(shared) > 0:
		here = append(here, shared)
	case sharedAway:
		away = append(away, "no node has the shared storage "+b.conf.SeedStorage+" active")
	case !known:
		away = append(away, "no node has the storage "+b.conf.SeedStorage+", or the token may not see it (Datastore.Audit)")
	}
	return here, away
}

// placed is a seed of ours and where it is.
type placed struct {
	seat
	volume pve.Volume
	mark   backends.Mark
}

// seeds lists the seeds of ours on every node, and says what could not be read.
func (b *Backend) seeds(ctx context.Context, snap *snapshot) (out []placed, unread []backends.Unread) {
	here, away := b.seats(snap)
	for _, why := range away {
		unread = append(unread, backends.Unread{What: "seeds on " + b.conf.SeedStorage,
			Err: backends.Errorf(backends.ErrTransient, "list seeds", "%s", why)})
	}
	for _, any := range here {
		at, volumes, err := b.isos(ctx, any)
		if err != nil {
			unread = append(unread, backends.Unread{What: "seeds on " + at.storage + ", node " + at.node,
				Err: classify("list seeds", err, "the content of storage %s on node %s cannot be listed", at.storage, at.node)})
			continue
		}
		for _, v := range volumes {
			if m, ok := parseSeed(v); ok && m.Owned(b.owner) {
				out = append(out, placed{seat: at, volume: v, mark: m})
			}
		}
	}
	return out, unread
}

// isos asks the nodes that can tell, one after another.
func (b *Backend) isos(ctx context.Context, any []seat) (at seat, volumes []pve.Volume, err error) {
	for _, at = range any {
		volumes, err = b.api.Volumes(ctx, at.node, at.storage, "iso", 0)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return at, volumes, err
}
