package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/local"
)

// childCommand makes the test binary run a proxy, as the agent's hidden command does.
const childCommand = "local-proxy"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		if err := local.RunChild(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "hold" {
		fmt.Fprintln(os.Stderr, hold(os.Args[2]))
		os.Exit(1)
	}
	backendtest.Main(m, harness)
}

func TestConformance(t *testing.T) { backendtest.Run(t, harness) }

func open(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return local.New(local.Config{State: host, AllowLoopback: true}, local.Options{Owner: owner, Log: log, Exec: []string{self, childCommand}})
}

func request(ref backends.Ref) backends.Request {
	return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, DiskGiB: 10,
		Access: backends.Access{Username: "u", Password: "p", AllowFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
}

// takenPort is a port of 127.0.0.1 that this process listens on.
var takenPort = sync.OnceValue(func() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return l.Addr().(*net.TCPAddr).Port
})

var harness = backendtest.Harness{
	NewHost:  newHost,
	Open:     open,
	Request:  request,
	Traces:   traces,
	Plants:   map[string]backendtest.Plant{"instance": plant(".json"), "config": plant(".conf"), "lock": plant(".lock"), "log": plantLog},
	Oversize: func(req *backends.Request) { req.Port = takenPort() },
	Unread: func(t testing.TB, host string, ref backends.Ref) func() {
		path := file(host, ref, ".json")
		whole, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, whole[:len(whole)/2], 0o600))
		return func() { must(t, os.WriteFile(path, whole, 0o600)) }
	},
	Crash: func(t testing.TB, host string, ref backends.Ref) {
		for _, pid := range processes(t, ref.UID) {
			kill(t, pid)
		}
	},
	Vanish: func(t testing.TB, host string, ref backends.Ref) {
		must(t, os.Remove(file(host, ref, ".json")))
	},
	Loopback: true,
	Differs: map[backendtest.Difference]string{
		backendtest.DiffersStall: "files and signals of this machine are all it waits for; a child that hangs is tested apart",
	},
}

// newHost is a state directory; a process that is left when the case ends is killed.
func newHost(t testing.TB) string {
	dir := t.TempDir()
	t.Cleanup(func() {
		for _, pid := range processes(t, dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for range 100 {
			if len(processes(t, dir)) == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return dir
}

// processes are the children whose command line has text.
func processes(t testing.TB, text string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	must(t, err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if words := strings.Split(string(line), "\x00"); err == nil && len(words) > 2 && words[1] == childCommand && strings.Contains(string(line), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill returns when every thread has ended, and with it every lock.
func kill(t testing.TB, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	eventually(t, "the process ends", func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	})
}

func traces(t testing.TB, host string, ref backends.Ref) []string {
	names, err := filepath.Glob(filepath.Join(host, "*"+backends.InstanceName(ref.UID)+"*"))
	must(t, err)
	for _, pid := range processes(t, ref.UID) {
		names = append(names, fmt.Sprintf("process %d", pid))
	}
	return names
}

func file(host string, ref backends.Ref, ext string) string {
	return filepath.Join(host, backends.InstanceName(ref.UID)+ext)
}

func plant(ext string) backendtest.Plant {
	return func(t testing.TB, host string, ref backends.Ref, m backends.Mark) func() string {
		data, err := json.Marshal(map[string]any{"mark": m, "generation": 1})
		must(t, err)
		must(t, os.WriteFile(file(host, ref, ext), data, 0o600))
		return look(file(host, ref, ext))
	}
}

func plantLog(t testing.TB, host string, ref backends.Ref, _ backends.Mark) func() string {
	must(t, os.WriteFile(file(host, ref, ".log"), []byte("somebody's"), 0o600))
	return look(file(host, ref, ".log"))
}

func look(path string) func() string {
	return func() string {
		b, err := os.ReadFile(path)
		return fmt.Sprint(string(b), err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}
