//go:build real

package local_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/local"
	"proxyfleet/internal/backends/squid"
)

// BenchmarkThroughput carries the same requests through a child of this backend and through
// Squid with the rules that a guest gets, one after the other: small answers on connections
// that are kept (req/s follows from ns/op), and large ones through a tunnel (MB/s).
func BenchmarkThroughput(b *testing.B) {
	small := bytes.Repeat([]byte("x"), 1<<10)
	large := bytes.Repeat([]byte("x"), 16<<20)
	serve := func(body []byte) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	}
	plain, secure := httptest.NewServer(serve(small)), httptest.NewTLSServer(serve(large))
	b.Cleanup(plain.Close)
	b.Cleanup(secure.Close)
	access := backends.Access{Username: "u", Password: "p", AllowFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		ConnectPorts: []int{secure.Listener.Addr().(*net.TCPAddr).Port}}
	ways := []struct {
		name string
		addr string
	}{{"squid", startSquid(b, access)}, {"local", startLocal(b, access)}}
	for _, load := range []struct {
		name, url string
		size      int
	}{{"request=1KiB", plain.URL, len(small)}, {"tunnel=16MiB", secure.URL, len(large)}} {
		for _, way := range ways {
			b.Run(load.name+"/proxy="+way.name, func(b *testing.B) { carry(b, way.addr, load.url, load.size) })
		}
	}
}

func carry(b *testing.B, addr, target string, size int) {
	proxy := &url.URL{Scheme: "http", Host: addr, User: url.UserPassword("u", "p")}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 64,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	b.SetBytes(int64(size))
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Get(target)
			if err != nil {
				b.Error(err)
				return
			}
			n, err := io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil || n != int64(size) || resp.StatusCode != http.StatusOK {
				b.Errorf("got %d and %d bytes (%v)", resp.StatusCode, n, err)
				return
			}
		}
	})
}

func startLocal(b *testing.B, access backends.Access) string {
	self, err := os.Executable()
	must(b, err)
	l, err := local.New(local.Config{State: newHost(b), AllowLoopback: true}, local.Options{Owner: owner, Exec: []string{self, childCommand}})
	must(b, err)
	b.Cleanup(func() { must(b, l.Close()) })
	req := request(ref(90))
	req.Access = access
	i, err := l.Ensure(b.Context(), req, func(backends.Progress) {})
	must(b, err)
	return fmt.Sprintf("127.0.0.1:%d", i.Port)
}

func startSquid(b *testing.B, access backends.Access) string {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	addr := free.Addr().(*net.TCPAddr)
	must(b, free.Close())
	dir := b.TempDir()
	must(b, os.Chmod(filepath.Dir(dir), 0o777)) // Squid gives up root
	must(b, os.Chmod(dir, 0o777))
	p := squid.Params{UID: ref(91).UID, Port: addr.Port, Access: access, Loopback: true, MaxFileDescriptors: 4096,
		Passwords: filepath.Join(dir, "passwd"), CacheLog: filepath.Join(dir, "cache.log"), PIDFile: filepath.Join(dir, "squid.pid")}
	files, err := squid.Render(p)
	must(b, err)
	conf := filepath.Join(dir, "squid.conf")
	must(b, os.WriteFile(conf, files.Conf, 0o644))
	must(b, os.WriteFile(p.Passwords, files.Passwords, 0o644))
	cmd := exec.Command("squid", "-N", "-f", conf, "-n", fmt.Sprintf("b%d", addr.Port))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	eventually(b, "Squid listens", func() bool {
		c, err := net.DialTimeout("tcp", addr.String(), time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr.String()
}
