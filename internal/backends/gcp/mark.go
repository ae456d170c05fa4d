package gcp

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// Labels of instances and disks. The last three are of instances only and change.
const (
	labelPrefix       = "proxyfleet-"
	labelOwner        = labelPrefix + "owner"
	labelInstallation = labelPrefix + "installation"
	labelHost         = labelPrefix + "host"
	labelProxy        = labelPrefix + "proxy"
	labelUID          = labelPrefix + "uid"
	labelCreated      = labelPrefix + "created" // seconds since 1970
	labelPort         = labelPrefix + "port"
	labelGeneration   = labelPrefix + "generation"
	labelDesired      = labelPrefix + "desired"
)

// isOurs reports the key of a label that is not the operator's to set.
func isOurs(key string) bool { return strings.HasPrefix(key, labelPrefix) }

// ownerOf is what one label filter finds everything of an installation and host id by.
func ownerOf(o backends.Owner) string { return "pf-" + hashed(o.Installation+"\x00"+o.HostID, 10) }

// hashed is n bytes of a hash, in lower-case base32.
func hashed(s string, n int) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:n]))
}

var labelValue = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)

// label is s as the value of a label, which has lower-case letters, digits, "_" and "-", and 63
// characters at most. What does not fit is made to, and gets a hash of what it was, so that
// different texts stay different and the same text is always the same.
// https://cloud.google.com/compute/docs/labeling-resources#requirements
func label(s string) string {
	if labelValue.MatchString(s) {
		return s
	}
	const suffix = 8 // characters of a hash of five bytes
	fits := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	return fits[:min(len(fits), 63-1-suffix)] + "-" + hashed(s, 5)
}

// markLabels are those of m, which instances and disks carry alike.
func markLabels(m backends.Mark) map[string]string {
	return map[string]string{
		labelOwner:        ownerOf(backends.Owner{Installation: m.Installation, HostID: m.HostID}),
		labelInstallation: label(m.Installation),
		labelHost:         label(m.HostID),
		labelProxy:        label(m.Proxy),
		labelUID:          label(m.UID),
		labelCreated:      strconv.FormatInt(m.CreatedAt.Unix(), 10),
	}
}

// readLabels is the mark that labels say; ok is false without one. An id that had to be made to
// fit is given back as o has it, if it is o's.
func readLabels(labels map[string]string, o backends.Owner) (m backends.Mark, ok bool) {
	back := func(value, own string) string {
		if value == label(own) {
			return own
		}
		return value
	}
	m = backends.Mark{Installation: back(labels[labelInstallation], o.Installation), HostID: back(labels[labelHost], o.HostID),
		Proxy: labels[labelProxy], UID: labels[labelUID]}
	if m.Installation == "" || m.HostID == "" || (backends.Ref{Proxy: m.Proxy, UID: m.UID}).Validate() != nil {
		return backends.Mark{}, false
	}
	m.CreatedAt = seconds(labels[labelCreated])
	return m, true
}

func seconds(text string) time.Time {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// markHead begins the description of what carries its mark there.
const markHead = "A part of a forward proxy that proxyfleet keeps: "

// describe is a mark as a description.
func describe(m backends.Mark) string {
	return markHead + "installation=" + m.Installation + " host=" + m.HostID + " proxy=" + m.Proxy + " uid=" + m.UID +
		" created=" + strconv.FormatInt(m.CreatedAt.Unix(), 10)
}

// readDescription is the mark that a description says; ok is false without one.
func readDescription(text string) (m backends.Mark, ok bool) {
	rest, ok := strings.CutPrefix(text, markHead)
	if !ok {
		return backends.Mark{}, false
	}
	fields := map[string]string{}
	for _, f := range strings.Fields(rest) {
		k, v, _ := strings.Cut(f, "=")
		fields[k] = v
	}
	m = backends.Mark{Installation: fields["installation"], HostID: fields["host"], Proxy: fields["proxy"], UID: fields["uid"], CreatedAt: seconds(fields["created"])}
	if m.Installation == "" || m.HostID == "" || (backends.Ref{Proxy: m.Proxy, UID: m.UID}).Validate() != nil {
		return backends.Mark{}, false
	}
	return m, true
}

// is reports whether m is the mark of ref under o.
func is(m backends.Mark, ref backends.Ref, o backends.Owner) bool {
	return m.Owned(o) && m.Proxy == ref.Proxy && m.UID == ref.UID
}

// zoneOf is the last part of a resource's zone or region, which the API gives as a URL.
func zoneOf(link string) string { return link[strings.LastIndex(link, "/")+1:] }

// regionOf is the region of a zone: "europe-west1-b" is in "europe-west1".
func regionOf(zone string) string { return zone[:strings.LastIndex(zone, "-")] }

// portOf is where a proxy listens.
func portOf(i *computepb.Instance) int {
	n, _ := strconv.Atoi(i.GetLabels()[labelPort])
	return n
}

func generationOf(i *computepb.Instance) uint64 {
	n, _ := strconv.ParseUint(i.GetLabels()[labelGeneration], 10, 64)
	return n
}
