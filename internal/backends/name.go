package backends

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// InstanceName is the name of a uid's instance on every backend: "pf-" and 16 characters
// of a hash, a DNS label that fits every hypervisor's limits. A uid alone would fit, but
// a hash keeps people from reading meaning into it.
func InstanceName(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return "pf-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
}
