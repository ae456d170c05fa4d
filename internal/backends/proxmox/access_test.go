//go:build pve || proxmox_real

package proxmox

import (
	"os"
	"slices"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

// codes are the codes of a check by target.
func (r *rig) codes() map[string]backends.TargetHealth {
	out := map[string]backends.TargetHealth{}
	for _, h := range r.b.Check(r.ctx()) {
		out[h.Target] = h
	}
	return out
}

func (r *rig) expectCode(target, code string, texts ...string) {
	r.Helper()
	h, ok := r.codes()[target]
	if !ok || h.Code != code {
		r.Errorf("%s: got %+v, want %s", target, h, code)
	}
	for _, text := range texts {
		if !strings.Contains(h.Message, text) {
			r.Errorf("%s does not say %q: %s", target, text, h.Message)
		}
	}
}

func TestAHealthyClusterIsHealthy(t *testing.T) {
	for _, v := range []pvefake.Version{pvefake.V8, pvefake.V9} {
		t.Run(v.String(), func(t *testing.T) {
			r := newRig(t, pvefake.Options{Version: v}, func(c *Config, _ *backends.HostConfig) {
				c.CloneMode, c.Storage = "full", "shared"
			})
			got := r.codes()
			for target, h := range got {
				if h.Code != backends.CheckOK {
					t.Errorf("%s: %+v", target, h)
				}
			}
			for _, target := range []string{"api", "node/pve1", "node/pve2", "storage/shared", "template/debian-13", "network/vmbr0", "permissions"} {
				if _, ok := got[target]; !ok {
					t.Errorf("%s was not checked", target)
				}
			}
			req := r.request()
			r.mustEnsure(req)
			r.wait("it has an address", func() bool {
				i, err := r.b.Get(r.ctx(), req.Ref)
				return err == nil && len(i.Addresses) > 0
			})
			r.mustDelete(req.Ref)
		})
	}
}

// TestEachPrivilegeThatLacksIsNamed takes each privilege of the smallest role away: the
// check names it, and what needs it fails as the host's fault.
func TestEachPrivilegeThatLacksIsNamed(t *testing.T) {
	for _, v := range []pvefake.Version{pvefake.V8, pvefake.V9} {
		all := pvefake.MinimalPrivileges(v)[0].Privileges
		for _, lacks := range all {
			t.Run(v.String()+" "+lacks, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, pvefake.Options{Version: v})
				r.c.SetGrants("proxyfleet@pve", pvefake.Grant{Path: "/", Privileges: slices.DeleteFunc(slices.Clone(all), func(p string) bool { return p == lacks })})
				h := r.codes()["permissions"]
				if h.Code != backends.CheckForbidden || !strings.Contains(h.Message, lacks) || !strings.Contains(h.Message, " on /") {
					t.Errorf("check: got %+v", h)
				}
				if strings.Contains(lacks, "Audit") || lacks == "VM.Monitor" {
					return // what may not be seen is absent rather than refused
				}
				req := r.request()
				_, err := r.ensure(req)
				if err == nil {
					err = r.b.Delete(r.ctx(), req.Ref)
				}
				r.expect(err, backends.ErrHostFault, "the token lacks")
				if lacks != "VM.Allocate" { // which PVE itself does not name
					r.expect(err, backends.ErrHostFault, lacks)
				}
			})
		}
	}
}

func TestATokenThatExpiresHealsWithoutARestart(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	r.mustEnsure(req)
	r.c.ExpireToken(token)
	_, err := r.b.Get(r.ctx(), req.Ref)
	r.expect(err, backends.ErrHostFault, "expired")
	_, err = r.b.List(r.ctx())
	r.expect(err, backends.ErrHostFault)
	r.expectCode("api", backends.CheckUnauthorized)

	if err := os.Remove(r.conf.TokenFile); err != nil {
		t.Fatal(err)
	}
	_, err = r.b.Get(r.ctx(), req.Ref)
	r.expect(err, backends.ErrHostFault, r.conf.TokenFile)
	r.expectCode("api", backends.CheckCredentialsUnavailable)
	write(t, r.conf.TokenFile, "not a token\n")
	r.expectCode("api", backends.CheckCredentialsUnavailable, "user@realm!tokenid=secret")

	secret := r.c.AddToken("other@pve", "agent", pvefake.MinimalPrivileges(r.c.Version())...)
	write(t, r.conf.TokenFile, "other@pve!agent="+secret)
	if _, err := r.b.Get(r.ctx(), req.Ref); err != nil {
		t.Errorf("with another token: %v", err)
	}
}

func TestCertificatesAreJudgedByCAOrFingerprint(t *testing.T) {
	ca := func(r *rig) { write(r.T, r.conf.CA, string(r.c.CAPEM())) }
	pins := func(r *rig) {
		write(r.T, r.conf.Fingerprint, r.c.Fingerprint("pve1")+"\n"+r.c.Fingerprint("pve2")+"\n")
	}
	byCA := func(*Config, *backends.HostConfig) {}
	byPin := func(c *Config, _ *backends.HostConfig) {
		c.Fingerprint, c.CA = strings.TrimSuffix(c.CA, "ca.pem")+"pins", ""
	}
	renew := func(r *rig) { r.c.RenewCertificate("pve1"); r.c.RenewCertificate("pve2") }
	for name, c := range map[string]struct {
		conf   func(*Config, *backends.HostConfig)
		change func(*rig)
		breaks bool
		mend   func(*rig)
	}{
		"by CA, a certificate that is renewed":          {byCA, renew, false, ca},
		"by CA, a CA that is replaced":                  {byCA, func(r *rig) { r.c.ReplaceCA() }, true, ca},
		"by fingerprint, a certificate that is renewed": {byPin, renew, true, pins},
		"by fingerprint, a CA that is replaced":         {byPin, func(r *rig) { r.c.ReplaceCA() }, true, pins},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pvefake.Options{}, c.conf)
			if r.conf.CA == "" {
				pins(r)
			}
			ref := r.request().Ref
			_, err := r.b.Get(r.ctx(), ref)
			r.expect(err, backends.ErrNotFound)
			c.change(r)
			r.b.Close() // idle connections are older than the change
			_, err = r.b.Get(r.ctx(), ref)
			if !c.breaks {
				r.expect(err, backends.ErrNotFound)
				return
			}
			r.expect(err, backends.ErrHostFault, "certificate")
			r.expectCode("api", backends.CheckCertificateInvalid)
			c.mend(r)
			_, err = r.b.Get(r.ctx(), ref)
			r.expect(err, backends.ErrNotFound)
		})
	}
}

func TestWhatIsWrongWithTheClusterIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		conf   func(*Config, *backends.HostConfig)
		change func(*rig)
		target string
		code   string
		texts  []string
	}{
		"a node that is not in the cluster": {
			conf:   func(c *Config, _ *backends.HostConfig) { c.Nodes = []string{"pve1", "pve9"} },
			target: "node/pve9", code: backends.CheckUnreachable, texts: []string{"has no node pve9", "pve1, pve2"},
		},
		"a node that is offline": {
			change: func(r *rig) { r.c.NodeDown("pve2", true) },
			target: "node/pve2", code: backends.CheckUnreachable, texts: []string{"offline"},
		},
		"a seed storage that does not exist": {
			conf:   func(c *Config, _ *backends.HostConfig) { c.SeedStorage = "nope" },
			target: "storage/nope", code: backends.CheckStorageNotFound,
		},
		"a seed storage without ISO images": {
			conf:   func(c *Config, _ *backends.HostConfig) { c.SeedStorage = "local-lvm" },
			target: "storage/local-lvm", code: backends.CheckStorageNotFound, texts: []string{`"iso"`, "images"},
		},
		"a seed storage that is not mounted": {
			change: func(r *rig) { s := r.c.Storage("shared"); s.Inactive = true; r.c.SetStorage(s) },
			target: "storage/shared", code: backends.CheckStorageNotFound, texts: []string{"not active"},
		},
		"a seed storage that is full": {
			change: func(r *rig) { s := r.c.Storage("shared"); s.Used = s.Total; r.c.SetStorage(s) },
			target: "storage/shared", code: backends.CheckLowSpace,
		},
		"a template that does not exist": {
			conf: func(_ *Config, hc *backends.HostConfig) {
				hc.Images["debian-13"] = backends.Image{Template: "nope"}
			},
			target: "template/debian-13", code: backends.CheckTemplateNotFound, texts: []string{"nope"},
		},
		"an image that is no template": {
			conf: func(_ *Config, hc *backends.HostConfig) {
				hc.Images["debian-13"] = backends.Image{URL: "https://x/y"}
			},
			target: "template/debian-13", code: backends.CheckTemplateNotFound,
		},
		"a bridge that does not exist": {
			conf:   func(c *Config, _ *backends.HostConfig) { c.Network.Bridge = "vmbr9" },
			target: "network/vmbr9", code: backends.CheckNetworkNotFound, texts: []string{"vmbr0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.conf == nil {
				c.conf = func(*Config, *backends.HostConfig) {}
			}
			r := newRig(t, pvefake.Options{}, c.conf)
			if c.change != nil {
				c.change(r)
				r.c.RefreshStats()
			}
			r.expectCode(c.target, c.code, c.texts...)
		})
	}
}

func TestWithoutAnyConfiguredNodeNothingIsPlaced(t *testing.T) {
	r := newRig(t, pvefake.Options{}, func(c *Config, _ *backends.HostConfig) { c.Nodes = []string{"pve9"} })
	_, err := r.ensure(r.request())
	r.expect(err, backends.ErrHostFault, "pve9")
	_, err = r.b.Offer(r.ctx())
	r.expect(err, backends.ErrHostFault, "pve9")
}
