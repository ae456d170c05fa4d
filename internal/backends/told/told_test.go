package told

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/secret"
)

func TestPartsTellWhatDiffersAndHoldsNoSecret(t *testing.T) {
	req := backends.Request{Ref: backends.Ref{Proxy: "a", UID: "01k0000000000000000000000c"},
		Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, UserData: []byte("#cloud-config\n{}\n")}
	req.Access.Username, req.Access.Password = "crawler", secret.String("hunter2-and-more")
	was, err := Of(req)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Of(req); len(was.Differs(again)) > 0 || was.String() != again.String() {
		t.Error("the same request differs from itself")
	}
	if text := was.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "crawler") {
		t.Errorf("%s says a secret", text)
	}
	if diff := cmp.Diff(was, Parse(was.String())); diff != "" {
		t.Error(diff)
	}
	for want, change := range map[string]func(*backends.Request){
		"auth":      func(r *backends.Request) { r.Access.Password += "x" },
		"allowFrom": func(r *backends.Request) { r.Access.AllowFrom = nil },
		"egress":    func(r *backends.Request) { r.Access.Private = true },
		"userData":  func(r *backends.Request) { r.UserData = []byte("#!/bin/sh") },
		"":          func(r *backends.Request) { r.Image, r.MachineType, r.DiskGiB = "x", "y", 99 },
	} {
		other := req
		change(&other)
		asked, err := Of(other)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(was.Differs(asked), " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (Parts{}).Differs(was); len(got) > 0 {
		t.Errorf("a guest of an older version differs in %v", got)
	}
}

func TestAGuestIsNotAskedToBecomeAnother(t *testing.T) {
	req := backends.Request{Ref: backends.Ref{Proxy: "a", UID: "01k0000000000000000000000c"}, Port: 3128}
	was := Parts{"auth": "1", "egress": "1"}
	if err := was.Unchanged("VM", 3128, req, was); err != nil {
		t.Error(err)
	}
	err := was.Unchanged("VM", 8080, req, Parts{"auth": "2", "egress": "1"})
	if backends.Class(err) != backends.ErrPermanent || !strings.Contains(err.Error(), "another auth, port 8080,") {
		t.Errorf("got %v, want Permanent and what differs", err)
	}
}
