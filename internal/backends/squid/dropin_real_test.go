//go:build real

package squid

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The command is run as systemd would: the text in single quotes, its escapes undone.
func TestTheDropInWritesTheMachinesAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own")
	_, rest, _ := strings.Cut(string(DropIn(path)), "/bin/sh -c '")
	command, _, ok := strings.Cut(rest, "'\n")
	if !ok {
		t.Fatalf("no command in %s", DropIn(path))
	}
	if out, err := exec.Command("/bin/sh", "-c", strings.ReplaceAll(command, `\\`, `\`)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := machineAddress(t, func(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() }, "global")
	found := false
	for line := range strings.Lines(string(b)) {
		a, err := netip.ParseAddr(strings.TrimSpace(line))
		if err != nil {
			t.Errorf("line %q is no address", line)
		}
		found = found || a == want
	}
	if !found {
		t.Errorf("%s is missing:\n%s", want, b)
	}
	p := goldens["credentials"]
	p.OwnAddresses = path
	writeFiles(t, t.TempDir(), p)
}
