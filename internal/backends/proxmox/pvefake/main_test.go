//go:build pve || proxmox_real

package pvefake

import (
	"testing"

	"go.uber.org/goleak"
)

// Every cluster ends with its test: no task, listener or daemon outlives it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
