package proxmox

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// probes is how many VMIDs are tried for one uid. With a range that is half full, all being
// taken has a chance of one in four billion.
const probes = 32

// vmid is the nth VMID to try for a uid. It follows from the uid alone, so that a VM is
// found again without any record, and two agents seldom want the same.
func vmid(uid string, n int, r VMIDRange) int {
	sum := sha256.Sum256([]byte(uid + "\x00" + strconv.Itoa(n)))
	return r.Min + int(binary.BigEndian.Uint64(sum[:8])%uint64(r.Max-r.Min+1))
}

// vmids are all of them, in order.
func vmids(uid string, r VMIDRange) []int {
	out := make([]int, 0, probes)
	for n := range probes {
		out = append(out, vmid(uid, n, r))
	}
	return out
}
