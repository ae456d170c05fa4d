package agent

import (
	"errors"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

func TestARequestSaysWhatTheAssignmentSays(t *testing.T) {
	a := bus.Assignment{Proxy: "p", UID: "u", Generation: 3, Pool: "pool", Desired: bus.DesiredStopped, Spec: &bus.Spec{
		Port: 3128, Auth: &bus.Auth{Username: "u", Password: "s3cr3t"}, AllowFrom: []string{"10.1.2.3/8", "2001:db8::/32"},
		Image: "own", Egress: &bus.Egress{Private: true, ConnectPorts: []int{8443}}, CloudInitBase64: "AAEC",
		Zones: []string{"us-central1"}, Address: "internal"}}
	r, err := request(a, backends.Defaults{Image: "default", MachineType: "small", DiskGiB: 5})
	if err != nil {
		t.Fatal(err)
	}
	if r.Proxy != "p" || r.UID != "u" || r.Generation != 3 || r.Desired != backends.Stopped || r.Port != 3128 || r.Pool != "pool" {
		t.Errorf("got %+v", r)
	}
	if r.Image != "own" || r.MachineType != "small" || r.DiskGiB != 5 {
		t.Errorf("defaults: image %q, machine type %q, disk %d", r.Image, r.MachineType, r.DiskGiB)
	}
	if r.Access.Password.Reveal() != "s3cr3t" || r.Access.Username != "u" || !r.Access.Private || len(r.Access.ConnectPorts) != 1 {
		t.Errorf("access: %+v", r.Access)
	}
	if len(r.Access.AllowFrom) != 2 || r.Access.AllowFrom[0].String() != "10.0.0.0/8" {
		t.Errorf("networks: %v", r.Access.AllowFrom)
	}
	if len(r.Zones) != 1 || r.Zones[0] != "us-central1" || r.Address != "internal" {
		t.Errorf("in a cloud: zones %v, address %q", r.Zones, r.Address)
	}
	if string(r.UserData) != "\x00\x01\x02" {
		t.Errorf("user-data: %q", r.UserData)
	}
}

func TestWhatCannotBeReadIsPermanentAndNamesNoSecret(t *testing.T) {
	for name, spec := range map[string]*bus.Spec{
		"no spec":       nil,
		"a bad network": {Auth: &bus.Auth{Password: "s3cr3t"}, AllowFrom: []string{"10.0.0.0"}},
		"bad base64":    {Auth: &bus.Auth{Password: "s3cr3t"}, CloudInitBase64: "s3cr3t!"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := request(bus.Assignment{Proxy: "p", Desired: bus.DesiredRunning, Spec: spec}, backends.Defaults{})
			if !errors.Is(err, backends.ErrPermanent) {
				t.Errorf("got %v, want ErrPermanent", err)
			}
			if strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
}
