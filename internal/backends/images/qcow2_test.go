package images

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// header is the start of a sound qcow2 image of 1 MiB, version 3.
func header() []byte {
	h := make([]byte, 4096)
	copy(h, qcow2Magic)
	be := binary.BigEndian
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], 16) // clusters of 64 KiB
	be.PutUint64(h[24:], 1<<20)
	be.PutUint32(h[100:], 104)
	return h
}

func TestAHeaderIsReadWithoutOpeningAnything(t *testing.T) {
	be := binary.BigEndian
	extension := func(h []byte, kind, size uint32) { be.PutUint32(h[104:], kind); be.PutUint32(h[108:], size) }
	for want, change := range map[string]func(h []byte) []byte{
		"":                                  func(h []byte) []byte { return h },
		"not a qcow2":                       func(h []byte) []byte { h[0] = 'X'; return h },
		"not a qcow2 image":                 func(h []byte) []byte { return h[:60] },
		"version 9":                         func(h []byte) []byte { h[7] = 9; return h },
		"backing file":                      func(h []byte) []byte { be.PutUint64(h[8:], 512); return h },
		"a backing file; flatten":           func(h []byte) []byte { be.PutUint32(h[16:], 3); return h },
		"encrypted":                         func(h []byte) []byte { be.PutUint32(h[32:], 2); return h },
		"it is encrypted":                   func(h []byte) []byte { extension(h, extensionCrypto, 16); return h },
		"virtual size is 0":                 func(h []byte) []byte { be.PutUint64(h[24:], 0); return h },
		"keeps its data in another":         func(h []byte) []byte { h[79] |= incompatibleDataFile; return h },
		"corrupt":                           func(h []byte) []byte { h[79] |= incompatibleCorrupt; return h },
		"features that are not known":       func(h []byte) []byte { h[72] |= 0x80; return h },
		"external data file":                func(h []byte) []byte { extension(h, extensionDataFile, 8); return h },
		"cut off":                           func(h []byte) []byte { return h[:100] },
		"header extensions do not end":      func(h []byte) []byte { return h[:108] },
		"its header extensions do not end":  func(h []byte) []byte { extension(h, 0x12345678, 1<<31); return h },
		"its header extensions do not end ": func(h []byte) []byte { be.PutUint32(h[100:], 1<<31); return h },
	} {
		size, err := checkQcow2(bytes.NewReader(change(header())))
		switch {
		case want == "" && (err != nil || size != 1<<20):
			t.Errorf("a sound one: %d, %v", size, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want))):
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestZstdAndExtendedL2AreNothingToRefuse(t *testing.T) {
	h := header()
	h[79] = incompatibleDirty | incompatibleCompression | incompatibleExtendedL2
	if _, err := checkQcow2(bytes.NewReader(h)); err != nil {
		t.Error(err)
	}
}

// FuzzCheckQcow2 looks for headers that crash, and for accepted ones that name a file.
func FuzzCheckQcow2(f *testing.F) {
	f.Add(header())
	f.Add([]byte(qcow2Magic))
	f.Fuzz(func(t *testing.T, header []byte) {
		size, err := checkQcow2(bytes.NewReader(header))
		if err != nil {
			return
		}
		if size == 0 || binary.BigEndian.Uint64(header[8:]) != 0 || binary.BigEndian.Uint32(header[32:]) != 0 {
			t.Errorf("accepted %x", header[:min(len(header), 112)])
		}
	})
}
