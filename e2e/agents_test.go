package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheAgentOfAHostSaysWhatItWasBuiltWithout gives configurations for clouds to the program
// for hosts, and one for everything that it has.
func TestTheAgentOfAHostSaysWhatItWasBuiltWithout(t *testing.T) {
	for backend, says := range map[string]string{
		"{type: gcp, project: p, zones: [z]}":   "built without gcp",
		"{type: kubernetes, namespace: people}": "built without kubernetes",
		"{type: sim}":                           "is valid",
	} {
		config := filepath.Join(t.TempDir(), "agent.yaml")
		if err := os.WriteFile(config, []byte("host: {name: h}\nbackend: "+backend+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := run(t, program(t, "agent-host"), "config", "validate", "--config", config)
		if !strings.Contains(fmt.Sprint(out, err), says) {
			t.Errorf("%s: got %q, %v; want %q", backend, out, err, says)
		}
	}
}
