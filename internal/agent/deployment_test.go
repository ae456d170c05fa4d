package agent

import (
	"bytes"
	"os"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestTheDeploymentsConfigurationLoads reads agent.yaml out of the manifest that people apply.
func TestTheDeploymentsConfigurationLoads(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var o struct {
			Kind string            `yaml:"kind"`
			Data map[string]string `yaml:"data"`
		}
		if err := yaml.Unmarshal(doc, &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind != "ConfigMap" {
			continue
		}
		found = true
		if c, err := Parse([]byte(o.Data["agent.yaml"])); err != nil || c.Backend.Type != "kubernetes" {
			t.Errorf("got backend %q (%v), want kubernetes", c.Backend.Type, err)
		}
	}
	if !found {
		t.Error("the manifest has no ConfigMap")
	}
}
