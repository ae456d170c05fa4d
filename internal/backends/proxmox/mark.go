package proxmox

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/told"
)

// mark is what a VM's description says: whose it is and what it was made from.
type mark struct {
	backends.Mark
	// Generation is 0 until the VM is ready for its first start.
	Generation uint64
	Port       int
	Spec       told.Parts
}

const (
	// markHead stands above the lines, for people who look at the VM's notes.
	markHead = "A forward proxy that proxyfleet keeps. These lines say whose it is; do not change them."
	// markLine begins each line. Four spaces keep PVE's Markdown from joining the lines.
	markLine = "    "
	markKey  = "proxyfleet."
	// generalTag is for people who filter by tags.
	generalTag = "proxyfleet"
)

// ownerTag is on every VM of one installation and host id, so that a listing needs to read
// no one else's configurations. It proves nothing.
func ownerTag(o backends.Owner) string {
	sum := sha256.Sum256([]byte(o.Installation + "\x00" + o.HostID))
	return "pf-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

// isOwnerTag reports the tag of this or another agent.
func isOwnerTag(tag string) bool { return strings.HasPrefix(tag, "pf-") }

// describe writes m into a description, and keeps what people wrote into it.
func describe(m mark, before string) string {
	var b strings.Builder
	b.WriteString(markHead + "\n\n")
	line := func(key, value string) { b.WriteString(markLine + markKey + key + ": " + value + "\n") }
	line("installation", m.Installation)
	line("host", m.HostID)
	line("proxy", m.Proxy)
	line("uid", m.UID)
	line("created", m.CreatedAt.UTC().Format(time.RFC3339))
	line("generation", strconv.FormatUint(m.Generation, 10))
	line("port", strconv.Itoa(m.Port))
	line("spec", m.Spec.String())
	var theirs []string
	for _, l := range strings.Split(strings.ReplaceAll(before, "\r\n", "\n"), "\n") {
		if strings.HasPrefix(strings.TrimSpace(l), markKey) || strings.TrimSpace(l) == markHead {
			continue
		}
		theirs = append(theirs, l)
	}
	if rest := strings.Trim(strings.Join(theirs, "\n"), "\n"); rest != "" {
		b.WriteString("\n" + rest)
	}
	return strings.TrimRight(b.String(), "\n") // PVE drops line feeds at the end
}

// parseMark reads a description. ok is false without a mark, and for one that is damaged.
func parseMark(description string) (m mark, ok bool) {
	fields := map[string]string{}
	for l := range strings.Lines(description) {
		rest, found := strings.CutPrefix(strings.TrimSpace(l), markKey)
		if !found {
			continue
		}
		key, value, _ := strings.Cut(rest, ":")
		if _, twice := fields[key]; twice {
			return mark{}, false
		}
		fields[key] = strings.TrimSpace(value)
	}
	m.Installation, m.HostID, m.Proxy, m.UID = fields["installation"], fields["host"], fields["proxy"], fields["uid"]
	if m.Installation == "" || m.HostID == "" || (backends.Ref{Proxy: m.Proxy, UID: m.UID}).Validate() != nil {
		return mark{}, false
	}
	if at, err := time.Parse(time.RFC3339, fields["created"]); err == nil {
		m.CreatedAt = at.UTC().Truncate(time.Second)
	}
	var err error
	if m.Generation, err = strconv.ParseUint(fields["generation"], 10, 64); err != nil {
		return mark{}, false
	}
	if m.Port, err = strconv.Atoi(fields["port"]); err != nil || m.Port < 1 || m.Port > 65535 {
		return mark{}, false
	}
	m.Spec = told.Parse(fields["spec"])
	return m, true
}

// is reports whether m is the mark of ref under this owner.
func (m mark) is(ref backends.Ref, o backends.Owner) bool {
	return m.Owned(o) && m.Proxy == ref.Proxy && m.UID == ref.UID
}

func (m mark) String() string {
	return fmt.Sprintf("installation %s, host %s, proxy %s, uid %s", m.Installation, m.HostID, m.Proxy, m.UID)
}
