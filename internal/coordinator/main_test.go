package coordinator_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine is left that is not the embedded server's: one that was
// killed in the middle of its work ends some of its own late, or never.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		for stack := range strings.SplitSeq(err.Error(), "Goroutine ") {
			if strings.Contains(stack, "in state") && !strings.Contains(stack, "nats-server/v2/server") {
				fmt.Fprintln(os.Stderr, "left: goroutine", stack)
				code = 1
			}
		}
	}
	os.Exit(code)
}
