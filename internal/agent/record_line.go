package agent

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"proxyfleet/internal/bus"
)

// entry is what the record holds of one uid.
type entry struct {
	Assignment bus.Assignment `json:"assignment"`
	Seq        uint64         `json:"seq"` // of the assignment in its stream
}

// retired remembers a uid after everything of it is gone, so that a late copy of an older
// assignment does not bring it back.
type retired struct {
	UID        string    `json:"uid"`
	Seq        uint64    `json:"seq"`
	Generation uint64    `json:"generation"`
	At         time.Time `json:"at"`
}

// seen is what was last known of a uid, so that a restarted agent that cannot read the
// backend does not demote a proxy that runs.
type seen struct {
	UID        string        `json:"uid"`
	Generation uint64        `json:"generation"`
	Phase      bus.Phase     `json:"phase"`
	Addresses  []bus.Address `json:"addresses,omitempty"`
}

// line is one line of the record; one field is set.
type line struct {
	Head   *head    `json:"record,omitempty"`
	Put    *entry   `json:"put,omitempty"`
	Retire *retired `json:"retire,omitempty"`
	Seen   *seen    `json:"seen,omitempty"`
	Seq    uint64   `json:"seq,omitempty"` // highest sequence recorded, of markers too
}

// head is the first line.
type head struct {
	Version int    `json:"version"`
	HostID  string `json:"hostId"`
}

const recordVersion = 1

var (
	errDamaged = errors.New("damaged line")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// encodeLine renders the checksum (CRC-32C, 8 hex digits), a space, JSON and a newline.
func encodeLine(l line) ([]byte, error) {
	body, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encode a line of the record: %w", err)
	}
	out := make([]byte, 0, len(body)+10)
	out = fmt.Appendf(out, "%08x ", crc32.Checksum(body, castagnoli))
	return append(append(out, body...), '\n'), nil
}

// decodeLine reads what encodeLine wrote, without its newline.
func decodeLine(raw []byte) (line, error) {
	var l line
	sum, body, ok := bytes.Cut(raw, []byte(" "))
	var want [4]byte
	if n, err := hex.Decode(want[:], sum[:min(len(sum), 8)]); !ok || len(sum) != 8 || err != nil || n != 4 {
		return l, errDamaged
	}
	got := crc32.Checksum(body, castagnoli)
	if got != uint32(want[0])<<24|uint32(want[1])<<16|uint32(want[2])<<8|uint32(want[3]) {
		return l, errDamaged
	}
	if err := json.Unmarshal(body, &l); err != nil {
		return l, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return l, nil
}
