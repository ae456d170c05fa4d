//go:build pve && !proxmox_real

package proxmox

import "proxyfleet/internal/backends/backendtest"

// suite is what the conformance suite runs on: a simulated cluster, unless the build tag
// proxmox_real asks for a real one.
func suite() backendtest.Harness { return harness }
