//go:build real

package libvirt

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kdomanski/iso9660"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/secret"
)

// TestTheScriptInASeedLeavesASquidThatStarts takes a seed apart as cloud-init does, runs its
// script on this machine with the folders that it writes to hidden, and has the real
// Squid read what it left. A whole guest is booted by the test of e2e with the tag guest.
func TestTheScriptInASeedLeavesASquidThatStarts(t *testing.T) {
	r := resolved{Request: backends.Request{
		Ref: backends.Ref{Proxy: "crawl-1", UID: testUID}, UserData: []byte("#!/bin/sh\ntrue\n"),
		Access: backends.Access{Username: "crawler", Password: secret.String(`p"w'$\ #%&<`)},
	}}
	iso, err := seeder{vendorData: []byte("#cloud-config\n{}\n")}.build(r, 3128)
	must(t, err)
	parts := vendorParts(t, iso)
	if len(parts) != 2 || parts[0] != "#cloud-config\n{}\n" {
		t.Fatalf("vendor-data has %d parts, want the operator's first and ours last", len(parts))
	}
	if strings.Contains(parts[1], "$6$") || strings.Contains(string(iso), `p"w`) {
		t.Error("a password can be read in the seed")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "bootstrap"), []byte(parts[1]), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "check"), []byte(`set -eu
for hidden in /etc/squid /etc/systemd/system /usr/local/sbin; do mount -t tmpfs hidden $hidden; done
printf '#!/bin/sh\necho systemctl "$@"\n' >/usr/local/sbin/systemctl
chmod 0755 /usr/local/sbin/systemctl
sh `+dir+`/bootstrap
sh `+dir+`/bootstrap
# What systemd does before it starts Squid:
sed -n 's/^ExecStartPre=+//p' /etc/systemd/system/squid.service.d/proxyfleet.conf | sed 's/\\\\/\\/g' >/usr/local/sbin/before
sh /usr/local/sbin/before
squid -k parse 2>&1 | { ! grep -E 'FATAL|ERROR'; }
stat -c '%a %U:%G %n' /etc/squid/*
echo "crawler p\"w'\$\\\\%20%23%25%26%3c" | /usr/lib/squid/basic_ncsa_auth /etc/squid/passwd
`), 0o600))
	out, err := exec.Command("unshare", "--mount", "sh", filepath.Join(dir, "check")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"640 root:proxy /etc/squid/passwd", "640 root:proxy /etc/squid/squid.conf", "systemctl restart squid"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
	if !strings.HasSuffix(strings.TrimSpace(string(out)), "\nOK") {
		t.Errorf("Squid's helper does not know the password:\n%s", out)
	}
}

// vendorParts reads the parts of a seed's vendor-data.
func vendorParts(t testing.TB, iso []byte) (parts []string) {
	t.Helper()
	image, err := iso9660.OpenImage(bytes.NewReader(iso))
	must(t, err)
	root, err := image.RootDir()
	must(t, err)
	files, err := root.GetChildren()
	must(t, err)
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "vendor-data") {
			continue
		}
		msg, err := mail.ReadMessage(f.Reader())
		must(t, err)
		_, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
		must(t, err)
		for r := multipart.NewReader(msg.Body, params["boundary"]); ; {
			p, err := r.NextPart()
			if err == io.EOF {
				return parts
			}
			must(t, err)
			text, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, p))
			must(t, err)
			parts = append(parts, string(text))
		}
	}
	return nil
}
