package kubernetes

import (
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

func TestWhatCannotBeUsedIsSaidByItsField(t *testing.T) {
	for want, spoil := range map[string]func(*Config, *backends.HostConfig){
		"kubeconfig":         func(c *Config, _ *backends.HostConfig) { c.Kubeconfig = "relative" },
		"context":            func(c *Config, _ *backends.HostConfig) { c.Context = "x" },
		"namespace":          func(c *Config, _ *backends.HostConfig) { c.Namespace = "a.b" },
		"namespace: \"\"":    func(c *Config, _ *backends.HostConfig) { c.Namespace = "" },
		"expose":             func(c *Config, _ *backends.HostConfig) { c.Expose = "hostPort" },
		"serviceAnnotations": func(c *Config, _ *backends.HostConfig) { c.ServiceAnnotations = map[string]string{"a": "b"} },
		"pullSecret":         func(c *Config, _ *backends.HostConfig) { c.PullSecret = "A" },
		"prober: labels":     func(c *Config, _ *backends.HostConfig) { c.Prober.Namespace = "x" },
		"prober.namespace":   func(c *Config, _ *backends.HostConfig) { c.Prober = Prober{"A", map[string]string{"a": "b"}} },
		"prober.labels":      func(c *Config, _ *backends.HostConfig) { c.Prober.Labels = map[string]string{"a": "b c"} },
		"nodeSelector":       func(c *Config, _ *backends.HostConfig) { c.NodeSelector = map[string]string{"": "b"} },
		"nodeSelector: \"a":  func(c *Config, _ *backends.HostConfig) { c.NodeSelector = map[string]string{"a/b/c": "d"} },
		"imagePullPolicy":    func(c *Config, _ *backends.HostConfig) { c.ImagePullPolicy = "always" },
		"priorityClass":      func(c *Config, _ *backends.HostConfig) { c.PriorityClass = "High" },
		"drain":              func(c *Config, _ *backends.HostConfig) { c.Drain = 1500 * time.Millisecond },
		"startTimeout":       func(c *Config, _ *backends.HostConfig) { c.StartTimeout = -1 },
		"images.x.container": func(_ *Config, h *backends.HostConfig) { h.Images = map[string]backends.Image{"x": {URL: "https://x"}} },
		"machineTypes.x": func(_ *Config, h *backends.HostConfig) {
			h.MachineTypes = map[string]backends.MachineType{"x": {Name: "e2"}}
		},
		"vendorData":        func(_ *Config, h *backends.HostConfig) { h.VendorData = "#cloud-config" },
		"limits.overcommit": func(_ *Config, h *backends.HostConfig) { h.Limits.Overcommit.VCPUs = 2 },
	} {
		c, h := Config{Namespace: "proxies"}, backends.HostConfig{}
		spoil(&c, &h)
		b, err := New(c, h, Options{Owner: backends.Owner{Installation: "01i", HostID: "01h"}})
		if err == nil {
			_ = b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that names it", want, err)
		}
	}
}

func TestTolerationsAreThoseThatPodsMayHave(t *testing.T) {
	for _, good := range []Toleration{{Key: "example.org/egress", Value: "true"}, {Key: "a", Operator: "Equal", Effect: "PreferNoSchedule"}, {Operator: "Exists"},
		{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(30))}} {
		if err := (Config{Namespace: "p", Tolerations: []Toleration{good}}).withDefaults().validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for want, bad := range map[string]Toleration{
		"tolerations[1].key: must":          {Value: "x"},
		"tolerations[1].key: \"a b\"":       {Key: "a b"},
		"tolerations[1].operator":           {Key: "a", Operator: "exists"},
		"tolerations[1].value: operator":    {Key: "a", Operator: "Exists", Value: "b"},
		"tolerations[1].value: \"b c\"":     {Key: "a", Value: "b c"},
		"tolerations[1].effect":             {Key: "a", Effect: "NoRun"},
		"tolerations[1].tolerationSeconds:": {Key: "a", Effect: "NoSchedule", TolerationSeconds: new(int64(1))},
	} {
		err := Config{Namespace: "p", Tolerations: []Toleration{{Operator: "Exists"}, bad}}.withDefaults().validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error that begins with %q", bad, err, want)
		}
	}
}
