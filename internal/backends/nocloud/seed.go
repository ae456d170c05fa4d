package nocloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Label is the volume label by which cloud-init recognises the seed, on whatever kind of
// block device it sits.
const Label = "cidata"

// EmptyUserData stands in for user-data that is empty. cloud-init takes an empty file as
// well, but warns about it in the guest.
const EmptyUserData = "#cloud-config\n{}\n"

// Seed is what a guest is told at its boots.
type Seed struct {
	// InstanceID is stable over the life of an instance: cloud-init runs its once-per-instance
	// parts again when it changes. The uid of a binding.
	InstanceID string
	// Hostname is a DNS label.
	Hostname string
	// UserData is passed byte for byte; empty is [EmptyUserData].
	UserData []byte
	// VendorData is a document for cloud-init, usually from [VendorData]. Empty leaves it out.
	VendorData []byte
	// MAC is the address of the one network card, in lower case with colons.
	MAC string
	// IPv6 has the guest take IPv6 addresses too, by router advertisements and DHCPv6.
	IPv6 bool
}

// Build returns the ISO image of s. Its size is a multiple of 2,048 bytes.
func Build(s Seed) ([]byte, error) {
	if s.InstanceID == "" || s.MAC == "" {
		return nil, errors.New("nocloud: a seed needs an instance id and a MAC address")
	}
	user := s.UserData
	if len(user) == 0 {
		user = []byte(EmptyUserData)
	}
	files := []file{
		{"meta-data", metaData(s.InstanceID, s.Hostname)},
		{"network-config", networkConfig(s.MAC, s.IPv6)},
		{"user-data", user},
	}
	if len(s.VendorData) > 0 {
		files = append(files, file{"vendor-data", s.VendorData})
	}
	return image(Label, files)
}

// metaData is JSON, which is YAML as well and needs no quoting rules of our own.
func metaData(id, hostname string) []byte {
	b, err := json.Marshal(struct {
		InstanceID    string `json:"instance-id"`
		LocalHostname string `json:"local-hostname,omitempty"`
	}{id, hostname})
	if err != nil {
		panic(err) // two strings always marshal
	}
	return append(b, '\n')
}

// networkConfig asks for DHCP on the card with this MAC. The lease is asked for by MAC: by
// default a client identifies itself by its machine-id, and guests cloned from one image
// with one machine-id would be given one and the same lease.
func networkConfig(mac string, ipv6 bool) []byte {
	text := fmt.Appendf(nil, `version: 2
ethernets:
  proxy:
    match:
      macaddress: %q
    dhcp4: true
    dhcp-identifier: mac
`, strings.ToLower(mac))
	if ipv6 {
		text = append(text, "    dhcp6: true\n    accept-ra: true\n"...)
	}
	return text
}
