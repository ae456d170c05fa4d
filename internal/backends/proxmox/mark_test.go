//go:build pve || proxmox_real

package proxmox

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
	"proxyfleet/internal/backends/told"
)

var someMark = mark{
	Mark: backends.Mark{Installation: "01k0000000000000000000000a", HostID: "01k0000000000000000000000b", Proxy: "crawl-eu-1",
		UID: "01k0000000000000000000000c", CreatedAt: time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)},
	Generation: 3, Port: 3128, Spec: told.Parts{"auth": "00ff"},
}

func TestAMarkIsWhatPeopleReadInTheNotes(t *testing.T) {
	const want = `A forward proxy that proxyfleet keeps. These lines say whose it is; do not change them.

    proxyfleet.installation: 01k0000000000000000000000a
    proxyfleet.host: 01k0000000000000000000000b
    proxyfleet.proxy: crawl-eu-1
    proxyfleet.uid: 01k0000000000000000000000c
    proxyfleet.created: 2026-11-30T06:00:00Z
    proxyfleet.generation: 3
    proxyfleet.port: 3128
    proxyfleet.spec: auth=00ff`
	if diff := cmp.Diff(want, describe(someMark, "")); diff != "" {
		t.Error(diff)
	}
}

func TestAMarkSurvivesWhatPeopleAndPVEDoToIt(t *testing.T) {
	text := describe(someMark, "")
	for name, c := range map[string]string{
		"as written":                  text,
		"with notes below":            text + "\n\nhello",
		"with notes above":            "hello\n" + text,
		"with carriage returns":       strings.ReplaceAll(text, "\n", "\r\n"),
		"with line feeds at the end":  text + "\n\n",
		"with its indent taken away":  strings.ReplaceAll(text, markLine, ""),
		"rewritten over notes":        describe(someMark, describe(someMark, "hello\n\n  world")),
		"rewritten from carriage ret": describe(someMark, strings.ReplaceAll(text, "\n", "\r\n")),
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseMark(c)
			if !ok {
				t.Fatalf("no mark in\n%s", c)
			}
			if diff := cmp.Diff(someMark, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := describe(someMark, describe(someMark, "hello\n\n  world")); !strings.HasSuffix(got, "\n\nhello\n\n  world") || strings.Count(got, markHead) != 1 {
		t.Errorf("the notes were not kept:\n%s", got)
	}
}

func TestADamagedMarkIsNone(t *testing.T) {
	text := describe(someMark, "")
	for name, c := range map[string]string{
		"no mark":               "hello",
		"nothing":               "",
		"PVE's own":             " qmclone temporary file",
		"two uids":              text + "\n    proxyfleet.uid: 01k0000000000000000000000d",
		"no installation":       strings.Replace(text, "proxyfleet.installation", "x", 1),
		"an upper-case uid":     strings.Replace(text, "01k0000000000000000000000c", "01K0000000000000000000000C", 1),
		"a proxy with a slash":  strings.Replace(text, "crawl-eu-1", "../x", 1),
		"a generation in words": strings.Replace(text, "generation: 3", "generation: three", 1),
		"a port out of range":   strings.Replace(text, "3128", "70000", 1),
	} {
		if got, ok := parseMark(c); ok {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestASeedsNameIsItsMark(t *testing.T) {
	o := backends.Owner{Installation: someMark.Installation, HostID: someMark.HostID}
	ref := backends.Ref{Proxy: someMark.Proxy, UID: someMark.UID}
	name := seedName(o, ref)
	got, ok := parseSeed(pve.Volume{ID: "proxy-seeds:iso/" + name, Created: someMark.CreatedAt})
	if !ok || got != someMark.Mark {
		t.Errorf("got %+v, want %+v", got, someMark.Mark)
	}
	longest := seedName(backends.Owner{Installation: strings.Repeat("a", 40), HostID: strings.Repeat("b", 40)},
		backends.Ref{Proxy: strings.Repeat("c", backends.MaxProxyName), UID: someMark.UID})
	// What PVE replaces: anything but letters, digits, ".", "-" and "_".
	if len(longest) > 255 || strings.Trim(strings.ToLower(longest), "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		t.Errorf("%q (%d characters) does not survive an upload", longest, len(longest))
	}
	for _, bad := range []string{"", "local:iso/debian.iso", "local:iso/" + strings.TrimSuffix(name, ".iso"), "local:iso/x" + name,
		"local:iso/" + strings.Replace(name, "0c.iso", "0d.iso", 1), "local:backup/" + name, "local:iso/a_b_c_d_e.iso"} {
		if m, ok := parseSeed(pve.Volume{ID: bad}); ok {
			t.Errorf("%q is taken for a seed: %+v", bad, m)
		}
	}
}

func TestVMIDsFollowFromTheUID(t *testing.T) {
	r := VMIDRange{Min: 5000, Max: 5999}
	seen := map[int]bool{}
	for _, id := range vmids(someMark.UID, r) {
		if id < r.Min || id > r.Max {
			t.Errorf("%d is not within %v", id, r)
		}
		seen[id] = true
	}
	if len(seen) < probes*3/4 {
		t.Errorf("%d probes are only %d numbers", probes, len(seen))
	}
	if vmid(someMark.UID, 0, VMIDRange{Min: 100000, Max: 199999}) != 165831 {
		t.Errorf("the first VMID of a uid is now %d: VMs that exist would not be found", vmid(someMark.UID, 0, VMIDRange{Min: 100000, Max: 199999}))
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add(describe(someMark, "hello"))
	f.Add("    proxyfleet.uid:")
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := parseMark(text)
		if !ok {
			return
		}
		again, ok := parseMark(describe(m, text))
		if !ok {
			t.Fatalf("a mark that was read is not read again:\n%s", describe(m, text))
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Error(diff)
		}
		if twice := describe(again, describe(m, text)); twice != describe(m, text) {
			t.Errorf("writing it twice differs:\n%q\n%q", describe(m, text), twice)
		}
	})
}

func FuzzParseSeed(f *testing.F) {
	o := backends.Owner{Installation: someMark.Installation, HostID: someMark.HostID}
	f.Add("local:iso/" + seedName(o, backends.Ref{Proxy: someMark.Proxy, UID: someMark.UID}))
	f.Fuzz(func(t *testing.T, id string) {
		if m, ok := parseSeed(pve.Volume{ID: id}); ok {
			name := seedName(backends.Owner{Installation: m.Installation, HostID: m.HostID}, backends.Ref{Proxy: m.Proxy, UID: m.UID})
			if !strings.HasSuffix(id, ":iso/"+name) {
				t.Errorf("%q was read as %+v, whose name is %q", id, m, name)
			}
		}
	})
}
