//go:build real && guest

package libvirt

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/secret"
)

// TestAGuestBootsAndItsProxyServesWhoMayUseIt boots a real Debian under UEFI, which takes
// minutes where there is no KVM, and talks to the Squid in it.
func TestAGuestBootsAndItsProxyServesWhoMayUseIt(t *testing.T) {
	out, err := exec.Command("../../../e2e/guest/build.sh").Output()
	must(t, err)
	d := startDaemon(t)
	host := backends.HostConfig{
		Images:       map[string]backends.Image{"debian": {File: strings.TrimSpace(string(out))}},
		MachineTypes: map[string]backends.MachineType{"small": {VCPUs: 1, MemoryMiB: 512}},
		VendorData:   "#cloud-config\nwrite_files:\n  - {path: /etc/from-operator, content: x}\n",
	}
	host.Limits.Overcommit.VCPUs = 100
	owner := backends.Owner{Installation: "01jxguestaaaaaaaaaaaaaaaaa", HostID: "01jxguestbbbbbbbbbbbbbbbbb"}
	b, err := New(Config{URI: d.URI()}, host, Options{Owner: owner, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	events := b.Watch(ctx)
	password := `p"w'$\ #%&<:@/`
	req := backends.Request{
		Ref: backends.Ref{Proxy: "crawl-1", UID: testUID}, Generation: 1, Desired: backends.Running,
		Image: "debian", MachineType: "small", DiskGiB: 4,
		Access:   backends.Access{Username: "crawler", Password: secret.String(password), Private: true},
		UserData: []byte("#cloud-config\nbootcmd: [touch /etc/from-user]\n"),
	}
	began := time.Now()
	if _, err := b.Ensure(ctx, req, func(p backends.Progress) {
		if p.Percent%50 == 0 {
			t.Logf("%5.1fs %s %d", time.Since(began).Seconds(), p.Step, p.Percent)
		}
	}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			log, _ := os.ReadFile(d.place().console(backends.InstanceName(req.UID)))
			t.Logf("console:\n%s", log[max(0, len(log)-6000):])
		}
	}()
	var i backends.Instance
	for len(i.Addresses) == 0 {
		time.Sleep(2 * time.Second)
		if i, err = b.Get(ctx, req.Ref); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%5.1fs address %v", time.Since(began).Seconds(), i.Addresses)

	ns := d.Netns(t)
	var origin *httptest.Server
	ns.Do(t, func() {
		l, err := net.Listen("tcp", "192.168.122.1:0")
		must(t, err)
		origin = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello %s via=%q xff=%q", r.RemoteAddr, r.Header.Get("Via"), r.Header.Get("X-Forwarded-For"))
		}))
		origin.Listener = l
		origin.Start()
	})
	defer origin.Close()
	through := func(user *url.Userinfo) (int, string) {
		proxy := &url.URL{Scheme: "http", Host: netip.AddrPortFrom(i.Addresses[0], uint16(i.Port)).String(), User: user}
		c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
			Proxy: http.ProxyURL(proxy), DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
				ns.Do(t, func() { conn, err = (&net.Dialer{}).DialContext(ctx, network, address) })
				return conn, err
			},
		}}
		resp, err := c.Get(origin.URL)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	good := url.UserPassword("crawler", password)
	code, body := 0, ""
	for code != http.StatusOK && ctx.Err() == nil {
		time.Sleep(2 * time.Second)
		code, body = through(good)
	}
	t.Logf("%5.1fs through the proxy: %d %s", time.Since(began).Seconds(), code, body)
	if want := fmt.Sprintf("hello %s:", i.Addresses[0]); !strings.HasPrefix(body, want) || !strings.HasSuffix(body, `via="" xff=""`) {
		t.Errorf("got %q, want it from the guest's address and without traces of a proxy", body)
	}
	if code, _ := through(nil); code != http.StatusProxyAuthRequired {
		t.Errorf("without credentials: %d, want 407", code)
	}
	if code, _ := through(url.UserPassword("crawler", "wrong")); code != http.StatusProxyAuthRequired {
		t.Errorf("with a wrong password: %d, want 407", code)
	}

	// The guest agent tells the address as well, and that it is there.
	found := false
	for !found {
		select {
		case e := <-events:
			found = e.UID == req.UID && e.Reason == "AgentConnected"
		case <-ctx.Done():
			t.Fatal("no event told of the guest agent")
		}
	}
	t.Logf("%5.1fs guest agent", time.Since(began).Seconds())
	n := backends.InstanceName(req.UID)
	if out := d.Virsh(t, "domifaddr", n, "--source", "agent"); !strings.Contains(out, i.Addresses[0].String()) {
		t.Errorf("the guest agent knows other addresses than %v:\n%s", i.Addresses, out)
	}
	for _, file := range []string{"/etc/from-operator", "/etc/from-user"} {
		out := d.Virsh(t, "qemu-agent-command", n, `{"execute":"guest-file-open","arguments":{"path":"`+file+`"}}`)
		if !strings.Contains(out, "return") {
			t.Errorf("%s is not there: %s", file, out)
		}
	}

	// Asked to, the guest shuts down by itself, and comes back as it was.
	req.Desired, req.Generation = backends.Stopped, 2
	if i, err = b.Ensure(ctx, req, nil); err != nil || i.Status != backends.StatusStopped || i.Reason != "Shutdown" {
		t.Errorf("stopped: %+v (%v), want an orderly shutdown", i, err)
	}
	console, _ := os.ReadFile(d.place().console(n))
	if !bytes.Contains(console, []byte("Squid Web Proxy Server")) {
		t.Errorf("the console log does not tell of the boot; it has %d bytes", len(console))
	}
	must(t, b.Delete(ctx, req.Ref))
	if left := d.Traces(t, req.UID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
