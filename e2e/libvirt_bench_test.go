//go:build real

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
	"proxyfleet/internal/bus"
)

// BenchmarkRestart destroys the domain of a proxy behind the agent's back, and measures from
// the end of its QEMU process to the agent's call that starts it again. Each proxy is
// destroyed once: one that ends again and again waits for its turn.
func BenchmarkRestart(b *testing.B) {
	d := libvirttest.Start(b)
	f := newFleet(b, "always")
	steps := filepath.Join(f.dir, "steps")
	f.startAgent("kvm-1", libvirtAgent(d), "PROXYFLEET_STEPS="+steps)
	started := func() int {
		text, _ := os.ReadFile(steps)
		return strings.Count(string(text), "domain.start\n")
	}
	var took []time.Duration
	for n := range b.N {
		proxy := fmt.Sprintf("crawl-%d", n)
		f.publish(proxy, strings.ReplaceAll(goodIntent, "crawl-1", proxy))
		name := backends.InstanceName(f.made(proxy).UID)
		pidfd, before := openQEMU(b, name), started()
		d.Virsh(b, "destroy", name)
		began := awaitExit(b, pidfd)
		for started() == before {
			if time.Since(began) > 30*time.Second {
				b.Fatal("it was not started again within 30 s")
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(began))
		f.publish(proxy, `{"name":"`+proxy+`","desired":"absent"}`)
		f.awaitNoTrace(proxy, time.Minute)
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)-1]), "max-ms")
}

// BenchmarkCreate makes the same guest in two ways, in turn: by the commands that an operator
// would type (qemu-img, cp, virsh), and by an intent through coordinator and agent. The base
// image is there already. Each ends when the guest's QEMU process runs.
func BenchmarkCreate(b *testing.B) {
	d := libvirttest.Start(b)
	f := newFleet(b, "")
	f.startAgent("kvm-1", libvirtAgent(d))
	f.publish("first", strings.ReplaceAll(goodIntent, "crawl-1", "first"))
	first := backends.InstanceName(f.made("first").UID)
	n := 0
	for _, way := range []struct {
		name string
		make func(n int) (remove func())
	}{
		{"virsh", func(n int) func() { return byHand(b, d, first, n) }},
		{"agent", func(n int) func() {
			proxy := fmt.Sprintf("crawl-%d", n)
			if _, err := f.js.Publish(b.Context(), f.names.IntentProxy(proxy), []byte(strings.ReplaceAll(goodIntent, "crawl-1", proxy))); err != nil {
				b.Fatal(err)
			}
			uid := ""
			for deadline := time.Now().Add(time.Minute); uid == "" || qemu(backends.InstanceName(uid)) == 0; time.Sleep(2 * time.Millisecond) {
				if r, ok, err := f.record(proxy); err == nil && ok {
					uid = r.UID
				}
				if time.Now().After(deadline) {
					b.Fatal("no guest within a minute")
				}
			}
			return func() {
				f.publish(proxy, `{"name":"`+proxy+`","desired":"absent"}`)
				f.awaitNoTrace(proxy, time.Minute)
			}
		}},
	} {
		b.Run("way="+way.name, func(b *testing.B) {
			var took []time.Duration
			for range b.N {
				n++
				began := time.Now()
				remove := way.make(n)
				took = append(took, time.Since(began))
				remove()
			}
			slices.Sort(took)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
		})
	}
}

// byHand makes a guest like the one that is there, without the agent.
func byHand(b *testing.B, d libvirttest.Daemon, like string, n int) (remove func()) {
	name := fmt.Sprintf("by-hand-%d", n)
	xml := strings.ReplaceAll(d.Virsh(b, "dumpxml", "--inactive", like), like, name)
	lines := slices.DeleteFunc(strings.Split(xml, "\n"), func(line string) bool {
		return strings.Contains(line, "<uuid>") || strings.Contains(line, "<mac ")
	})
	var made []string
	files, err := filepath.Glob(filepath.Join(d.PoolDir(), like+"*"))
	if err != nil || len(files) == 0 {
		b.Fatalf("the files of %s: %v, %v", like, files, err)
	}
	for _, file := range files {
		to := filepath.Join(d.PoolDir(), strings.ReplaceAll(filepath.Base(file), like, name))
		made = append(made, to)
		if strings.HasSuffix(file, ".qcow2") {
			base, err := filepath.Glob(filepath.Join(d.PoolDir(), "pf-base-*.qcow2"))
			if err != nil || len(base) != 1 {
				b.Fatalf("base images: %v, %v", base, err)
			}
			libvirttest.QemuImg(b, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base[0], to, "1G")
		} else if _, err := run(b, "cp", file, to); err != nil {
			b.Fatal(err)
		}
	}
	path := filepath.Join(d.Dir, name+".xml")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		b.Fatal(err)
	}
	d.Virsh(b, "define", path)
	d.Virsh(b, "start", name)
	return func() {
		d.Virsh(b, "destroy", name)
		d.Virsh(b, "undefine", name, "--nvram")
		for _, file := range append(made, path) {
			if err := os.Remove(file); err != nil {
				b.Error(err)
			}
		}
	}
}

// BenchmarkMemory reports the resident memory of an agent with 50 proxies, once their guests
// are made and nothing changes any more. They are stopped ones: 50 emulated guests would need
// more processors than there are, and the agent holds as much of either.
func BenchmarkMemory(b *testing.B) {
	const proxies = 50
	d := libvirttest.Start(b)
	f := newFleet(b, "")
	agent := f.startAgent("kvm-1", strings.Replace(libvirtAgent(d), "vcpus: 100", "vcpus: 100, disk: 100", 1))
	for n := range proxies {
		name := fmt.Sprintf("crawl-%d", n)
		doc := strings.NewReplacer("crawl-1", name, "running", "stopped").Replace(goodIntent)
		if _, err := f.js.Publish(b.Context(), f.names.IntentProxy(name), []byte(doc)); err != nil {
			b.Fatal(err)
		}
	}
	for n := range proxies {
		f.awaitPhase(fmt.Sprintf("crawl-%d", n), bus.PhaseStopped, 2*time.Minute)
	}
	time.Sleep(10 * time.Second) // two listings
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", agent.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	for line := range strings.Lines(string(status)) {
		// RssFile is the program itself, which agents on one machine share.
		for field, unit := range map[string]string{"VmRSS:": "MiB", "RssAnon:": "anonymous-MiB"} {
			rest, ok := strings.CutPrefix(line, field)
			if !ok {
				continue
			}
			var kib float64
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(kib/1024, unit)
		}
	}
}

// qemu is the process of a guest; 0 while there is none.
func qemu(name string) int {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), "qemu") && strings.Contains(string(line), "guest="+name+",") {
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err == nil {
				return pid
			}
		}
	}
	return 0
}

func openQEMU(b *testing.B, name string) int {
	pid := qemu(name)
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		b.Fatalf("QEMU of %s, process %d: %v", name, pid, err)
	}
	return fd
}

// awaitExit returns when the process of a pidfd has ended.
func awaitExit(b *testing.B, pidfd int) time.Time {
	defer func() { _ = unix.Close(pidfd) }()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 30_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			b.Fatalf("QEMU did not end: %v", err)
		}
		return time.Now()
	}
}
