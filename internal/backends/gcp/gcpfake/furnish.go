package gcpfake

import (
	"fmt"
	"strings"
)

// machine is a shape that every zone has, with the figures that Google publishes.
// https://cloud.google.com/compute/docs/general-purpose-machines
var machines = []struct {
	name        string
	cpus        int
	memoryMiB   int
	sharedCPU   bool
	description string
}{
	{"f1-micro", 1, 614, true, "1 vCPU (shared physical core) and 0.6 GB RAM"},
	{"e2-micro", 2, 1024, true, "Efficient Instance, 2 vCPU (1/8 shared physical core) and 1 GB RAM"},
	{"e2-small", 2, 2048, true, "Efficient Instance, 2 vCPU (1/4 shared physical core) and 2 GB RAM"},
	{"e2-medium", 2, 4096, true, "Efficient Instance, 2 vCPU (1/2 shared physical core) and 4 GB RAM"},
	{"e2-standard-2", 2, 8192, false, "Efficient Instance, 2 vCPUs, 8 GB RAM"},
	{"e2-standard-4", 4, 16384, false, "Efficient Instance, 4 vCPUs, 16 GB RAM"},
	{"n2-standard-2", 2, 8192, false, "2 vCPUs 8 GB RAM"},
}

var diskTypes = []string{"pd-standard", "pd-balanced", "pd-ssd"}

// Image is what an image is offered as.
type Image struct {
	Project string // default: the first project
	Name    string
	Family  string
	SizeGB  int // of the disk; default 10
	// GuestOSFeatures: "UEFI_COMPATIBLE", "GVNIC", …; default both.
	GuestOSFeatures []string
	Deprecated      string // "DEPRECATED", "OBSOLETE", "DELETED"
}

// furnish makes a project and what Google gives to everyone: zones, machine types, images, the
// network "default".
func (s *Server) furnish(project string) {
	s.AddProject(project)
	s.AddProject("debian-cloud")
	s.AddProject("ubuntu-os-cloud")
	s.AddImage(Image{Project: "debian-cloud", Name: "debian-13-trixie-v20261110", Family: "debian-13"})
	s.AddImage(Image{Project: "debian-cloud", Name: "debian-12-bookworm-v20261110", Family: "debian-12"})
	s.AddImage(Image{Project: "ubuntu-os-cloud", Name: "ubuntu-2404-noble-amd64-v20261101", Family: "ubuntu-2404-lts-amd64"})
}

// AddProject makes a project with the zones of the server.
func (s *Server) AddProject(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.projects[name] = true
	root := "projects/" + name
	network := s.add(root+"/global/networks/default", "network", object{"autoCreateSubnetworks": true, "mtu": 1460,
		"routingConfig": object{"routingMode": "REGIONAL"}, "subnetworks": []any{}})
	for _, zone := range s.options.Zones {
		region := regionOf(zone)
		rkey := root + "/regions/" + region
		if s.resources[rkey] == nil {
			s.add(rkey, "region", object{"status": "UP", "description": region, "zones": []any{}})
			subnet := s.add(rkey+"/subnetworks/default", "subnetwork", object{"network": selfBase + network.key, "purpose": "PRIVATE",
				"ipCidrRange": fmt.Sprintf("10.%d.0.0/20", 128+2*len(list(network.doc, "subnetworks"))), "stackType": "IPV4_ONLY",
				"gatewayAddress": fmt.Sprintf("10.%d.0.1", 128+2*len(list(network.doc, "subnetworks")))})
			network.doc["subnetworks"] = append(list(network.doc, "subnetworks"), any(selfBase+subnet.key))
		}
		r := s.resources[rkey]
		z := s.add(root+"/zones/"+zone, "zone", object{"status": "UP", "description": zone, "region": selfBase + rkey})
		r.doc["zones"] = append(list(r.doc, "zones"), any(selfBase+z.key))
		for _, m := range machines {
			s.add(z.key+"/machineTypes/"+m.name, "machineType", object{"guestCpus": m.cpus, "memoryMb": m.memoryMiB,
				"isSharedCpu": m.sharedCPU, "description": m.description, "maximumPersistentDisks": 128, "maximumPersistentDisksSizeGb": "263168"})
			s.resources[z.key+"/machineTypes/"+m.name].doc["zone"] = zone // a name here, not a link
		}
		for _, d := range diskTypes {
			s.add(z.key+"/diskTypes/"+d, "diskType", object{"defaultDiskSizeGb": "100", "validDiskSize": "10GB-65536GB"})
		}
	}
}

// AddImage makes an image, or replaces it.
func (s *Server) AddImage(i Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.Project == "" {
		i.Project = s.options.Project
	}
	if i.SizeGB == 0 {
		i.SizeGB = 10
	}
	if i.GuestOSFeatures == nil {
		i.GuestOSFeatures = []string{"UEFI_COMPATIBLE", "GVNIC"}
	}
	var features []any
	for _, f := range i.GuestOSFeatures {
		features = append(features, object{"type": f})
	}
	doc := object{"status": "READY", "diskSizeGb": fmt.Sprint(i.SizeGB), "sourceType": "RAW", "architecture": "X86_64", "guestOsFeatures": features}
	if i.Family != "" {
		doc["family"] = i.Family
	}
	if i.Deprecated != "" {
		doc["deprecated"] = object{"state": i.Deprecated}
	}
	s.add("projects/"+i.Project+"/global/images/"+i.Name, "image", doc)
}

// AddNetwork makes a network with a subnetwork of the same name in every region: one with IPv6
// where stackType is "IPV4_IPV6", external where access is "EXTERNAL".
func (s *Server) AddNetwork(name, stackType, access string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	root := "projects/" + s.options.Project
	network := s.add(root+"/global/networks/"+name, "network", object{"autoCreateSubnetworks": false, "mtu": 1460,
		"routingConfig": object{"routingMode": "REGIONAL"}, "subnetworks": []any{}})
	for i, r := range s.in(s.options.Project, "", "regions") {
		doc := object{"network": selfBase + network.key, "purpose": "PRIVATE", "ipCidrRange": fmt.Sprintf("10.%d.0.0/20", 10+i),
			"gatewayAddress": fmt.Sprintf("10.%d.0.1", 10+i), "stackType": stackType}
		if stackType == "IPV4_IPV6" {
			doc["ipv6AccessType"] = access
			doc["ipv6CidrRange"] = fmt.Sprintf("2600:1900:4000:%x::/64", 0xa00+i)
		}
		subnet := s.add(r.key+"/subnetworks/"+name, "subnetwork", doc)
		network.doc["subnetworks"] = append(list(network.doc, "subnetworks"), any(selfBase+subnet.key))
	}
}

func regionOf(zone string) string { return zone[:strings.LastIndex(zone, "-")] }
