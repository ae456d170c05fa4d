//go:build pve || proxmox_real

package pvefake

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
)

// recorder is a test that is allowed to fail.
type recorder struct {
	testing.TB
	failed []string
	undo   []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}
func (r *recorder) Cleanup(f func()) { r.undo = append(r.undo, f) }

func TestACallThatIsNotModelledFailsTheTest(t *testing.T) {
	rec := &recorder{TB: t}
	c := New(rec, Options{InProcess: true})
	defer c.Close()
	secret := c.AddToken("fleet@pve", "agent", Grant{"/", Privileges(V9)})
	cl := newClient(t, c, "pve1", "fleet@pve!agent", secret)
	cl.expect(501, "pvefake does not model GET /cluster/ha/status/current", "GET", "/cluster/ha/status/current", nil)
	if len(rec.failed) != 1 || !strings.Contains(rec.failed[0], "GET /cluster/ha/status/current is in the API but not modelled") {
		t.Errorf("got %q", rec.failed)
	}
	rec.failed = nil
	c.SetGrants("fleet@pve", Grant{"/", []string{"VM.Monitor"}})
	c.SetLock(777, "clone")
	if len(rec.failed) != 2 {
		t.Errorf("a privilege and a VM that do not exist: got %q", rec.failed)
	}
}

func TestTextsTravelInTheReasonPhrase(t *testing.T) {
	c, cl := newTestCluster(t, Options{})
	out := cl.do("GET", "/nodes/pve1/qemu/999/config", nil)
	want := "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist"
	if cl.status != 500 || cl.reason != want || out["message"] != want+"\n" {
		t.Errorf("got %d %q %v", cl.status, cl.reason, out)
	}
	c.SetGrants("fleet@pve")
	cl.expect(403, "Permission check failed (/vms/9000, VM.Audit)", "GET", "/nodes/pve1/qemu/9000/config", nil)
	cl.auth = "PVEAPIToken=fleet@pve!agent=wrong"
	if out := cl.do("GET", "/version", nil); cl.status != 401 || cl.reason != "Authentication failed!" || out != nil {
		t.Errorf("got %d %q %v, want an empty 401", cl.status, cl.reason, out)
	}
	if n := c.Count("GET", "/nodes/{node}/qemu/{vmid}/config"); n != 2 {
		t.Errorf("counted %d reads of a config, want 2", n)
	}
	for _, r := range c.Requests() {
		if r.Token != "fleet@pve!agent" {
			t.Errorf("recorded token %q", r.Token)
		}
	}
}

func TestAddressesFailAsTheyAreTold(t *testing.T) {
	c, cl := newTestCluster(t, Options{})
	secret := c.RotateToken("fleet@pve!agent")
	cl.auth = "PVEAPIToken=fleet@pve!agent=" + secret
	other := newClient(t, c, "pve2", "fleet@pve!agent", secret)
	works := func(cl *client) bool {
		cl.do("GET", "/version", nil)
		return cl.status == 200
	}
	if !works(cl) || !works(other) {
		t.Fatal("no answer")
	}
	c.AddressDown("pve1", true)
	if works(cl) || !works(other) {
		t.Error("only pve1's address should be down")
	}
	c.AddressDown("pve1", false)
	if !works(cl) {
		t.Error("pve1's address should be back")
	}

	c.MoveVM(9000, "pve1")
	other.expect(200, "OK", "GET", "/nodes/pve1/qemu/9000/config", nil)
	for status, text := range proxyTexts {
		c.ProxyError("pve1", status)
		other.expect(status, text, "GET", "/nodes/pve1/qemu/9000/config", nil)
		cl.expect(200, "OK", "GET", "/nodes/pve1/qemu/9000/config", nil)
	}
	c.ProxyError("pve1", 0)
	c.NodeDown("pve1", true)
	other.expect(595, "No route to host", "GET", "/nodes/pve1/qemu/9000/config", nil)
	c.RefreshStats()
	if vm := other.list("/cluster/resources", form("type", "vm"))[0]; vm["status"] != "unknown" || vm["name"] != nil || vm["tags"] != "base" {
		t.Errorf("a guest of a node that is down: got %v", vm)
	}
	for _, n := range other.list("/nodes", nil) {
		if want := map[any]string{"pve1": "offline", "pve2": "online"}[n["node"]]; n["status"] != want {
			t.Errorf("node %v: got %v, want %s", n["node"], n["status"], want)
		}
	}
}

func TestConnectionsAreCutBeforeAfterAndInTheMiddle(t *testing.T) {
	c, cl := newTestCluster(t, Options{})
	for _, x := range []struct {
		cut  Cut
		done bool
	}{{CutBefore, false}, {CutAfter, true}, {CutMiddle, true}} {
		c.OnRequest(func(r Request) Action {
			if r.Method == "PUT" {
				return Action{Cut: x.cut}
			}
			return Action{}
		})
		mark := fmt.Sprintf("cut-%d", x.cut)
		cl.do("PUT", "/nodes/pve1/qemu/9000/config", form("description", mark))
		if cl.status != 0 {
			t.Errorf("%s: answered %d %s", mark, cl.status, cl.reason)
		}
		if vm, _ := c.VM(9000); (vm.Config["description"] == mark) != x.done {
			t.Errorf("%s: description is %q", mark, vm.Config["description"])
		}
		c.OnRequest(nil)
		cl.expect(200, "OK", "GET", "/version", nil)
	}
}

func TestAHookAnswersAndChangesTheClusterBetweenCalls(t *testing.T) {
	c, cl := newTestCluster(t, Options{})
	c.OnRequest(func(r Request) Action {
		switch {
		case strings.HasSuffix(r.Path, "/clone"):
			return Action{Before: func() { c.AddVM(VMSpec{ID: 101, Name: "of-somebody-else"}) }}
		case r.Template == "/cluster/nextid":
			return Action{Reply: &Reply{Status: 400, Text: "Parameter verification failed.", Errors: map[string]string{"vmid": "no"}}}
		}
		return Action{}
	})
	cl.expect(400, `{"vmid":"no"}`, "GET", "/cluster/nextid", nil)
	cl.expect(500, "unable to create VM 101: config file already exists", "POST", "/nodes/pve1/qemu/9000/clone", form("newid", "101"))
}

func TestACertificateChangesUnderTheClient(t *testing.T) {
	c, cl := newTestCluster(t, Options{})
	before := c.Fingerprint("pve1")
	seen := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(c.URL("pve1"), "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(conn.ConnectionState().PeerCertificates[0].Raw)), " ", ":")
	}
	if seen() != before {
		t.Error("the fingerprint is not that of the certificate")
	}
	c.RenewCertificate("pve1")
	if c.Fingerprint("pve1") == before || seen() != c.Fingerprint("pve1") {
		t.Error("the certificate is still the old one")
	}
	cl.do("GET", "/version", nil) // on the connection that was cut
	cl.expect(200, "OK", "GET", "/version", nil)
	c.ReplaceCA()
	cl.http.CloseIdleConnections()
	if cl.do("GET", "/version", nil); cl.status != 0 || !strings.Contains(cl.reason, "certificate") {
		t.Errorf("got %d %s, want a certificate of an unknown authority", cl.status, cl.reason)
	}
}

func uploadBody(t *testing.T, size int) (io.Reader, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.WriteField("content", "iso")
	part, err := w.CreateFormFile("filename", "seed.iso")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(bytes.Repeat([]byte("s"), size))
	_ = w.Close()
	return &b, w.FormDataContentType()
}

func (cl *client) upload(size int) map[string]any {
	cl.t.Helper()
	body, ctype := uploadBody(cl.t, size)
	req, err := http.NewRequest("POST", cl.base+apiPrefix+"/nodes/pve1/storage/local/upload", body)
	if err != nil {
		cl.t.Fatal(err)
	}
	req.Header.Set("Content-Type", ctype)
	return cl.send(req)
}

func TestARefusedUploadResetsTheConnectionWhenItIsLarge(t *testing.T) {
	c, cl := newTestCluster(t, Options{})
	if out := cl.upload(4 << 20); cl.status != 200 || !strings.Contains(fmt.Sprint(out["data"]), ":imgcopy:") {
		t.Fatalf("got %d %s", cl.status, cl.reason)
	}
	if err := c.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if data, ok := c.Volume("pve1", "local:iso/seed.iso"); !ok || len(data) != 4<<20 {
		t.Errorf("the ISO has %d bytes", len(data))
	}
	if _, ok := c.Volume("pve2", "local:iso/seed.iso"); ok {
		t.Error("an ISO on a local storage is seen by another node")
	}
	c.SetGrants("fleet@pve", Grant{"/", []string{"VM.Audit"}})
	cl.upload(1000)
	if cl.status != 403 || cl.reason != "Permission check failed (/storage/local, Datastore.AllocateTemplate)" {
		t.Errorf("small: got %d %s", cl.status, cl.reason)
	}
	if cl.upload(4 << 20); cl.status != 0 {
		t.Errorf("large: got %d %s, want a reset", cl.status, cl.reason)
	}
}

func TestAClosedClusterRefuses(t *testing.T) {
	c, cl := newTestCluster(t, Options{})
	c.Close()
	if cl.do("GET", "/version", nil); cl.status != 0 {
		t.Errorf("got %d", cl.status)
	}
	if _, err := c.RoundTripper().RoundTrip(httpGet(t, "/version")); !errors.Is(err, errCut) {
		t.Errorf("got %v", err)
	}
}

func httpGet(t *testing.T, path string) *http.Request {
	t.Helper()
	req, err := http.NewRequest("GET", "https://pve.invalid"+apiPrefix+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
