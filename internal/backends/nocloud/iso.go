package nocloud

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"
)

// An image as ECMA-119 (ISO 9660) describes it, with one flat directory: 16 empty sectors,
// the primary volume descriptor, the terminator, a path table in either byte order, the
// root directory, then the files. Section numbers below are of ECMA-119.
//
// Names stand in it as they are, in lower case, as mkisofs -relaxed-filenames writes them.
// Linux shows such a name without its version (";1") and does not need Rock Ridge or Joliet.

const (
	sector      = 2048
	tableLittle = 18
	tableBig    = 19
	rootSector  = 20
	firstFile   = 21
)

// file is one file of the image.
type file struct {
	name string
	data []byte
}

// image lays files out under a volume label of at most 32 characters. There is room for as
// many files as fit one directory sector, which is dozens.
func image(label string, files []file) ([]byte, error) {
	files = append([]file(nil), files...)
	sort.Slice(files, func(i, j int) bool { return files[i].name < files[j].name }) // 9.3

	next := firstFile
	root := record("\x00", rootSector, sector, true)
	dir := append(append([]byte(nil), root...), record("\x01", rootSector, sector, true)...)
	for _, f := range files {
		if len(f.data) > math.MaxInt32 {
			return nil, fmt.Errorf("nocloud: %s is too large for a seed", f.name)
		}
		dir = append(dir, record(f.name+";1", next, len(f.data), false)...)
		next += sectors(len(f.data))
	}
	if len(dir) > sector {
		return nil, errors.New("nocloud: too many files for a seed")
	}

	out := make([]byte, next*sector)
	primaryDescriptor(out[16*sector:], label, next, root)
	copy(out[17*sector:], "\xffCD001\x01") // volume descriptor set terminator, 8.3
	copy(out[tableLittle*sector:], pathTable(binary.LittleEndian))
	copy(out[tableBig*sector:], pathTable(binary.BigEndian))
	copy(out[rootSector*sector:], dir)
	at := firstFile
	for _, f := range files {
		copy(out[at*sector:], f.data)
		at += sectors(len(f.data))
	}
	return out, nil
}

func sectors(n int) int { return (n + sector - 1) / sector }

// primaryDescriptor writes the primary volume descriptor (8.4) into an empty sector.
func primaryDescriptor(d []byte, label string, total int, root []byte) {
	copy(d, "\x01CD001\x01")
	spaces(d[8:40])
	spaces(d[40:72])
	copy(d[40:72], label)
	both32(d[80:], total)
	both16(d[120:], 1) // volumes in the set
	both16(d[124:], 1) // number of this one
	both16(d[128:], sector)
	both32(d[132:], len(pathTable(binary.LittleEndian)))
	binary.LittleEndian.PutUint32(d[140:], tableLittle)
	binary.BigEndian.PutUint32(d[148:], tableBig)
	copy(d[156:190], root)
	spaces(d[190:813]) // publisher, preparer, application and file identifiers: none
	for i := 813; i < 881; i += 17 {
		copy(d[i:], "0000000000000000") // date not specified, 8.4.26.1
	}
	d[881] = 1 // version of the file structure
}

// record is a directory record (9.1). Its date is left empty, so that equal input gives
// equal bytes.
func record(id string, at, size int, directory bool) []byte {
	n := 33 + len(id)
	n += n % 2
	r := make([]byte, n)
	r[0] = byte(n)
	both32(r[2:], at)
	both32(r[10:], size)
	if directory {
		r[25] = 2
	}
	both16(r[28:], 1)
	r[32] = byte(len(id))
	copy(r[33:], id)
	return r
}

// pathTable has one entry (9.4): the root, which is its own parent.
func pathTable(order binary.ByteOrder) []byte {
	t := make([]byte, 10)
	t[0] = 1
	order.PutUint32(t[2:], rootSector)
	order.PutUint16(t[6:], 1)
	return t
}

func spaces(b []byte) {
	for i := range b {
		b[i] = ' '
	}
}

// both32 is a number in either byte order, one after the other (7.3.3).
func both32(b []byte, n int) {
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
}

// both16 is 7.2.3.
func both16(b []byte, n int) {
	binary.LittleEndian.PutUint16(b, uint16(n))
	binary.BigEndian.PutUint16(b[2:], uint16(n))
}
