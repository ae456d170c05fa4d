package libvirt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"strconv"
	"time"

	"proxyfleet/internal/backends"
)

// The mark's place in a domain's <metadata>.
const (
	markNamespace = "https://proxyfleet.io/xmlns/libvirt/1"
	markPrefix    = "proxyfleet"
	markElement   = "instance"
)

// ownerTag stands in names of what has to be known as an owner's before anything is written
// into it. It is 8 hex digits of a hash.
func ownerTag(o backends.Owner) string {
	sum := sha256.Sum256([]byte(o.Installation + "\x00" + o.HostID))
	return hex.EncodeToString(sum[:4])
}

// domainMark is what a domain carries of ours.
type domainMark struct {
	backends.Mark
	Generation uint64
	Port       int
}

// markXML is the element as written. It is read back by its local names only: some
// libvirt versions return it without its namespace declaration.
type markXML struct {
	XMLName      xml.Name
	Installation string `xml:"installation,attr"`
	HostID       string `xml:"hostId,attr"`
	Proxy        string `xml:"proxy,attr"`
	UID          string `xml:"uid,attr"`
	CreatedAt    string `xml:"createdAt,attr"`
	Generation   string `xml:"generation,attr"`
	Port         string `xml:"port,attr"`
}

// element renders the mark for <metadata> and DomainSetMetadata.
func (m domainMark) element() string {
	b, err := xml.Marshal(markXML{
		XMLName:      xml.Name{Space: markNamespace, Local: markElement},
		Installation: m.Installation, HostID: m.HostID, Proxy: m.Proxy, UID: m.UID,
		CreatedAt:  m.CreatedAt.UTC().Format(time.RFC3339),
		Generation: strconv.FormatUint(m.Generation, 10),
		Port:       strconv.Itoa(m.Port),
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}

// parseMark reads the element. A time that cannot be read is zero; anything else that
// cannot be read is an error, because a mark decides over deletion.
func parseMark(text string) (domainMark, error) {
	var x markXML
	if err := xml.Unmarshal([]byte(text), &x); err != nil {
		return domainMark{}, err
	}
	m := domainMark{Mark: backends.Mark{Installation: x.Installation, HostID: x.HostID, Proxy: x.Proxy, UID: x.UID}}
	if x.XMLName.Local != markElement || m.Installation == "" || m.HostID == "" || m.Proxy == "" || m.UID == "" {
		return domainMark{}, errors.New("the mark is not whole")
	}
	var err error
	if m.Generation, err = strconv.ParseUint(x.Generation, 10, 64); err != nil {
		return domainMark{}, err
	}
	if m.Port, err = strconv.Atoi(x.Port); err != nil {
		return domainMark{}, err
	}
	if t, err := time.Parse(time.RFC3339, x.CreatedAt); err == nil {
		m.CreatedAt = t.UTC()
	}
	return m, nil
}
