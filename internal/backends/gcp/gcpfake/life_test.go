package gcpfake_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/cloudresourcemanager/v3"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

func TestGooglesClientMakesAMachineAndLeavesNothing(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	c := newClient(t, s)
	c.mustInsert(machine("one"))
	i := c.get("one")
	if i.GetStatus() != "RUNNING" || i.GetNetworkInterfaces()[0].GetNetworkIP() == "" || i.GetNetworkInterfaces()[0].GetAccessConfigs()[0].GetNatIP() == "" {
		t.Errorf("%v", i)
	}
	if disks := s.Keys("disks"); len(disks) != 1 {
		t.Errorf("disks: %v", disks)
	}
	op, err := c.instances.Delete(c.ctx, &computepb.DeleteInstanceRequest{Project: c.project, Zone: zone, Instance: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Wait(c.ctx); err != nil {
		t.Fatal(err)
	}
	if left := slices.Concat(s.Keys("disks"), s.Keys("instances")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	_, err = c.instances.Get(c.ctx, &computepb.GetInstanceRequest{Project: c.project, Zone: zone, Instance: "one"})
	if code, word := reason(err); code != 404 || word != "notFound" {
		t.Errorf("get of a deleted machine: %v", err)
	}
}

func TestGooglesClientSeesWhyAnInsertFailed(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	c := newClient(t, s)
	s.StockOut(zone, "us-central1-b")
	op, err := c.instances.Insert(c.ctx, &computepb.InsertInstanceRequest{Project: c.project, Zone: zone, InstanceResource: machine("one")})
	if err != nil {
		t.Fatal(err)
	}
	err = op.Wait(c.ctx)
	if code, _ := reason(err); code != 503 {
		t.Errorf("the operation's error: %v", err)
	}
	first := op.Proto().GetError().GetErrors()[0]
	var room string
	for _, d := range first.GetErrorDetails() {
		room += d.GetErrorInfo().GetMetadatas()["zonesAvailable"]
	}
	if first.GetCode() != "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS" || room != "us-central1-b" {
		t.Errorf("%v", first)
	}
	s.Restock(zone)
	s.SetQuota("us-central1", "CPUS", 1)
	op, err = c.instances.Insert(c.ctx, &computepb.InsertInstanceRequest{Project: c.project, Zone: zone, InstanceResource: machine("one")})
	if err != nil {
		t.Fatal(err)
	}
	_ = op.Wait(c.ctx)
	quota := op.Proto().GetError().GetErrors()[0].GetErrorDetails()[0].GetQuotaInfo()
	if quota.GetMetricName() != "compute.googleapis.com/cpus" || quota.GetLimit() != 1 || quota.GetDimensions()["region"] != "us-central1" {
		t.Errorf("%v", quota)
	}
}

func TestGooglesClientReadsErrors(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	c := newClient(t, s)
	*c.instances.CallOptions = compute.InstancesCallOptions{} // they would repeat a 503
	c.mustInsert(machine("one"))
	if code, word := reason(c.insert(machine("one"))); code != 409 || word != "alreadyExists" {
		t.Errorf("%d %s", code, word)
	}
	for what, e := range map[string]*gcpfake.Error{"rate": gcpfake.RateLimited("Queries"), "429": gcpfake.TooManyRequests(3), "503": gcpfake.BackendError(), "502": gcpfake.BadGateway()} {
		s.OnRequest(func(gcpfake.Request) gcpfake.Action { return gcpfake.Action{Error: e} })
		_, err := c.instances.Get(c.ctx, &computepb.GetInstanceRequest{Project: c.project, Zone: zone, Instance: "one"})
		var g *googleapi.Error
		if !errors.As(err, &g) || g.Code != e.Code || e.Plain == "" && g.Message != e.Message || e.Header != nil && g.Header.Get("Retry-After") != "3" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestGooglesClientPagesThroughAllZones(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{PageSize: 1})
	c := newClient(t, s)
	c.mustInsert(machine("a"))
	c.mustInsert(machine("b"))
	found := ""
	all := c.instances.AggregatedList(c.ctx, &computepb.AggregatedListInstancesRequest{Project: c.project, Filter: proto.String("labels.fleet=yes")})
	for {
		pair, err := all.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range pair.Value.GetInstances() {
			found += i.GetName()
		}
	}
	if found != "ab" || s.Count("compute.instances.aggregatedList") < 2 {
		t.Errorf("found %q in %d pages", found, s.Count("compute.instances.aggregatedList"))
	}
}

func TestGooglesClientSetsLabelsMetadataAndTags(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	c := newClient(t, s)
	c.mustInsert(machine("one"))
	i := c.get("one")
	op, err := c.instances.SetLabels(c.ctx, &computepb.SetLabelsInstanceRequest{Project: c.project, Zone: zone, Instance: "one",
		InstancesSetLabelsRequestResource: &computepb.InstancesSetLabelsRequest{LabelFingerprint: i.LabelFingerprint, Labels: map[string]string{"a": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Wait(c.ctx); err != nil {
		t.Fatal(err)
	}
	_, err = c.instances.SetMetadata(c.ctx, &computepb.SetMetadataInstanceRequest{Project: c.project, Zone: zone, Instance: "one",
		MetadataResource: &computepb.Metadata{Fingerprint: i.LabelFingerprint}})
	if code, word := reason(err); code != 412 || word != "conditionNotMet" {
		t.Errorf("another's fingerprint: %v", err)
	}
	if got := s.Instances()[0].Labels; len(got) != 1 || got["a"] != "b" {
		t.Errorf("labels: %v", got)
	}
}

func TestGooglesClientsReadWhatIsOffered(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	c := newClient(t, s)
	types := open(c, compute.NewMachineTypesRESTClient)
	m, err := types.Get(c.ctx, &computepb.GetMachineTypeRequest{Project: c.project, Zone: zone, MachineType: "e2-small"})
	if err != nil || m.GetGuestCpus() != 2 || m.GetMemoryMb() != 2048 {
		t.Errorf("%v %v", m, err)
	}
	images := open(c, compute.NewImagesRESTClient)
	image, err := images.GetFromFamily(c.ctx, &computepb.GetFromFamilyImageRequest{Project: "debian-cloud", Family: "debian-13"})
	if err != nil || image.GetDiskSizeGb() != 10 || !strings.HasPrefix(image.GetName(), "debian-13-") {
		t.Errorf("%v %v", image, err)
	}
	regions := open(c, compute.NewRegionsRESTClient)
	region, err := regions.Get(c.ctx, &computepb.GetRegionRequest{Project: c.project, Region: "us-central1"})
	if err != nil || len(region.GetQuotas()) < 5 || len(region.GetZones()) != 2 {
		t.Errorf("%v %v", region, err)
	}
	manager, err := cloudresourcemanager.NewService(c.ctx, c.options...)
	if err != nil {
		t.Fatal(err)
	}
	s.Deny("compute.disks.create")
	held, err := manager.Projects.TestIamPermissions("projects/"+c.project, &cloudresourcemanager.TestIamPermissionsRequest{
		Permissions: []string{"compute.instances.create", "compute.disks.create"}}).Do()
	if err != nil || !slices.Equal(held.Permissions, []string{"compute.instances.create"}) {
		t.Errorf("%v %v", held, err)
	}
}

func TestAServiceAccountsKeyFileGivesTokens(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	c := newClient(t, s)
	key := s.ServiceAccountKey()
	_, err := c.instances.Get(c.ctx, &computepb.GetInstanceRequest{Project: c.project, Zone: zone, Instance: "one"})
	if code, _ := reason(err); code != 401 {
		t.Errorf("without credentials: %v", err)
	}
	c.options = []option.ClientOption{option.WithEndpoint(s.URL()), option.WithAuthCredentialsJSON(option.ServiceAccount, key)}
	c.instances = open(c, compute.NewInstancesRESTClient)
	c.mustInsert(machine("one"))
	if c.get("one").GetStatus() != "RUNNING" {
		t.Error("not running")
	}
}
