package libvirt

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

var _ storage = place{}

func (p place) inventory(*session) (inventory, error) {
	pieces, err := p.files()
	if err != nil {
		return inventory{}, err
	}
	found := inventory{pieces: pieces}
	for name := range pieces {
		m, there, err := p.readMarker(name)
		switch {
		case err != nil:
			found.unread = append(found.unread, backends.Unread{What: p.marker(name), Err: err})
		case there && backends.InstanceName(m.UID) == name: // or it was put there by hand
			found.markers = append(found.markers, m)
		}
	}
	return found, nil
}

func (p place) belongings(_ *session, name string) (belongings, error) {
	m, there, err := p.readMarker(name)
	if err != nil {
		return belongings{}, err
	}
	pieces, err := p.files()
	return belongings{marker: m, marked: there, pieces: pieces[name]}, err
}

// readMarker reads a marker; there is false when no file is there.
func (p place) readMarker(name string) (m marker, there bool, err error) {
	text, err := os.ReadFile(p.marker(name))
	if errors.Is(err, fs.ErrNotExist) {
		return marker{}, false, nil
	}
	if err != nil {
		return marker{}, true, fileError("read marker", err)
	}
	m, err = parseMarker(text, p.marker(name))
	return m, true, err
}

func (p place) writeMarker(s *session, name string, m marker) error {
	if err := backends.Step(s.ctx, "marker.write"); err != nil {
		return err
	}
	if err := os.MkdirAll(p.state(), 0o711); err != nil {
		return fileError("write marker", err)
	}
	if !p.recorded() {
		if err := replace(p.record(), []byte(p.uuid+"\n")); err != nil {
			return fileError("write marker", err)
		}
	}
	err := replace(p.draft(name), m.text())
	if err == nil {
		err = os.Rename(p.draft(name), p.marker(name))
	}
	return fileError("write marker", err)
}

// replace puts content in place as a whole, for root's eyes only.
func replace(path string, content []byte) error {
	return renameio.WriteFile(path, content, 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

func (p place) diskFits(s *session, name string, m marker, base images.Base) (bool, error) {
	return exists(p.disk(name)) && overlayFits(s.ctx, p.disk(name), base, m.DiskBytes), nil
}

func (p place) createDisk(s *session, name string, m *marker, base images.Base) error {
	if err := backends.Step(s.ctx, "disk.create"); err != nil {
		return err
	}
	return createOverlay(s.ctx, p.disk(name), filepath.Join(p.state(), name+".disk.new"), base, m.DiskBytes)
}

func (p place) seedIs(_ *session, name string, iso []byte) (bool, error) {
	have, err := os.ReadFile(p.seed(name))
	return err == nil && bytes.Equal(have, iso), nil // a file that cannot be read is written anew
}

// writeSeed puts a seed in place. It holds the password's hash and the user's data: only
// root reads it, and QEMU, to whom libvirt gives it while the guest runs.
func (p place) writeSeed(s *session, name string, iso []byte) error {
	if err := backends.Step(s.ctx, "seed.write"); err != nil {
		return err
	}
	return fileError("write seed", replace(p.seed(name), iso))
}

func (p place) remove(s *session, x piece) error {
	if err := backends.Step(s.ctx, x.kind+".remove"); err != nil {
		return err
	}
	if err := os.Remove(x.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError("remove files", err)
	}
	return nil
}

func (p place) attach(_ *session, name string, base images.Base) (attachment, error) {
	return attachment{
		root: diskSource{kind: "file", path: p.disk(name), format: "qcow2", backing: &diskSource{kind: "file", path: base.Path, format: base.Format}},
		seed: diskSource{kind: "file", path: p.seed(name), format: "raw"},
		// Files of the instance's own, in one place with all else that goes with it.
		nvram: p.nvram(name), console: p.console(name),
	}, nil
}

func (p place) findBase(_ *session, digest, format string) (images.Base, error) {
	return images.Find(p.dir, digest, format)
}

func (p place) fetchBase(ctx context.Context, src images.Source, report func(backends.Progress)) (images.Base, error) {
	return p.images.Fetch(ctx, p.dir, src, steps(report))
}

// steps reports what a fetch does as the steps of an instance.
func steps(report func(backends.Progress)) images.Report {
	return func(step string, percent int) { report(backends.Progress{Step: step, Percent: percent}) }
}

func (p place) bases(*session) ([]images.Stored, error) { return images.List(p.dir) }

func (p place) builtOn(s *session) (map[string]bool, error) { return images.BuiltOn(s.ctx, p.dir) }

func (p place) removeBase(_ *session, b images.Base) error { return images.Remove(p.dir, b) }

func (p place) rests(*session) (found []rest, err error) {
	all, err := images.Rests(p.dir)
	for _, r := range all {
		found = append(found, rest{Rest: r})
	}
	return found, err
}

func (p place) removeRest(_ *session, x rest, now time.Time) (bool, error) { return x.Remove(now) }

// refresh has nothing to do: files are always looked at.
func (p place) refresh(*session) bool { return false }
