package gcpfake_test

import (
	"testing"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

func TestAMachineLivesAndLeavesNothing(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	c := newClient(t, s)
	c.mustInsert(machine("one"))
	i := c.get("one")
	if i.GetStatus() != "RUNNING" || i.GetNetworkInterfaces()[0].GetNetworkIP() == "" || i.GetNetworkInterfaces()[0].GetAccessConfigs()[0].GetNatIP() == "" {
		t.Errorf("%v", i)
	}
	if len(s.Keys("disks")) != 1 {
		t.Errorf("disks: %v", s.Keys("disks"))
	}
	op, err := c.instances.Delete(c.ctx, &computepb.DeleteInstanceRequest{Project: c.project, Zone: zone, Instance: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Wait(c.ctx); err != nil {
		t.Fatal(err)
	}
	if len(s.Keys("disks"))+len(s.Keys("instances")) != 0 {
		t.Errorf("left: %v %v", s.Keys("disks"), s.Keys("instances"))
	}
	_, err = c.instances.Get(c.ctx, &computepb.GetInstanceRequest{Project: c.project, Zone: zone, Instance: "one"})
	if code, word := reason(err); code != 404 || word != "notFound" {
		t.Errorf("get of a deleted machine: %v", err)
	}
}
