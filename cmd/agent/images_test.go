package main

import (
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

func TestImagesAreATable(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var out strings.Builder
	err := printImages(&out, []backends.BaseImage{
		{Digest: "sha256:0123456789abcdef0123", Format: "qcow2", Source: "https://example.org/debian.qcow2", Path: "/pool/pf-base-0123456789abcdef01234567.qcow2",
			Bytes: 300 << 20, VirtualBytes: 3 << 30, Asked: now.Add(-90 * time.Minute), InUse: true},
		{Digest: "sha256:1123456789abcdef0123", Format: "raw", Source: "/srv/i.raw", Path: "/pool/x.raw", Bytes: 1 << 20, VirtualBytes: 1 << 20, Asked: now},
		{Source: "https://example.org/debian.qcow2", Path: "/pool/.proxyfleet/part-01", Bytes: 2 << 20, Asked: now, InUse: true, Unfinished: true},
		{Path: "/pool/pf-base-0123-01.qcow2", Bytes: 3 << 20, Unfinished: true},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	want := `DIGEST                FORMAT  MIB  DISK MIB  ASKED FOR    IN USE  SOURCE                            PATH
sha256:0123456789ab…  qcow2   300  3072      1h30m0s ago  yes     https://example.org/debian.qcow2  /pool/pf-base-0123456789abcdef01234567.qcow2
sha256:1123456789ab…  raw     1    1         0s ago       no      /srv/i.raw                        /pool/x.raw
unfinished            -       2    -         0s ago       yes     https://example.org/debian.qcow2  /pool/.proxyfleet/part-01
unfinished            -       3    -         -            no      -                                 /pool/pf-base-0123-01.qcow2
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestProgressIsPrintedInTenths(t *testing.T) {
	var out strings.Builder
	report := progress(&out)
	for _, p := range []int{0, 1, 9, 10, 11, 25, 100} {
		report(backends.Progress{Step: "downloading image", Percent: p})
	}
	report(backends.Progress{Step: "checking image"})
	want := "downloading image 0 %\ndownloading image 10 %\ndownloading image 20 %\ndownloading image 100 %\nchecking image 0 %\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
