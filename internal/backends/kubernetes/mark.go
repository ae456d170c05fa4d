package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proxyfleet/internal/backends"
)

// Labels of every object of ours. Together they are the mark; the time of making is the
// Secret's own.
const (
	labelName         = "app.kubernetes.io/name"
	labelManagedBy    = "app.kubernetes.io/managed-by"
	labelInstallation = "proxyfleet.io/installation"
	labelHostID       = "proxyfleet.io/host-id"
	labelProxy        = "proxyfleet.io/proxy"
	labelUID          = "proxyfleet.io/uid"
	labelPool         = "proxyfleet.io/pool"

	appName   = "proxyfleet-proxy"
	managedBy = "proxyfleet"
)

const (
	// annotationRecord is on the Secret: see record.
	annotationRecord = "proxyfleet.io/record"
	// annotationConfig is on the Pod: the digest of the Secret's data that it was made for.
	annotationConfig = "proxyfleet.io/config"
)

// record is what a proxy's Secret says of it, as JSON in an annotation. Fields are only
// ever added.
type record struct {
	Generation uint64           `json:"generation,omitempty"` // last brought to; 0: half-made
	Desired    backends.Desired `json:"desired"`
	Fixed      string           `json:"fixed"` // digest of what cannot change in place
	Config     string           `json:"config"`
	Port       int              `json:"port,omitempty"` // that clients use; 0 until the Service has one
	Expose     string           `json:"expose"`
	Policy     bool             `json:"policy,omitempty"` // there is a NetworkPolicy
	Pool       string           `json:"pool,omitempty"`
}

func (r record) encode() string {
	text, _ := json.Marshal(r) // strings and numbers always marshal
	return string(text)
}

// decodeRecord reads a record. What it cannot use is an error, never a guess.
func decodeRecord(text string) (record, error) {
	var r record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return record{}, err
	}
	switch {
	case r.Desired != backends.Running && r.Desired != backends.Stopped:
		return record{}, fmt.Errorf("desired is %q", r.Desired)
	case !slices.Contains([]string{exposePod, exposeNodePort, exposeLoadBalancer}, r.Expose):
		return record{}, fmt.Errorf("expose is %q", r.Expose)
	case r.Port < 0 || r.Port > 65535:
		return record{}, fmt.Errorf("port is %d", r.Port)
	}
	return r, nil
}

// ownLabels select what is this agent's.
func (b *Backend) ownLabels() map[string]string {
	return map[string]string{labelInstallation: b.owner.Installation, labelHostID: b.owner.HostID}
}

func (b *Backend) ownSelector() string { return labels.SelectorFromSet(b.ownLabels()).String() }

// labelsOf are those of everything that is made for ref.
func (b *Backend) labelsOf(ref backends.Ref, pool string) map[string]string {
	l := b.ownLabels()
	l[labelName], l[labelManagedBy] = appName, managedBy
	l[labelProxy], l[labelUID] = ref.Proxy, ref.UID
	if pool != "" {
		l[labelPool] = pool
	}
	return l
}

// owns reports whether an object is ours and of this uid.
func (b *Backend) owns(o metav1.Object, uid string) bool {
	return b.mark(o).Owned(b.owner) && o.GetLabels()[labelUID] == uid
}

// mark reads the mark of an object.
func (b *Backend) mark(o metav1.Object) backends.Mark {
	l := o.GetLabels()
	return backends.Mark{Installation: l[labelInstallation], HostID: l[labelHostID], Proxy: l[labelProxy], UID: l[labelUID],
		CreatedAt: o.GetCreationTimestamp().UTC()}
}

// digest is a short hash of parts, each of which keeps its bounds.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:10])
}
