package gcpfake_test

import (
	"context"
	"errors"
	"testing"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

const zone = "us-central1-a"

// client is what the SDK makes of one endpoint; a client that is not used costs nothing.
type client struct {
	t         *testing.T
	s         *gcpfake.Server
	ctx       context.Context
	project   string
	instances *compute.InstancesClient
	options   []option.ClientOption
}

func newClient(t *testing.T, s *gcpfake.Server) *client {
	t.Helper()
	c := &client{t: t, s: s, ctx: t.Context(), project: s.Project(), options: []option.ClientOption{option.WithEndpoint(s.URL()), option.WithoutAuthentication()}}
	c.instances = open(c, compute.NewInstancesRESTClient)
	return c
}

func open[T interface{ Close() error }](c *client, dial func(context.Context, ...option.ClientOption) (T, error)) T {
	c.t.Helper()
	made, err := dial(c.ctx, c.options...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = made.Close() })
	return made
}

// machine is a request that the real service takes.
func machine(name string) *computepb.Instance {
	return &computepb.Instance{
		Name:        proto.String(name),
		MachineType: proto.String("zones/" + zone + "/machineTypes/e2-small"),
		Disks: []*computepb.AttachedDisk{{
			Boot: proto.Bool(true), AutoDelete: proto.Bool(true),
			InitializeParams: &computepb.AttachedDiskInitializeParams{
				SourceImage: proto.String("projects/debian-cloud/global/images/family/debian-13"),
				DiskSizeGb:  proto.Int64(10),
				DiskType:    proto.String("zones/" + zone + "/diskTypes/pd-balanced"),
			},
		}},
		NetworkInterfaces: []*computepb.NetworkInterface{{
			AccessConfigs: []*computepb.AccessConfig{{Type: proto.String("ONE_TO_ONE_NAT"), Name: proto.String("nat")}},
		}},
		Labels:   map[string]string{"fleet": "yes"},
		Metadata: &computepb.Metadata{Items: []*computepb.Items{{Key: proto.String("user-data"), Value: proto.String("#cloud-config\n")}}},
		Tags:     &computepb.Tags{Items: []string{"proxy"}},
	}
}

// insert asks for a machine and returns the error of the call or of its operation.
func (c *client) insert(i *computepb.Instance) error {
	op, err := c.instances.Insert(c.ctx, &computepb.InsertInstanceRequest{Project: c.project, Zone: zone, InstanceResource: i})
	if err != nil {
		return err
	}
	return op.Wait(c.ctx)
}

func (c *client) mustInsert(i *computepb.Instance) {
	c.t.Helper()
	if err := c.insert(i); err != nil {
		c.t.Fatalf("insert: %v", err)
	}
}

func (c *client) get(name string) *computepb.Instance {
	c.t.Helper()
	i, err := c.instances.Get(c.ctx, &computepb.GetInstanceRequest{Project: c.project, Zone: zone, Instance: name})
	if err != nil {
		c.t.Fatalf("get %s: %v", name, err)
	}
	return i
}

// reason is the HTTP status of an error and Google's word for it.
func reason(err error) (code int, word string) {
	var g *googleapi.Error
	if !errors.As(err, &g) {
		return 0, ""
	}
	if len(g.Errors) > 0 {
		word = g.Errors[0].Reason
	}
	return g.Code, word
}
