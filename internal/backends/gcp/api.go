package gcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	compute "cloud.google.com/go/compute/apiv1"
	"google.golang.org/api/cloudresourcemanager/v3"
	"google.golang.org/api/option"
)

// api are Google's clients for one project. Their errors go through [heard].
type api struct {
	project string
	calls   *calls
	idle    func() // closes connections that wait

	instances    *compute.InstancesClient
	disks        *compute.DisksClient
	addresses    *compute.AddressesClient
	firewalls    *compute.FirewallsClient
	zoneOps      *compute.ZoneOperationsClient
	regionOps    *compute.RegionOperationsClient
	globalOps    *compute.GlobalOperationsClient
	regions      *compute.RegionsClient
	zones        *compute.ZonesClient
	projects     *compute.ProjectsClient
	images       *compute.ImagesClient
	machineTypes *compute.MachineTypesClient
	networks     *compute.NetworksClient
	subnetworks  *compute.SubnetworksClient
	manager      *cloudresourcemanager.Service
}

// newAPI makes the clients; no request is made.
func newAPI(conf Config, base http.RoundTripper, log *slog.Logger) (*api, error) {
	if base == nil {
		base = http.DefaultTransport.(*http.Transport).Clone()
	}
	// Google's libraries log tokens and user-data, and do so whenever an environment variable
	// says so, unless they are given a logger.
	mute := slog.New(slog.DiscardHandler)
	who := &identity{conf: conf, base: base, log: mute, timeout: conf.RequestTimeout}
	way := &transport{who: who, base: base, log: log, timeout: conf.RequestTimeout}
	client := &http.Client{Transport: way}
	a := &api{project: conf.Project, calls: &way.calls, idle: func() {
		if c, ok := base.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}}
	ctx := context.Background() // for nothing, with a client that is given
	opts := []option.ClientOption{option.WithHTTPClient(client), option.WithLogger(mute), option.WithEndpoint(conf.Endpoints.Compute)}
	err := errors.Join(
		open(ctx, &a.instances, compute.NewInstancesRESTClient, opts),
		open(ctx, &a.disks, compute.NewDisksRESTClient, opts),
		open(ctx, &a.addresses, compute.NewAddressesRESTClient, opts),
		open(ctx, &a.firewalls, compute.NewFirewallsRESTClient, opts),
		open(ctx, &a.zoneOps, compute.NewZoneOperationsRESTClient, opts),
		open(ctx, &a.regionOps, compute.NewRegionOperationsRESTClient, opts),
		open(ctx, &a.globalOps, compute.NewGlobalOperationsRESTClient, opts),
		open(ctx, &a.regions, compute.NewRegionsRESTClient, opts),
		open(ctx, &a.zones, compute.NewZonesRESTClient, opts),
		open(ctx, &a.projects, compute.NewProjectsRESTClient, opts),
		open(ctx, &a.images, compute.NewImagesRESTClient, opts),
		open(ctx, &a.machineTypes, compute.NewMachineTypesRESTClient, opts),
		open(ctx, &a.networks, compute.NewNetworksRESTClient, opts),
		open(ctx, &a.subnetworks, compute.NewSubnetworksRESTClient, opts),
	)
	if err != nil {
		return nil, fmt.Errorf("open clients: %w", err)
	}
	a.stopRetries()
	a.manager, err = cloudresourcemanager.NewService(ctx, option.WithHTTPClient(client), option.WithLogger(mute), option.WithEndpoint(conf.Endpoints.ResourceManager))
	if err != nil {
		return nil, fmt.Errorf("open clients: %w", err)
	}
	return a, nil
}

func open[C any](ctx context.Context, to *C, with func(context.Context, ...option.ClientOption) (C, error), opts []option.ClientOption) (err error) {
	*to, err = with(ctx, opts...)
	return err
}

// stopRetries empties the clients' call options: by default reads are repeated for ten minutes.
func (a *api) stopRetries() {
	*a.instances.CallOptions = compute.InstancesCallOptions{}
	*a.disks.CallOptions = compute.DisksCallOptions{}
	*a.addresses.CallOptions = compute.AddressesCallOptions{}
	*a.firewalls.CallOptions = compute.FirewallsCallOptions{}
	*a.zoneOps.CallOptions = compute.ZoneOperationsCallOptions{}
	*a.regionOps.CallOptions = compute.RegionOperationsCallOptions{}
	*a.globalOps.CallOptions = compute.GlobalOperationsCallOptions{}
	*a.regions.CallOptions = compute.RegionsCallOptions{}
	*a.zones.CallOptions = compute.ZonesCallOptions{}
	*a.projects.CallOptions = compute.ProjectsCallOptions{}
	*a.images.CallOptions = compute.ImagesCallOptions{}
	*a.machineTypes.CallOptions = compute.MachineTypesCallOptions{}
	*a.networks.CallOptions = compute.NetworksCallOptions{}
	*a.subnetworks.CallOptions = compute.SubnetworksCallOptions{}
}

// close ends connections. The clients' own Close takes their transport away under calls that run
// (compute/apiv1 1.75.0), so it is not called.
func (a *api) close() { a.idle() }
