package libvirttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// Traces are the domain and the files of the pool that bear the name of the instance with
// this uid; nil when nothing is left of it.
func (d Daemon) Traces(t testing.TB, uid string) []string {
	t.Helper()
	n := backends.InstanceName(uid)
	var found []string
	for _, pattern := range []string{"/*", "/.*", "/" + images.StateDir + "/*", "/" + images.StateDir + "/.*"} {
		names, err := filepath.Glob(d.PoolDir() + pattern)
		must(t, err)
		for _, f := range names {
			if strings.Contains(filepath.Base(f), n) {
				found = append(found, f)
			}
		}
	}
	for dom := range strings.FieldsSeq(d.Virsh(t, "list", "--all", "--name")) {
		if dom == n {
			found = append(found, "domain "+dom)
		}
	}
	return found
}

// pid is libvirtd's, seen from outside.
func (d Daemon) pid(t testing.TB) int {
	t.Helper()
	return pidOf(t, "libvirtd --config "+d.Dir)
}

// GuestPID is the process of a running domain, seen from outside.
func GuestPID(t testing.TB, domain string) int {
	t.Helper()
	return pidOf(t, "guest="+domain)
}

func pidOf(t testing.TB, text string) int {
	t.Helper()
	pid, err := findPID(text)
	must(t, err)
	return pid
}

// findPID finds the process whose command line has text. A process that it has forked, and
// that has yet to become another program, has it as well, and is left out.
func findPID(text string) (int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	parents := map[int]int{}
	for _, stat := range stats {
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		if !strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), text) {
			continue
		}
		about, _ := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(about), ") ") // pid (name) state parent …
		var n, parent int
		var state string
		if _, err := fmt.Sscanf(stat, "/proc/%d/", &n); err != nil {
			return 0, err
		}
		if _, err := fmt.Sscan(rest, &state, &parent); err == nil {
			parents[n] = parent
		}
	}
	for n, parent := range parents {
		if _, forked := parents[parent]; !forked {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no process has %q in its command line", text)
}
