package libvirt

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
	// Copied is the digest of the base that the disk is a whole copy of, on pools where it is
	// no overlay.
	Copied string `json:"copied,omitempty"`

	// Fields has, for each field of the request, a keyed hash of its value,
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

// Fields that can change in place, the disk to a larger one.
const (
	fieldMachineType = string(backends.FieldMachineType)
	fieldDiskGiB     = string(backends.FieldDiskGiB)
)

// fieldHashes hashes each field that an instance is made from. The port is compared by itself.
func fieldHashes(salt string, r resolved) map[string]string {
	a := r.Access
	hashes := map[string]string{}
	for field, value := range map[string]any{
		"auth":           []string{a.Username, a.Password.Reveal()},
		"allowFrom":      fmt.Sprint(a.AllowFrom),
		"egress":         fmt.Sprint(a.Private, a.ConnectPorts),
		"image":          r.Image,
		fieldMachineType: r.MachineType,
		fieldDiskGiB:     r.DiskGiB,
		"cloudInit":      r.UserData,
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

// changed names a field of r that differs from what the instance was made with, and cannot
// change in place.
func (m marker) changed(r resolved) string {
	if r.Port != 0 && r.Port != m.Port {
		return "port"
	}
	now := fieldHashes(m.Salt, r)
	for _, field := range []string{"auth", "allowFrom", "egress", "image", "cloudInit"} {
		if m.differs(now, field) {
			return field
		}
	}
	if m.differs(now, fieldDiskGiB) && int64(r.DiskGiB)<<30 < m.DiskBytes {
		return fieldDiskGiB // a file system in use does not shrink
	}
	return ""
}

// differs reports whether a field is another than the instance was made with, as far as that
// is known.
func (m marker) differs(now map[string]string, field string) bool {
	was, known := m.Fields[field]
	return known && was != now[field]
}

// parseMarker reads what stands in a marker called name. Its error is for people.
func parseMarker(text []byte, name string) (m marker, err error) {
	err = json.Unmarshal(text, &m)
	if err == nil && (m.UID == "" || m.Installation == "" || m.HostID == "") {
		err = errors.New("it is not whole")
	}
	if err != nil {
		return marker{}, backends.Wrap(backends.ErrTransient, "read marker", err, "the marker %s cannot be read; mend or remove it by hand", name)
	}
	return m, nil
}

// text is what stands in the marker.
func (m marker) text() []byte {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return append(b, '\n')
}
