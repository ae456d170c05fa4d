package nocloud

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kdomanski/iso9660"
)

// readBack reads an image with a reader that is not ours.
func readBack(t *testing.T, image []byte) (label string, files map[string]string) {
	t.Helper()
	im, err := iso9660.OpenImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	label, err = im.Label()
	if err != nil {
		t.Fatal(err)
	}
	root, err := im.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for _, c := range children {
		data, err := io.ReadAll(c.Reader())
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(c.Name(), ";1")] = string(data)
	}
	return label, files
}

func TestASeedHoldsWhatCloudInitLooksFor(t *testing.T) {
	userData := map[string][]byte{
		"a cloud-config":                  []byte("#cloud-config\npackages: [curl]\n"),
		"a script without a last newline": []byte("#!/bin/sh\nexit 0"),
		"bytes that are not text":         {0x1f, 0x8b, 0, 0xff, '\r', '\n', 0},
		"exactly one sector":              bytes.Repeat([]byte("x"), 2048),
		"one byte over a sector":          bytes.Repeat([]byte("x"), 2049),
		"the largest that is accepted":    bytes.Repeat([]byte("0123456789abcdef"), 16<<10),
	}
	for name, user := range userData {
		t.Run(name, func(t *testing.T) {
			image, err := Build(Seed{InstanceID: "01jx", Hostname: "crawl-1", MAC: "52:54:00:AA:bb:cc", UserData: user, VendorData: []byte("vendor")})
			if err != nil {
				t.Fatal(err)
			}
			label, got := readBack(t, image)
			if label != "cidata" {
				t.Errorf("label %q, want cidata", label)
			}
			want := map[string]string{
				"meta-data":   `{"instance-id":"01jx","local-hostname":"crawl-1"}` + "\n",
				"user-data":   string(user),
				"vendor-data": "vendor",
				"network-config": "version: 2\nethernets:\n  proxy:\n    match:\n      macaddress: \"52:54:00:aa:bb:cc\"\n" +
					"    dhcp4: true\n    dhcp-identifier: mac\n",
			}
			for file, text := range want {
				if got[file] != text {
					t.Errorf("%s is %.200q, want %.200q", file, got[file], text)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d files, want %d", len(got), len(want))
			}
		})
	}
}

func TestAnEmptyUserDataIsAnEmptyCloudConfig(t *testing.T) {
	image, err := Build(Seed{InstanceID: "a", MAC: "52:54:00:00:00:01"})
	if err != nil {
		t.Fatal(err)
	}
	_, files := readBack(t, image)
	if files["user-data"] != EmptyUserData {
		t.Errorf("user-data is %q", files["user-data"])
	}
	if _, there := files["vendor-data"]; there {
		t.Error("an empty vendor-data was written")
	}
}

func TestTheSameSeedIsTheSameBytes(t *testing.T) {
	s := Seed{InstanceID: "a", MAC: "52:54:00:00:00:01", UserData: []byte("x")}
	a, _ := Build(s)
	b, _ := Build(s)
	if !bytes.Equal(a, b) {
		t.Error("two builds of one seed differ")
	}
}

func TestASeedNeedsNoTemporaryDirectory(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "gone"))
	if _, err := Build(Seed{InstanceID: "a", MAC: "52:54:00:00:00:01"}); err != nil {
		t.Error(err)
	}
}

func TestASeedWithoutAnInstanceIDIsRefused(t *testing.T) {
	if _, err := Build(Seed{MAC: "52:54:00:00:00:01"}); err == nil {
		t.Error("want an error: cloud-init would take every boot for the first")
	}
}

func TestVendorDataKeepsEveryPartByteForByteAndInOrder(t *testing.T) {
	script := []byte("#!/bin/sh\necho \"$1\" '\\' \x00\xff --proxyfleet:part:boundary--\n")
	doc, err := VendorData(
		Part{Name: "operator", Data: []byte("#cloud-config\ntimezone: UTC\n")},
		Part{Name: "nothing"},
		Part{Name: "proxyfleet.sh", ContentType: "text/x-shellscript", Data: script})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := mail.ReadMessage(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	r := multipart.NewReader(msg.Body, params["boundary"])
	for _, want := range []struct{ name, kind, data string }{
		{"operator", "text/plain", "#cloud-config\ntimezone: UTC\n"},
		{"proxyfleet.sh", "text/x-shellscript", string(script)},
	} {
		p, err := r.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, p))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want.data || p.FileName() != want.name || p.Header.Get("Content-Type") != want.kind {
			t.Errorf("got %s (%s) %q, want %+v", p.FileName(), p.Header.Get("Content-Type"), got, want)
		}
	}
	if _, err := r.NextPart(); err != io.EOF {
		t.Errorf("after the last part: %v", err)
	}
}

func TestVendorDataWithoutPartsIsNothing(t *testing.T) {
	if doc, err := VendorData(Part{Name: "a"}); err != nil || doc != nil {
		t.Errorf("got %q, %v", doc, err)
	}
}

func TestTheBootstrapIsAValidShellScriptThatShowsNoPassword(t *testing.T) {
	script := Bootstrap{InstallGuestAgent: true, Files: []File{
		{Path: "/etc/squid/squid.conf", Data: []byte("http_port 3128\n" + strings.Repeat("# '\"$`\\\n", 40))},
		{Path: "/etc/squid/passwd", Data: []byte("crawler:$6$salt'\"hash\n"), Squid: true},
	}}.Script()
	cmd := exec.Command("sh", "-n")
	cmd.Stdin = bytes.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sh -n: %v: %s", err, out)
	}
	if bytes.Contains(script, []byte("$6$")) {
		t.Error("a password's hash stands in the script as it is")
	}
	if !bytes.Contains(script, []byte("qemu-guest-agent")) {
		t.Error("the guest agent is missing")
	}
	if bytes.Contains(Bootstrap{}.Script(), []byte("qemu-guest-agent")) {
		t.Error("the guest agent is installed unasked")
	}
}

func TestAMIMEDocumentIsNestedAsItIs(t *testing.T) {
	const theirs = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"theirs\"\n\n" +
		"--theirs\nContent-Type: text/cloud-config\n\npackages: [jq]\n--theirs\nContent-Type: text/x-shellscript\n\n#!/bin/sh\ntrue\n--theirs--\n"
	doc, err := VendorData(Part{Name: "user-data", Data: []byte(theirs), Entity: true}, Part{Name: "ours", Data: []byte("#!/bin/sh\n")})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mail.ReadMessage(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	part, err := multipart.NewReader(m.Body, params["boundary"]).NextRawPart()
	if err != nil {
		t.Fatal(err)
	}
	if got := part.Header.Get("Content-Type"); got != `multipart/mixed; boundary="theirs"` {
		t.Errorf("got content type %q, want theirs", got)
	}
	_, body, _ := strings.Cut(theirs, "\n\n")
	if got, err := io.ReadAll(part); err != nil || string(got) != body {
		t.Errorf("got %q (%v), want %q", got, err, body)
	}
	if _, err := VendorData(Part{Data: []byte("Content-Type: x\nno header\n"), Entity: true}); err == nil {
		t.Error("a document whose headers cannot be read was taken")
	}
}

func TestIPv6IsTakenWhereItIsAskedFor(t *testing.T) {
	for ipv6, want := range map[bool]string{false: "", true: "    dhcp6: true\n    accept-ra: true\n"} {
		image, err := Build(Seed{InstanceID: "a", MAC: "52:54:00:00:00:01", IPv6: ipv6})
		if err != nil {
			t.Fatal(err)
		}
		_, files := readBack(t, image)
		if _, got, _ := strings.Cut(files["network-config"], "dhcp-identifier: mac\n"); got != want {
			t.Errorf("ipv6 %v: got %q, want %q", ipv6, got, want)
		}
	}
}
