package backendtest_test

import (
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"proxyfleet/internal/backends/backendtest"
)

// faultVariable breaks the backend that TestTheSuite is run on.
const faultVariable = "BACKENDTEST_FAULT"

var loopback = netip.MustParseAddr("127.0.0.1")

func TestMain(m *testing.M) { backendtest.Main(m, harness(os.Getenv(faultVariable))) }

// TestTheSuite holds the simulated backend to the contract, broken where asked.
func TestTheSuite(t *testing.T) { backendtest.Run(t, harness(os.Getenv(faultVariable))) }

// Each fault is put into a process of its own, since a suite that works fails.
func TestTheSuiteCatches(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for fault, by := range faults {
		t.Run(fault, func(t *testing.T) {
			pattern := "^TestTheSuite$/" + regexp.QuoteMeta(strings.ReplaceAll(by, " ", "_"))
			cmd := exec.Command(self, "-test.run="+pattern, "-test.v")
			cmd.Env = append(os.Environ(), faultVariable+"="+fault)
			out, err := cmd.CombinedOutput()
			if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(string(out), "--- FAIL: TestTheSuite/") {
				t.Errorf("%q did not fail (%v):\n%s", by, err, out)
			}
			if strings.Contains(string(out), "panic:") {
				t.Errorf("the suite panicked:\n%s", out)
			}
		})
	}
}
