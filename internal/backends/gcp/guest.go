package gcp

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"regexp"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/nocloud"
	"proxyfleet/internal/backends/squid"
)

// Keys of an instance's metadata. The first three are read by cloud-init
// (https://cloudinit.readthedocs.io/en/latest/reference/datasources/gce.html) and Google's guest
// agent, the last is ours.
const (
	keyUserData = "user-data"
	keyEncoding = "user-data-encoding"
	keyStartup  = "startup-script"
	keyOSLogin  = "enable-oslogin"
	keyTold     = "proxyfleet-told"
)

// maxValue is how long one value of the metadata may be.
// https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations
const maxValue = 256 << 10

// metadata is what the guest of a job is told. The bootstrap is a part of its own in user-data,
// since cloud-init reads no vendor-data from GCE; where the image has no cloud-init, it is the
// startup script, which Google's guest agent runs at every boot.
func (b *Backend) metadata(j *job) ([]*computepb.Items, error) {
	refuse := func(format string, args ...any) ([]*computepb.Items, error) {
		return nil, backends.Errorf(backends.ErrPermanent, "build metadata", "proxy "+j.Proxy+": "+format, args...)
	}
	script, err := bootstrap(j)
	if err != nil {
		return nil, err
	}
	items := []*computepb.Items{{Key: proto.String(keyTold), Value: proto.String(j.told.String())}}
	add := func(key, value string) {
		items = append(items, &computepb.Items{Key: &key, Value: &value})
	}
	if *b.conf.OSLogin {
		add(keyOSLogin, "TRUE")
	}
	if withoutCloudInit(j.image) {
		if len(j.UserData) > 0 {
			return refuse("image %q has no cloud-init, so the intent's user-data would be lost; use another image, or none", j.Image)
		}
		add(keyStartup, string(script))
		return items, nil
	}
	doc, err := nocloud.VendorData(
		nocloud.Part{Name: "operator", Data: []byte(b.host.VendorData)},
		userPart(j.UserData),
		nocloud.Part{Name: "proxyfleet.sh", ContentType: "text/x-shellscript", Data: script})
	if err != nil {
		return nil, backends.Wrap(backends.ErrPermanent, "build metadata", err, "proxy %s: its user-data is no MIME document, though it begins as one", j.Proxy)
	}
	if len(doc) <= maxValue {
		add(keyUserData, string(doc))
		return items, nil
	}
	packed, err := zipped(doc)
	if err != nil {
		return nil, err
	}
	if len(packed) > maxValue {
		return refuse("its user-data is too long: %d bytes after compression, at most %d", len(packed), maxValue)
	}
	add(keyUserData, packed)
	add(keyEncoding, "base64")
	return items, nil
}

// bootstrap is the script that makes a machine the proxy of a job.
func bootstrap(j *job) ([]byte, error) {
	files, err := squid.Render(squid.Params{UID: j.UID, Port: j.port, Access: j.Access, OwnAddresses: squid.DefaultOwnAddresses})
	if err != nil {
		return nil, err
	}
	boot := nocloud.Bootstrap{Files: append(ownFiles(), nocloud.File{Path: "/etc/squid/squid.conf", Data: files.Conf, Squid: true})}
	if files.Passwords != nil {
		boot.Files = append(boot.Files, nocloud.File{Path: squid.DefaultPasswords, Data: files.Passwords, Squid: true})
	}
	return boot.Script(), nil
}

// mimeStart is how a MIME document begins; cloud-init takes those apart.
var mimeStart = regexp.MustCompile(`(?i)^(content-type|mime-version):`)

// userPart is the intent's user-data as a part of ours: a MIME document nested as it is, what is
// compressed told as such, everything else known to cloud-init by its first line.
func userPart(data []byte) nocloud.Part {
	p := nocloud.Part{Name: "user-data", Data: data}
	switch {
	case mimeStart.Match(data):
		p.Entity = true
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		p.ContentType = "application/x-gzip"
	}
	return p
}

// zipped is a document that cloud-init unpacks, as text.
func zipped(doc []byte) (string, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(doc)
	}
	if err == nil {
		err = w.Close()
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), err
}

// toldOf is what an instance's guest was told.
func toldOf(i *computepb.Instance) string {
	for _, item := range i.GetMetadata().GetItems() {
		if item.GetKey() == keyTold {
			return item.GetValue()
		}
	}
	return ""
}
