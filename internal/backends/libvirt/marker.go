package libvirt

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"proxyfleet/internal/backends"
)

// marker is the file that says whose an instance's files are. It is written before any of
// them and removed after all of them, so nothing of ours is ever without one.
type marker struct {
	Installation string    `json:"installation"`
	HostID       string    `json:"hostId"`
	Proxy        string    `json:"proxy"`
	UID          string    `json:"uid"`
	CreatedAt    time.Time `json:"createdAt"`
	Port         int       `json:"port"`

	// What the instance takes of the host, for counting.
	VCPUs     int   `json:"vcpus"`
	MemoryMiB int   `json:"memoryMiB"`
	DiskBytes int64 `json:"diskBytes"`

	// What the guest was made with: it outlives the configuration's entries.
	Firmware   string `json:"firmware"`
	Base       string `json:"base"` // digest
	BaseFormat string `json:"baseFormat"`

	// Fields has, for each field that does not change in place, a keyed hash of its value,
	// so that a change is noticed without a secret standing here.
	Salt   string            `json:"salt"`
	Fields map[string]string `json:"fields"`
}

func (m marker) mark() backends.Mark {
	return backends.Mark{Installation: m.Installation, HostID: m.HostID, Proxy: m.Proxy, UID: m.UID, CreatedAt: m.CreatedAt}
}

// newMarker describes what r will take. created is the time of an instance that exists
// already, or zero.
func newMarker(o backends.Owner, r resolved, port int, created time.Time) marker {
	if created.IsZero() {
		created = time.Now().UTC().Truncate(time.Second)
	}
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	m := marker{
		Installation: o.Installation, HostID: o.HostID, Proxy: r.Proxy, UID: r.UID, CreatedAt: created, Port: port,
		VCPUs: r.shape.VCPUs, MemoryMiB: r.shape.MemoryMiB, DiskBytes: int64(r.DiskGiB) << 30, Firmware: r.image.Firmware,
		Salt: hex.EncodeToString(salt),
	}
	m.Fields = fieldHashes(m.Salt, r)
	return m
}

// fieldHashes hashes each field that cannot change in place. The port is compared by itself.
func fieldHashes(salt string, r resolved) map[string]string {
	a := r.Access
	hashes := map[string]string{}
	for field, value := range map[string]any{
		"auth":        []string{a.Username, a.Password.Reveal()},
		"allowFrom":   fmt.Sprint(a.AllowFrom),
		"egress":      fmt.Sprint(a.Private, a.ConnectPorts),
		"image":       r.Image,
		"machineType": r.MachineType,
		"diskGiB":     r.DiskGiB,
		"cloudInit":   r.UserData,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // strings and numbers always marshal
		}
		h := hmac.New(sha256.New, []byte(salt))
		h.Write(text)
		hashes[field] = hex.EncodeToString(h.Sum(nil))
	}
	return hashes
}

// changed names a field of r that differs from what the instance was made with.
func (m marker) changed(r resolved) string {
	if r.Port != 0 && r.Port != m.Port {
		return "port"
	}
	now := fieldHashes(m.Salt, r)
	for _, field := range []string{"auth", "allowFrom", "egress", "image", "machineType", "diskGiB", "cloudInit"} {
		if was, known := m.Fields[field]; known && was != now[field] {
			return field
		}
	}
	return ""
}

// readMarker reads a marker; there is false when no file is there.
func readMarker(path string) (m marker, there bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return marker{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err == nil && (m.UID == "" || m.Installation == "" || m.HostID == "") {
		err = errors.New("it is not whole")
	}
	if err != nil {
		return marker{}, true, backends.Wrap(backends.ErrTransient, "read marker", err, "the marker %s cannot be read; mend or remove it by hand", path)
	}
	return m, true, nil
}

func (m marker) write(path string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

// markers reads every marker in a pool, whoever's, and names those that cannot be read.
func (p place) markers() (found []marker, unread []backends.Unread, err error) {
	entries, err := os.ReadDir(p.state())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fileError("read markers", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "pf-") || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		path := filepath.Join(p.state(), e.Name())
		m, there, err := readMarker(path)
		switch {
		case err != nil:
			unread = append(unread, backends.Unread{What: path, Err: err})
		case there && e.Name() == backends.InstanceName(m.UID)+".json": // or it was put there by hand
			found = append(found, m)
		}
	}
	return found, unread, nil
}
