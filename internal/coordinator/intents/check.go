package intents

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"proxyfleet/internal/bus"
)

const (
	maxCredential   = 255      // bytes; basic authentication has no bound of its own, header lines do
	maxImage        = 2048     // characters of an image's URL
	maxDiskGiB      = 64 << 10 // 64 TiB, beyond every backend
	maxNetworks     = 1000     // allowFrom entries: they become one access list
	maxZones        = 64       // zones
	maxPorts        = 64       // connectPorts
	maxLabel        = 63       // RFC 1123, a DNS label
	maxAntiAffinity = 16       // names or beginnings of names
)

func check(name string, doc bus.Intent) *Invalid {
	if bad := Label("name", doc.Name, bus.MaxProxyName); bad != nil {
		return bad
	}
	if doc.Name != name {
		return invalid("name", "is %q, but the document was published for %q", doc.Name, name)
	}
	if doc.Type != "" && doc.Type != bus.TypeIntent {
		return invalid("type", "is not %s", bus.TypeIntent)
	}
	switch doc.Desired {
	case bus.DesiredAbsent:
		return nil // what is to be removed needs no valid spec
	case bus.DesiredRunning, bus.DesiredStopped:
		return Spec("spec", doc.Spec)
	}
	return invalid("desired", "is none of running, stopped, absent")
}

// Spec checks a spec that stands at path.
func Spec(path string, s bus.Spec) *Invalid {
	if s.Port < 0 || s.Port > 65535 {
		return invalid(path+".port", "is not between 0 and 65535")
	}
	for _, f := range []func(string, bus.Spec) *Invalid{checkAuth, checkAllowFrom, checkMachine, checkCloud, checkEgress, Placement, checkCloudInit} {
		if bad := f(path, s); bad != nil {
			return bad
		}
	}
	if s.Auth == nil && len(s.AllowFrom) == 0 {
		return &Invalid{CodeMissing, path, "a proxy needs auth (credentials), allowFrom (client networks) or both; it is never open to the world"}
	}
	if s.OnHostLoss != "" && s.OnHostLoss != "replace" && s.OnHostLoss != "wait" {
		return invalid(path+".onHostLoss", "is neither replace nor wait")
	}
	return nil
}

func checkAuth(path string, s bus.Spec) *Invalid {
	if s.Auth == nil {
		return nil
	}
	if bad := checkCredential(path+".auth.username", s.Auth.Username); bad != nil {
		return bad
	}
	if bad := checkCredential(path+".auth.password", s.Auth.Password.Reveal()); bad != nil {
		return bad
	}
	name := s.Auth.Username
	if strings.Contains(name, ":") {
		return invalid(path+".auth.username", "has a colon, which ends the name in basic authentication (RFC 7617)")
	}
	if strings.HasPrefix(name, "#") || strings.TrimSpace(name) != name {
		return invalid(path+".auth.username", "begins with # or a space, or ends with a space, which Squid's password file cannot hold")
	}
	return nil
}

func checkCredential(path, v string) *Invalid {
	switch {
	case v == "":
		return &Invalid{CodeMissing, path, "must not be empty"}
	case len(v) > maxCredential:
		return invalid(path, "is longer than %d characters", maxCredential)
	case strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }):
		return invalid(path, "has a character that is not printable ASCII")
	}
	return nil
}

func checkAllowFrom(path string, s bus.Spec) *Invalid {
	if len(s.AllowFrom) > maxNetworks {
		return invalid(path+".allowFrom", "has more than %d networks", maxNetworks)
	}
	for i, text := range s.AllowFrom {
		at := fmt.Sprintf("%s.allowFrom[%d]", path, i)
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return invalid(at, "is not a network in CIDR form, as 10.0.0.0/8")
		}
		if p != p.Masked() {
			return invalid(at, "has host bits set; write %s", p.Masked())
		}
	}
	return nil
}

func checkMachine(path string, s bus.Spec) *Invalid {
	if bad := checkImage(path+".image", s.Image); bad != nil {
		return bad
	}
	if s.MachineType != "" {
		if bad := Label(path+".machineType", s.MachineType, maxLabel); bad != nil {
			return bad
		}
	}
	if s.DiskGiB < 0 || s.DiskGiB > maxDiskGiB {
		return invalid(path+".diskGiB", "is not between 0 and %d", maxDiskGiB)
	}
	return nil
}

// checkCloud checks what only hosts in a cloud heed.
func checkCloud(path string, s bus.Spec) *Invalid {
	if len(s.Zones) > maxZones {
		return invalid(path+".zones", "has more than %d zones", maxZones)
	}
	for i, z := range s.Zones {
		if bad := Label(fmt.Sprintf("%s.zones[%d]", path, i), z, maxLabel); bad != nil {
			return bad
		}
	}
	if s.Address != "" && s.Address != "internal" && s.Address != "external" {
		return invalid(path+".address", "is neither internal nor external")
	}
	return nil
}

func checkImage(path, image string) *Invalid {
	if image == "" {
		return nil
	}
	if !strings.Contains(image, "://") {
		return Label(path, image, maxLabel)
	}
	u, err := url.Parse(image)
	if err != nil || len(image) > maxImage || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return invalid(path, "is neither a key of a host's images nor an http(s) URL")
	}
	if u.User != nil {
		return invalid(path, "carries credentials, which every reader of the inventory would see")
	}
	return nil
}

func checkEgress(path string, s bus.Spec) *Invalid {
	if s.Egress == nil {
		return nil
	}
	if len(s.Egress.ConnectPorts) > maxPorts {
		return invalid(path+".egress.connectPorts", "has more than %d ports", maxPorts)
	}
	for i, p := range s.Egress.ConnectPorts {
		if p < 1 || p > 65535 {
			return invalid(fmt.Sprintf("%s.egress.connectPorts[%d]", path, i), "is not between 1 and 65535")
		}
	}
	return nil
}

// Placement checks the placement of a spec that stands at path.
func Placement(path string, s bus.Spec) *Invalid {
	p := s.Placement
	for _, f := range []struct{ field, value string }{{"host", p.Host}, {"backend", p.Backend}, {"zone", p.Zone}} {
		if f.value == "" {
			continue
		}
		if bad := Label(path+".placement."+f.field, f.value, maxLabel); bad != nil {
			return bad
		}
	}
	if bad := checkLabels(path+".placement.labels", p.Labels); bad != nil {
		return bad
	}
	if p.Prefer.Zone != "" {
		if bad := Label(path+".placement.prefer.zone", p.Prefer.Zone, maxLabel); bad != nil {
			return bad
		}
	}
	if bad := checkLabels(path+".placement.prefer.labels", p.Prefer.Labels); bad != nil {
		return bad
	}
	return checkAntiAffinity(path+".placement.antiAffinity", p.AntiAffinity)
}

func checkLabels(path string, labels map[string]string) *Invalid {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k == "" || len(k) > maxLabel || len(labels[k]) > maxLabel {
			return invalid(path, "has a key or value that is empty or longer than %d characters", maxLabel)
		}
	}
	return nil
}

func checkAntiAffinity(path string, names []string) *Invalid {
	if len(names) > maxAntiAffinity {
		return &Invalid{CodeTooLarge, path, fmt.Sprintf("has %d names; at most %d are allowed", len(names), maxAntiAffinity)}
	}
	for i, name := range names {
		prefix, _ := strings.CutSuffix(name, "*")
		// What ends in a hyphen is no name, but it may begin one.
		if bad := Label(fmt.Sprintf("%s[%d]", path, i), strings.TrimRight(prefix, "-"), bus.MaxProxyName); bad != nil {
			return bad
		}
	}
	return nil
}

func checkCloudInit(path string, s bus.Spec) *Invalid {
	if s.CloudInit != "" && s.CloudInitBase64 != "" {
		return invalid(path+".cloudInitBase64", "stands beside cloudInit; only one of both may be given")
	}
	field, size := path+".cloudInit", len(s.CloudInit)
	if s.CloudInitBase64 != "" {
		raw, err := base64.StdEncoding.DecodeString(s.CloudInitBase64)
		if err != nil {
			return invalid(path+".cloudInitBase64", "is not base64 (RFC 4648, with padding)")
		}
		field, size = path+".cloudInitBase64", len(raw)
	}
	if size > bus.MaxUserDataBytes {
		return &Invalid{CodeTooLarge, field, fmt.Sprintf("has %d bytes; at most %d are allowed", size, bus.MaxUserDataBytes)}
	}
	return nil
}

// Label checks that v, which stands at path, is a DNS label (RFC 1123) of at most max
// characters: lower-case letters, digits and hyphens, none at either end.
func Label(path, v string, max int) *Invalid {
	switch {
	case v == "":
		return &Invalid{CodeMissing, path, "must not be empty"}
	case len(v) > max:
		return invalid(path, "is longer than %d characters", max)
	case v[0] == '-' || v[len(v)-1] == '-' || strings.ContainsFunc(v, notLabel):
		return invalid(path, "is not a DNS label: lower-case letters, digits and inner hyphens")
	}
	return nil
}

func notLabel(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
}

func invalid(field, format string, args ...any) *Invalid {
	return &Invalid{CodeInvalid, field, fmt.Sprintf(format, args...)}
}
