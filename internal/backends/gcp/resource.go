package gcp

import (
	"maps"
	"slices"
	"strconv"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends"
)

// resource is the instance that is asked for. ip is a static address, empty without one.
func (b *Backend) resource(j *job, m backends.Mark, zone, ip string) *computepb.Instance {
	labels := b.labels(m)
	labels[labelPort] = strconv.Itoa(j.port)
	labels[labelGeneration] = strconv.FormatUint(j.Generation, 10)
	labels[labelDesired] = string(j.Desired)
	i := &computepb.Instance{
		Name:              proto.String(j.name()),
		Description:       proto.String("The forward proxy " + j.Proxy + ", kept by proxyfleet."),
		MachineType:       proto.String("zones/" + zone + "/machineTypes/" + j.shape.Name),
		Labels:            labels,
		Tags:              &computepb.Tags{Items: slices.Concat([]string{j.name()}, b.conf.Tags)},
		Metadata:          &computepb.Metadata{Items: j.metadata},
		Disks:             []*computepb.AttachedDisk{b.disk(j, m, zone)},
		NetworkInterfaces: []*computepb.NetworkInterface{b.nic(j, zone, ip)},
		Scheduling:        b.scheduling(j.shape.Spot),
	}
	if *b.conf.ShieldedVM && j.image.Firmware != "bios" {
		i.ShieldedInstanceConfig = &computepb.ShieldedInstanceConfig{
			EnableSecureBoot: proto.Bool(true), EnableVtpm: proto.Bool(true), EnableIntegrityMonitoring: proto.Bool(true)}
	}
	if sa := b.conf.ServiceAccount; sa.Email != "" {
		i.ServiceAccounts = []*computepb.ServiceAccount{{Email: proto.String(sa.Email), Scopes: sa.Scopes}}
	}
	return i
}

// labels are the operator's and those of the mark.
func (b *Backend) labels(m backends.Mark) map[string]string {
	out := map[string]string{}
	for k, v := range b.conf.Labels {
		out[k] = label(v)
	}
	maps.Copy(out, markLabels(m))
	return out
}

func (b *Backend) disk(j *job, m backends.Mark, zone string) *computepb.AttachedDisk {
	from := &computepb.AttachedDiskInitializeParams{
		SourceImage: proto.String(b.imagePath(j.image)), DiskType: proto.String("zones/" + zone + "/diskTypes/" + b.conf.DiskType), Labels: b.labels(m),
	}
	if j.DiskGiB > 0 {
		from.DiskSizeGb = proto.Int64(int64(j.DiskGiB))
	}
	return &computepb.AttachedDisk{Boot: proto.Bool(true), AutoDelete: proto.Bool(true), InitializeParams: from}
}

func (b *Backend) nic(j *job, zone, ip string) *computepb.NetworkInterface {
	n := &computepb.NetworkInterface{Network: proto.String(b.networkPath())}
	if b.conf.Subnetwork != "" || b.networkProject() != b.conf.Project { // of a shared network none is found by itself
		n.Subnetwork = proto.String(b.subnetPath(regionOf(zone)))
	}
	if b.conf.IPv6 {
		n.StackType = proto.String("IPV4_IPV6")
	}
	if !j.external {
		if ip != "" {
			n.NetworkIP = &ip
		}
		return n
	}
	out := &computepb.AccessConfig{Name: proto.String("External NAT"), Type: proto.String("ONE_TO_ONE_NAT")}
	if ip != "" {
		out.NatIP = &ip
	}
	n.AccessConfigs = []*computepb.AccessConfig{out}
	if b.conf.IPv6 {
		n.Ipv6AccessConfigs = []*computepb.AccessConfig{{Name: proto.String("External IPv6"), Type: proto.String("DIRECT_IPV6"), NetworkTier: proto.String("PREMIUM")}}
	}
	return n
}

// scheduling of a spot instance says what Google does when it takes it away: it stops it, so that
// the agent sees what happened, or removes it, so that it is not paid for while the agent is away.
func (b *Backend) scheduling(spot bool) *computepb.Scheduling {
	if !spot {
		return &computepb.Scheduling{ProvisioningModel: proto.String("STANDARD"), AutomaticRestart: proto.Bool(true), OnHostMaintenance: proto.String("MIGRATE")}
	}
	then := "STOP"
	if b.conf.Preemption == preemptDelete {
		then = "DELETE"
	}
	return &computepb.Scheduling{ProvisioningModel: proto.String(modelSpot), AutomaticRestart: proto.Bool(false),
		OnHostMaintenance: proto.String("TERMINATE"), InstanceTerminationAction: &then}
}

const modelSpot = "SPOT"

func isSpot(i *computepb.Instance) bool {
	return i.GetScheduling().GetProvisioningModel() == modelSpot || i.GetScheduling().GetPreemptible()
}
