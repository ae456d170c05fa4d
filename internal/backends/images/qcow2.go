package images

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The header of a qcow2 image, as far as it can name other files or needs a key.
// Source: docs/interop/qcow2.txt of QEMU.
const (
	qcow2Magic = "QFI\xfb"

	incompatibleDirty       = 1 << 0 // refcounts may be off; QEMU mends them when it writes
	incompatibleCorrupt     = 1 << 1
	incompatibleDataFile    = 1 << 2
	incompatibleCompression = 1 << 3 // zstd
	incompatibleExtendedL2  = 1 << 4

	extensionEnd      = 0x00000000
	extensionDataFile = 0x44415441 // name of the external data file
	extensionCrypto   = 0x0537be77

	maxHeader = 1 << 16 // a header with its extensions fits one cluster, which is larger
)

// checkQcow2 reads an image's header and returns its virtual size in bytes. It refuses an
// image that names another file (a backing file, an external data file), is encrypted,
// marked corrupt, or uses a feature that is not known here: what cannot be judged does not
// become a base. It opens nothing, unlike qemu-img info, which follows an external data
// file (CVE-2024-4467), and therefore comes first.
func checkQcow2(r io.Reader) (virtualSize uint64, err error) {
	h := make([]byte, maxHeader)
	n, err := io.ReadFull(r, h)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, fmt.Errorf("its header cannot be read: %w", err)
	}
	h = h[:n]
	if n < 72 || string(h[:4]) != qcow2Magic {
		return 0, errors.New("it is not a qcow2 image")
	}
	be := binary.BigEndian
	version := be.Uint32(h[4:])
	if version != 2 && version != 3 {
		return 0, fmt.Errorf("its qcow2 version %d is not known", version)
	}
	if be.Uint64(h[8:]) != 0 || be.Uint32(h[16:]) != 0 {
		return 0, errors.New("it names a backing file; flatten it with qemu-img convert")
	}
	if be.Uint32(h[32:]) != 0 {
		return 0, errors.New("it is encrypted")
	}
	virtualSize = be.Uint64(h[24:])
	if virtualSize == 0 {
		return 0, errors.New("its virtual size is 0")
	}
	length := uint32(72)
	if version == 3 {
		if n < 104 {
			return 0, errors.New("its header is cut off")
		}
		features := be.Uint64(h[72:])
		switch {
		case features&incompatibleDataFile != 0:
			return 0, errors.New("it keeps its data in another file; flatten it with qemu-img convert")
		case features&incompatibleCorrupt != 0:
			return 0, errors.New("it is marked as corrupt")
		case features&^(incompatibleDirty|incompatibleCompression|incompatibleExtendedL2) != 0:
			return 0, fmt.Errorf("it needs features that are not known (%#x)", features)
		}
		length = be.Uint32(h[100:])
	}
	return virtualSize, checkExtensions(h, length)
}

// checkExtensions walks the header extensions that follow the header of the given length.
func checkExtensions(h []byte, at uint32) error {
	for {
		if uint64(at)+8 > uint64(len(h)) {
			return errors.New("its header extensions do not end")
		}
		kind, size := binary.BigEndian.Uint32(h[at:]), binary.BigEndian.Uint32(h[at+4:])
		switch kind {
		case extensionEnd:
			return nil
		case extensionDataFile:
			return errors.New("it names an external data file; flatten it with qemu-img convert")
		case extensionCrypto:
			return errors.New("it is encrypted")
		}
		if size > maxHeader {
			return errors.New("its header extensions do not end")
		}
		at += 8 + (size+7)&^7
	}
}
