package backends

import (
	"net/netip"
	"strings"
	"testing"

	"proxyfleet/internal/secret"
)

func validRequest() Request {
	return Request{Ref: Ref{Proxy: "crawl-1", UID: "01jd3v6q4m8e2x5y7z9abcdefg"}, Desired: Running,
		Access: Access{Username: "u", Password: "p", AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
}

func TestOnlySafeRequestsAreValid(t *testing.T) {
	if err := validRequest().Validate(); err != nil {
		t.Fatalf("the valid one: %v", err)
	}
	for name, spoil := range map[string]func(*Request){
		"no proxy":                 func(r *Request) { r.Proxy = "" },
		"a path for a proxy":       func(r *Request) { r.Proxy = "../x" },
		"a proxy with dots":        func(r *Request) { r.Proxy = "a.b" },
		"a proxy in upper case":    func(r *Request) { r.Proxy = "A" },
		"a proxy ending in a dash": func(r *Request) { r.Proxy = "a-" },
		"a proxy too long":         func(r *Request) { r.Proxy = strings.Repeat("a", MaxProxyName+1) },
		"no uid":                   func(r *Request) { r.UID = "" },
		"a uid in upper case":      func(r *Request) { r.UID = strings.ToUpper(r.UID) },
		"a uid too short":          func(r *Request) { r.UID = r.UID[1:] },
		"a uid out of range":       func(r *Request) { r.UID = "8" + r.UID[1:] },
		"a uid with a slash":       func(r *Request) { r.UID = "0/" + r.UID[2:] },
		"no desired":               func(r *Request) { r.Desired = "" },
		"a pool with dots":         func(r *Request) { r.Pool = "a.b" },
		"a negative port":          func(r *Request) { r.Port = -1 },
		"a port too high":          func(r *Request) { r.Port = 65536 },
		"a negative disk":          func(r *Request) { r.DiskGiB = -1 },
		"no access rule":           func(r *Request) { r.Access = Access{} },
		"no rule but private":      func(r *Request) { r.Access = Access{Private: true} },
		"a name alone":             func(r *Request) { r.Access.Password = "" },
		"a password alone":         func(r *Request) { r.Access.Username = "" },
		"a colon in the name":      func(r *Request) { r.Access.Username = "a:b" },
		"a comment for a name":     func(r *Request) { r.Access.Username = "#a" },
		"a name with a space last": func(r *Request) { r.Access.Username = "a " },
		"a newline in the name":    func(r *Request) { r.Access.Username = "a\nb" },
		"a password beyond ASCII":  func(r *Request) { r.Access.Password = "é" },
		"a name too long":          func(r *Request) { r.Access.Username = strings.Repeat("a", MaxCredential+1) },
		"a password too long":      func(r *Request) { r.Access.Password = secret.String(strings.Repeat("a", MaxCredential+1)) },
		"no network in a network":  func(r *Request) { r.Access.AllowFrom = []netip.Prefix{{}} },
		"a network with host bits": func(r *Request) { r.Access.AllowFrom[0] = netip.MustParsePrefix("10.0.0.1/8") },
		"a mapped network":         func(r *Request) { r.Access.AllowFrom[0] = netip.MustParsePrefix("::ffff:10.0.0.0/104") },
		"CONNECT to port 0":        func(r *Request) { r.Access.ConnectPorts = []int{0} },
		"CONNECT to port 65536":    func(r *Request) { r.Access.ConnectPorts = []int{65536} },
	} {
		r := validRequest()
		spoil(&r)
		err := r.Validate()
		if Class(err) != ErrPermanent {
			t.Errorf("%s: got %v, want Permanent", name, err)
		}
		if err != nil && r.Access.Password != "" && len(r.Access.Password) > 1 && strings.Contains(err.Error(), r.Access.Password.Reveal()) {
			t.Errorf("%s: the error says the password: %v", name, err)
		}
	}
}

func TestTheWholeWorldMayBeWrittenOut(t *testing.T) {
	r := validRequest()
	r.Access = Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
}

// FuzzRef looks for a ref that passes and does not fit a path or a name.
func FuzzRef(f *testing.F) {
	f.Add("crawl-1", "01jd3v6q4m8e2x5y7z9abcdefg")
	f.Add("../x", "\n")
	f.Fuzz(func(t *testing.T, proxy, uid string) {
		if (Ref{proxy, uid}).Validate() != nil {
			return
		}
		if strings.ContainsAny(proxy+uid, "/.\\\n\x00 \"'$") || proxy == "" || len(uid) != 26 {
			t.Errorf("%q %q passed", proxy, uid)
		}
	})
}
