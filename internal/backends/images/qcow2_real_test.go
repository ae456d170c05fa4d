//go:build real

package images

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
)

func TestImagesThatNameOtherFilesNeverBecomeABase(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("secret"), bytes.Repeat([]byte("s"), 1<<20), 0o600))
	qemuImg(t, "create", "-q", "-f", "qcow2", "-b", at("secret"), "-F", "raw", at("backing"), "1M")
	qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "data_file="+at("data")+",data_file_raw=on", at("datafile"), "1M")
	qemuImg(t, "create", "-q", "-f", "qcow2", "--object", "secret,id=s,data=x", "-o", "encrypt.format=luks,encrypt.key-secret=s", at("luks"), "1M")
	qemuImg(t, "create", "-q", "-f", "vmdk", at("vmdk"), "1M")
	qemuImg(t, "create", "-q", "-f", "qcow2", at("fine"), "1M")
	fine, err := os.ReadFile(at("fine"))
	must(t, err)
	edit := func(name string, change func(b []byte) []byte) {
		must(t, os.WriteFile(at(name), change(bytes.Clone(fine)), 0o600))
	}
	edit("unknown feature", func(b []byte) []byte { b[72] |= 0x80; return b })
	edit("corrupt", func(b []byte) []byte { b[79] |= 2; return b })
	edit("version 9", func(b []byte) []byte { b[7] = 9; return b })
	edit("short", func(b []byte) []byte { return b[:60] })
	data := qcow2(t, "its only cluster of data is its last")
	must(t, os.WriteFile(at("cut off"), data[:len(data)-1<<16], 0o600))
	edit("cut extension", func(b []byte) []byte { return b[:108] })
	edit("hidden data file", func(b []byte) []byte {
		at := binary.BigEndian.Uint32(b[100:])
		binary.BigEndian.PutUint32(b[at:], extensionDataFile)
		binary.BigEndian.PutUint32(b[at+4:], 8)
		return b
	})

	for _, name := range []string{"backing", "datafile", "luks", "vmdk", "unknown feature", "corrupt", "version 9", "short", "cut off", "cut extension", "hidden data file", "secret"} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			_, err := newCache(t, Options{}).Fetch(t.Context(), cache, Source{Key: "k", File: at(name)}, nil)
			wantClass(t, err, backends.ErrPermanent)
			if n := left(t, cache); len(n) > 0 {
				t.Errorf("left: %v", n)
			}
		})
	}
	fetch(t, newCache(t, Options{}), t.TempDir(), Source{Key: "k", File: at("fine")})
	fetch(t, newCache(t, Options{}), t.TempDir(), Source{Key: "k", File: at("secret"), Format: "raw"})
}

func TestAQcow2ImageConfiguredAsRawIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(file, qcow2(t, "a"), 0o600))
	_, err := newCache(t, Options{}).Fetch(t.Context(), t.TempDir(), Source{Key: "k", File: file, Format: "raw"}, nil)
	wantClass(t, err, backends.ErrPermanent)
	if !strings.Contains(err.Error(), "configured as raw") {
		t.Errorf("the error does not say why: %v", err)
	}
}
