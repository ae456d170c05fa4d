package pve

import (
	"os"
	"sync"
	"time"
)

// file is a small file that is read again when it changed: by time, size or inode.
type file struct {
	path string

	mu      sync.Mutex // guards the fields that follow
	info    os.FileInfo
	at      time.Time
	content []byte
	changes int64
}

// settle is how long after a change a file is read on every use: a second change within the
// resolution of its time stamp would not show.
const settle = 2 * time.Second

// read returns the content, and how often it has changed so far.
func (f *file) read() (content []byte, changes int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		f.info = nil
		return nil, f.changes, err
	}
	if f.info != nil && os.SameFile(info, f.info) && info.ModTime().Equal(f.info.ModTime()) && info.Size() == f.info.Size() &&
		f.at.Sub(info.ModTime()) > settle {
		return f.content, f.changes, nil
	}
	at := time.Now()
	content, err = os.ReadFile(f.path)
	if err != nil {
		f.info = nil
		return nil, f.changes, err
	}
	if string(content) != string(f.content) {
		f.changes++
	}
	f.info, f.at, f.content = info, at, content
	return content, f.changes, nil
}
