package libvirt

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

const (
	// uploadStall is how long an upload may take for one piece of 4 MiB.
	uploadStall = time.Minute
	// streamBudget bounds one stream, however well it goes on.
	streamBudget = 24 * time.Hour
)

// fill writes content to the start of a volume, after its labelled step.
func (v volumes) fill(s *session, step string, vol golibvirt.StorageVol, content []byte) error {
	if err := backends.Step(s.ctx, step); err != nil {
		return err
	}
	return s.do("write volume", writeBudget, grace, func(l *golibvirt.Libvirt) error {
		return l.StorageVolUpload(vol, bytes.NewReader(content), 0, uint64(len(content)), 0)
	})
}

// upload writes size bytes of r, which must not fail: go-libvirt waits for ever for the end
// of a stream whose reader did. report gets the bytes that are on their way.
func (v volumes) upload(s *session, vol golibvirt.StorageVol, r io.Reader, size int64, report func(sent int64)) error {
	var stalled atomic.Bool
	timer := time.AfterFunc(uploadStall, func() {
		stalled.Store(true)
		s.cut()
	})
	defer timer.Stop()
	sent := int64(0)
	moving := readerFunc(func(p []byte) (int, error) {
		timer.Reset(uploadStall)
		n, err := r.Read(p)
		sent += int64(n)
		report(sent)
		if err != nil && !errors.Is(err, io.EOF) {
			s.cut()
		}
		return n, err
	})
	err := s.do("upload volume", streamBudget, 0, func(l *golibvirt.Libvirt) error {
		return l.StorageVolUpload(vol, moving, 0, uint64(size), 0)
	})
	if err != nil && stalled.Load() {
		return backends.Errorf(backends.ErrTransient, "upload volume", "libvirt took nothing of %s for %s", vol.Name, uploadStall)
	}
	return err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// download reads the first n bytes of a volume. Fewer are an error: a stream that ended early
// looks like one that was at its end, and what was not read says nothing.
func (v volumes) download(s *session, vol golibvirt.StorageVol, n int) ([]byte, error) {
	var to bytes.Buffer
	err := s.do("read volume", readBudget, 0, func(l *golibvirt.Libvirt) error {
		return l.StorageVolDownload(vol, &to, 0, uint64(n), 0)
	})
	if err == nil && to.Len() != n {
		err = backends.Errorf(backends.ErrTransient, "read volume", "%d bytes of %s were read, want %d", to.Len(), vol.Name, n)
	}
	return to.Bytes(), err
}
