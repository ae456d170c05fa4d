//go:build pve || proxmox_real

package pvefake

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// client is a bare API client: what it sends is what the test says.
type client struct {
	t      *testing.T
	c      *Cluster
	base   string
	auth   string
	http   *http.Client
	status int    // of the last answer
	reason string // of the last answer, without the number
}

func newClient(t *testing.T, c *Cluster, node, token, secret string) *client {
	t.Helper()
	cl := &client{t: t, c: c, base: "https://pve.invalid", auth: "PVEAPIToken=" + token + "=" + secret,
		http: &http.Client{Transport: c.RoundTripper()}}
	if c.pki == nil {
		return cl
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.CAPEM())
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	cl.base, cl.http = c.URL(node), &http.Client{Transport: tr}
	return cl
}

func form(kv ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(kv); i += 2 {
		v.Set(kv[i], kv[i+1])
	}
	return v
}

// do sends one request and returns the decoded body, nil when it is not JSON.
func (cl *client) do(method, path string, params url.Values) map[string]any {
	cl.t.Helper()
	body := io.Reader(nil)
	target := cl.base + apiPrefix + path
	if method == http.MethodPost || method == http.MethodPut {
		body = strings.NewReader(params.Encode())
	} else if len(params) > 0 {
		target += "?" + params.Encode()
	}
	req, err := http.NewRequest(method, target, body)
	if err != nil {
		cl.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return cl.send(req)
}

func (cl *client) send(req *http.Request) map[string]any {
	cl.t.Helper()
	if cl.auth != "" {
		req.Header.Set("Authorization", cl.auth)
	}
	resp, err := cl.http.Do(req)
	if err != nil {
		cl.status, cl.reason = 0, err.Error()
		return nil
	}
	defer resp.Body.Close()
	cl.status = resp.StatusCode
	_, cl.reason, _ = strings.Cut(resp.Status, " ")
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		cl.status, cl.reason = 0, err.Error()
		return nil
	}
	var out map[string]any
	_ = json.Unmarshal(raw, &out)
	return out
}

// expect sends a request and wants this status and text: the errors map of a
// 400, else the reason phrase.
func (cl *client) expect(status int, text, method, path string, params url.Values) {
	cl.t.Helper()
	out := cl.do(method, path, params)
	got := cl.reason
	if errs, ok := out["errors"].(map[string]any); ok {
		got = toJSON(errs)
	}
	if cl.status != status || !strings.Contains(got, text) {
		cl.t.Errorf("%s %s %s: got %d %s, want %d %s", method, path, params.Encode(), cl.status, got, status, text)
	}
}

// list is the data of a GET that answers a list of objects.
func (cl *client) list(path string, params url.Values) []map[string]any {
	cl.t.Helper()
	raw, _ := json.Marshal(cl.do("GET", path, params)["data"])
	var rows []map[string]any
	if err := json.Unmarshal(raw, &rows); err != nil || cl.status != 200 {
		cl.t.Fatalf("GET %s: %d %s", path, cl.status, cl.reason)
	}
	return rows
}

// task sends a request that must answer a UPID and returns its exit status.
func (cl *client) task(method, path string, params url.Values) string {
	cl.t.Helper()
	out := cl.do(method, path, params)
	upid, _ := out["data"].(string)
	if cl.status != 200 || !strings.HasPrefix(upid, "UPID:") {
		cl.t.Fatalf("%s %s: got %d %s, want a UPID", method, path, cl.status, cl.reason)
	}
	if err := cl.c.WaitIdle(cl.t.Context()); err != nil {
		cl.t.Fatal(err)
	}
	node := strings.Split(upid, ":")[1]
	st := cl.do("GET", "/nodes/"+node+"/tasks/"+upid+"/status", nil)["data"].(map[string]any)
	exit, _ := st["exitstatus"].(string)
	return exit
}

func toJSON(x any) string {
	b, _ := json.Marshal(x)
	return string(b)
}
