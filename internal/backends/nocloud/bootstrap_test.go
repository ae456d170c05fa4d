package nocloud

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheBootstrapPutsItsFilesAsTheyAreHoweverOftenItRuns runs the real script in a
// directory of its own, with stand-ins for the programs that would change the machine.
func TestTheBootstrapPutsItsFilesAsTheyAreHoweverOftenItRuns(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	for _, name := range []string{"systemctl", "chown", "apt-get", "squid", "getent"} {
		body := "#!/bin/sh\necho " + name + " \"$@\" >>" + log + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	conf, passwords := "http_port 3128\n\x00\xff'\"$(false)`\\\n", "u:$6$x\n"
	script := string(Bootstrap{Files: []File{
		{Path: "/etc/squid/squid.conf", Data: []byte(conf), Squid: true},
		{Path: "/etc/squid/passwd", Data: []byte(passwords), Squid: true},
		{Path: "/etc/squid/open", Data: []byte("o")}}}.Script())
	script = strings.ReplaceAll(script, "PATH=/usr", "PATH="+dir+":/usr")
	script = strings.ReplaceAll(script, "/etc/squid", filepath.Join(dir, "etc"))
	for range 2 {
		if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for file, want := range map[string]string{"etc/squid.conf": conf, "etc/passwd": passwords, "etc/open": "o"} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || string(got) != want {
			t.Errorf("%s is %q (%v), want %q", file, got, err, want)
		}
		info, err := os.Stat(filepath.Join(dir, file))
		if mode, ok := map[string]os.FileMode{"etc/open": 0o644}[file]; err == nil && ok && info.Mode().Perm() == mode {
			continue
		}
		if err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v, want mode 0640", file, info.Mode(), err)
		}
	}
	calls, _ := os.ReadFile(log)
	if !strings.Contains(string(calls), "systemctl restart squid") {
		t.Errorf("squid was not restarted:\n%s", calls)
	}
	if strings.Contains(string(calls), "apt-get") {
		t.Errorf("something that is there was installed again:\n%s", calls)
	}
}
