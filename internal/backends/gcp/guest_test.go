package gcp

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/gcp/gcpfake"
)

// parts takes a user-data document apart as cloud-init does: name or content type → content.
func parts(t *testing.T, doc string) map[string]string {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		var body io.Reader = p
		if p.Header.Get("Content-Transfer-Encoding") == "base64" {
			body = base64.NewDecoder(base64.StdEncoding, p)
		}
		raw, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		name := p.FileName()
		if name == "" {
			name, _, _ = mime.ParseMediaType(p.Header.Get("Content-Type"))
		}
		out[name] = string(raw)
	}
}

func TestUserDataReachesTheGuestByteForByteBesideOurs(t *testing.T) {
	const nested = "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n--b\nContent-Type: text/cloud-config\n\n{}\n--b--\n"
	for name, c := range map[string]struct{ data, part, want string }{
		"cloud-config":    {"#cloud-config\npackages: [jq]\n", "user-data", "#cloud-config\npackages: [jq]\n"},
		"a script":        {"#!/bin/sh\necho 'a' \"b\" $c\n", "user-data", "#!/bin/sh\necho 'a' \"b\" $c\n"},
		"bytes":           {"\x1f\x8b\x08\x00\xff", "user-data", "\x1f\x8b\x08\x00\xff"},
		"a MIME document": {nested, "multipart/mixed", "--b\nContent-Type: text/cloud-config\n\n{}\n--b--\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(_ *Config, h *backends.HostConfig) {
				h.VendorData = "#cloud-config\nntp: {}\n"
				delete(h.Images, "debian-13") // which has no cloud-init to read it
			})
			req := r.request()
			req.UserData = []byte(c.data)
			_, i := r.mustEnsure(req)
			got := parts(t, i.Metadata[keyUserData])
			if got[c.part] != c.want || got["operator"] != "#cloud-config\nntp: {}\n" || !strings.Contains(got["proxyfleet.sh"], "put_file /etc/squid/squid.conf") {
				t.Errorf("got %q", got)
			}
			if i.Metadata[keyStartup] != "" {
				t.Error("there is a startup script as well")
			}
		})
	}
}

func TestAnImageWithoutCloudInitGetsAStartupScript(t *testing.T) {
	r := newRig(t)
	req := r.request()
	req.Image = "debian-13"
	_, err := r.ensure(req)
	r.expect(err, backends.ErrPermanent, `image "debian-13" has no cloud-init`)
	req.UserData = nil
	_, i := r.mustEnsure(req)
	if script := i.Metadata[keyStartup]; !strings.HasPrefix(script, "#!/bin/sh\n") || !strings.Contains(script, "put_file /etc/squid/passwd") || i.Metadata[keyUserData] != "" {
		t.Errorf("metadata is %v", i.Metadata)
	}
}

func TestLongUserDataIsCompressedOrRefused(t *testing.T) {
	r := newRig(t)
	req := r.request()
	req.UserData = []byte("#!/bin/sh\n" + strings.Repeat("# a line that says nothing\n", 9000))
	_, i := r.mustEnsure(req)
	if i.Metadata[keyEncoding] != "base64" {
		t.Fatalf("encoding is %q", i.Metadata[keyEncoding])
	}
	packed, err := base64.StdEncoding.DecodeString(i.Metadata[keyUserData])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := io.ReadAll(z)
	if got := parts(t, string(doc)); err != nil || got["user-data"] != string(req.UserData) {
		t.Errorf("it does not come out as it went in (%v)", err)
	}
	noise := make([]byte, 256<<10)
	_, _ = rand.Read(noise)
	req = r.request()
	req.UserData = append([]byte("#!/bin/sh\n"), noise...)
	_, err = r.ensure(req)
	r.expect(err, backends.ErrPermanent, "too long")
}

// guestFiles are the files that a machine's bootstrap writes, by path.
func guestFiles(t *testing.T, i gcpfake.Instance) map[string]string {
	t.Helper()
	script := i.Metadata[keyStartup]
	if script == "" {
		script = parts(t, i.Metadata[keyUserData])["proxyfleet.sh"]
	}
	out := map[string]string{}
	for _, part := range strings.Split(script, "\nput_file ")[1:] {
		head, rest, _ := strings.Cut(part, " <<'END'\n")
		text, _, _ := strings.Cut(rest, "\nEND\n")
		raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(text, "\n", ""))
		if err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(head, " ")
		out[path] = string(raw)
	}
	return out
}

// Whichever way a guest is set up, Squid starts once its own addresses are written, and they are
// followed from then on.
func TestAGuestLearnsItsOwnAddressesBeforeSquidStarts(t *testing.T) {
	for _, image := range []string{"ubuntu", "debian-13"} {
		r := newRig(t)
		req := r.request()
		req.Image, req.UserData = image, nil
		_, i := r.mustEnsure(req)
		files := guestFiles(t, i)
		for path, want := range map[string]string{
			"/etc/squid/squid.conf":                               `acl own dst "/etc/squid/own-addresses"` + "\n",
			"/etc/systemd/system/squid.service.d/proxyfleet.conf": "\nExecStartPre=+/bin/sh /etc/squid/own-addresses.sh\n",
			"/etc/systemd/system/proxyfleet-addresses.service":    "\nExecStart=/bin/sh /etc/squid/own-addresses.sh follow\n",
			"/etc/squid/own-addresses.sh":                         "\nlist=/etc/squid/own-addresses\n",
		} {
			if !strings.Contains(files[path], want) {
				t.Errorf("image %s: %s lacks %q:\n%s", image, path, want, files[path])
			}
		}
		if !strings.Contains(files["/etc/systemd/system/squid.service.d/proxyfleet.conf"], "\nWants=proxyfleet-addresses.service\n") {
			t.Errorf("image %s: nothing starts what follows the addresses", image)
		}
	}
}

func TestNoProxyLeadsToTheMetadataServer(t *testing.T) {
	for _, private := range []bool{false, true} {
		r := newRig(t)
		req := r.request()
		req.Access.Private = private
		_, i := r.mustEnsure(req)
		conf := guestFiles(t, i)["/etc/squid/squid.conf"]
		for _, rule := range []string{"acl reserved dst 169.254.0.0/16\n", "acl reserved dst fd20:ce::254/128\n", "http_access deny reserved\n"} {
			if !strings.Contains(conf, rule) {
				t.Errorf("private %v: squid.conf lacks %q", private, rule)
			}
		}
	}
}

// The whole instance as it is asked for, for people to read; what differs each time is replaced.
func TestTheInstanceThatIsAskedFor(t *testing.T) {
	for name, change := range map[string]func(*Config, *backends.Request){
		"plain": func(*Config, *backends.Request) {},
		"all": func(c *Config, req *backends.Request) {
			c.IPv6, c.Network, c.Subnetwork = true, "projects/shared/global/networks/vpc", "projects/shared/regions/us-central1/subnetworks/proxies"
			c.ServiceAccount = ServiceAccount{Email: "proxy@fleet-test.iam.gserviceaccount.com"}
			c.DiskType, c.Preemption = "pd-standard", "delete"
			off := false
			c.ShieldedVM, c.OSLogin = &off, &off
			req.MachineType, req.Port = "spot", 8080
		},
		"internal": func(_ *Config, req *backends.Request) { req.Address = "internal" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			req := r.request()
			change(&r.conf, &req)
			r.owner = backends.Owner{Installation: "01k0000000000000000000000a", HostID: "Host 1"}
			b := r.open()
			req.UID = "01k0000000000000000000000c"
			j, err := b.job(req, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range j.metadata {
				if k := item.GetKey(); k == keyUserData || k == keyTold {
					*item.Value = "…"
				}
			}
			m := backends.Mark{Installation: r.owner.Installation, HostID: r.owner.HostID, Proxy: req.Proxy, UID: req.UID, CreatedAt: time.Unix(1790000000, 0)}
			raw, err := protojson.Marshal(b.resource(j, m, "us-central1-a", ""))
			if err != nil {
				t.Fatal(err)
			}
			var doc any
			_ = json.Unmarshal(raw, &doc)
			got, _ := json.MarshalIndent(doc, "", "  ")
			path := filepath.Join("testdata", "instance-"+name+".json")
			if os.Getenv("UPDATE") != "" {
				_ = os.MkdirAll("testdata", 0o755)
				write(t, path, string(got)+"\n")
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFirewallRulesLetClientNetworksInAndNobodyElse(t *testing.T) {
	r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.IPv6, c.Network, c.Subnetwork = true, "dual", "dual" })
	r.s.AddNetwork("dual", "IPV4_IPV6", "EXTERNAL")
	req := r.request()
	req.Access.AllowFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("10.0.0.0/8")}
	got, i := r.mustEnsure(req)
	if len(got.Addresses) != 2 {
		t.Errorf("addresses are %v, want one of each family", got.Addresses)
	}
	root := "projects/" + r.s.Project() + "/global/firewalls/" + i.Name
	for key, want := range map[string]string{root: `["10.0.0.0/8","192.0.2.0/24"]`, root + suffixV6: `["2001:db8::/32"]`} {
		doc := r.s.Document(key)
		ranges, _ := json.Marshal(doc["sourceRanges"])
		allowed, _ := json.Marshal(doc["allowed"])
		tags, _ := json.Marshal(doc["targetTags"])
		if string(ranges) != want || string(allowed) != `[{"IPProtocol":"tcp","ports":["3128"]}]` || string(tags) != `["`+i.Name+`"]` {
			t.Errorf("%s lets %s in through %s to %s", key, ranges, allowed, tags)
		}
	}
	// Somebody opens it to the world.
	r.s.Edit(root, func(doc map[string]any) { doc["sourceRanges"] = []any{"0.0.0.0/0"} })
	r.mustEnsure(req)
	if ranges, _ := json.Marshal(r.s.Document(root)["sourceRanges"]); string(ranges) != `["10.0.0.0/8","192.0.2.0/24"]` {
		t.Errorf("it lets %s in after it was put right", ranges)
	}
	r.mustDelete(req.Ref)
}

func TestWithoutClientNetworksOrByConfigurationNoFirewallIsOpened(t *testing.T) {
	r := newRig(t)
	req := r.request()
	req.Access.AllowFrom = nil
	r.mustEnsure(req)
	r.conf.Firewall.Manage = new(bool)
	r.b = r.open()
	r.mustEnsure(r.request())
	if keys := r.s.Keys("firewalls"); len(keys) != 0 {
		t.Errorf("there are %v", keys)
	}
}

func TestAddressesAreInternalOrExternalAsAsked(t *testing.T) {
	r := newRig(t)
	out, in := r.request(), r.request()
	in.Address = "internal"
	if i, v := r.mustEnsure(out); len(i.Addresses) != 1 || i.Addresses[0].String() != v.ExternalIP || v.ExternalIP == "" {
		t.Errorf("got %v, want %s", i.Addresses, v.ExternalIP)
	}
	if i, v := r.mustEnsure(in); len(i.Addresses) != 1 || i.Addresses[0].String() != v.InternalIP || v.ExternalIP != "" {
		t.Errorf("got %v, want %s alone", i.Addresses, v.InternalIP)
	}
	in = r.request()
	in.Address = "both"
	_, err := r.ensure(in)
	r.expect(err, backends.ErrPermanent, "neither external nor internal")
}

func TestAReservedAddressStaysAsLongAsTheUID(t *testing.T) {
	for _, kind := range []string{external, internal} {
		r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.ReservedAddress, c.Address = true, kind })
		req := r.request()
		first, i := r.mustEnsure(req)
		r.s.RemoveInstance(i.Zone, i.Name)
		if again, _ := r.mustEnsure(req); !cmp.Equal(again.Addresses, first.Addresses, cmp.Comparer(func(x, y netip.Addr) bool { return x == y })) {
			t.Errorf("%s: got %v, want %v again", kind, again.Addresses, first.Addresses)
		}
		// In another region it is another.
		r.s.RemoveInstance(i.Zone, i.Name)
		for _, z := range []string{"us-central1-a", "us-central1-b"} {
			r.s.StockOut(z)
		}
		r.mustEnsure(req)
		if keys := r.s.Keys("addresses"); len(keys) != 1 || !strings.Contains(keys[0], "europe-west1") {
			t.Errorf("%s: reserved are %v, want one in europe-west1", kind, keys)
		}
		r.mustDelete(req.Ref)
	}
}
