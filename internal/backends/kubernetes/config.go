package kubernetes

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"proxyfleet/internal/backends"
)

// Config is the backend's part of agent.yaml, beside what all backends share.
type Config struct {
	// Kubeconfig is an absolute path; empty: the service account of the Pod that the agent
	// runs in. It and the files that it names are read again when they change.
	Kubeconfig string `yaml:"kubeconfig"`
	// Context of the kubeconfig. Empty: its current one.
	Context string `yaml:"context"`
	// Namespace of all proxies. It exists already. Required.
	Namespace string `yaml:"namespace"`
	// Expose is how clients reach a proxy: "pod" (the default) by the Pod's own address,
	// "nodePort" or "loadBalancer" by a Service of that type for each proxy.
	Expose string `yaml:"expose"`
	// ServiceAnnotations are set on those Services, as load balancers of clouds want them.
	ServiceAnnotations map[string]string `yaml:"serviceAnnotations"`
	// PullSecret is the name of a Secret in the namespace with the registry's credentials.
	PullSecret string `yaml:"pullSecret"`
	// ImagePullPolicy is Always, IfNotPresent or Never. Empty: as Kubernetes has it, Always for the
	// tag "latest" and else IfNotPresent.
	ImagePullPolicy string `yaml:"imagePullPolicy"`
	// NodeSelector and Tolerations are given to every Pod, and say which nodes are offered.
	NodeSelector map[string]string `yaml:"nodeSelector"`
	Tolerations  []Toleration      `yaml:"tolerations"`
	// PriorityClass is the name of one of the cluster's, for every Pod. Empty: the cluster's own
	// default.
	PriorityClass string `yaml:"priorityClass"`
	// Prober are the Pods that may reach a proxy beside its client networks: the agent's
	// own, which probes it. Empty: none.
	Prober Prober `yaml:"prober"`
	// IPv6 reports IPv6 addresses too.
	IPv6 bool `yaml:"ipv6"`
	// Drain is how long a Pod that is to end still serves before Squid is told. Default 5 s.
	Drain time.Duration `yaml:"drain"`
	// ScheduleTimeout is how long a Pod may wait for a node until the host counts as full.
	// Default 1 min.
	ScheduleTimeout time.Duration `yaml:"scheduleTimeout"`
	// StartTimeout is how long a Pod may take from its creation until it serves, pulling its
	// image included. Default 5 min.
	StartTimeout time.Duration `yaml:"startTimeout"`
}

// Prober selects Pods. Labels without a namespace are of the proxies' own.
type Prober struct {
	Namespace string            `yaml:"namespace"`
	Labels    map[string]string `yaml:"labels"`
}

// Options are what an agent gives beside configuration.
type Options struct {
	Owner backends.Owner
	Log   *slog.Logger
	// ServiceAccountDir is where a Pod finds its service account's files. Default
	// [DefaultServiceAccountDir].
	ServiceAccountDir string
}

// DefaultServiceAccountDir is where the kubelet mounts them.
const DefaultServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Ways of exposing a proxy.
const (
	exposePod          = "pod"
	exposeNodePort     = "nodePort"
	exposeLoadBalancer = "loadBalancer"
)

// imageForm is a reference as the kubelet takes it, less what no registry uses; without a
// digest, which the image's own key may give.
var imageForm = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._:/@-]{0,254}$`)

// isName and isObjectName report what namespaces and labels, and what other objects are called.
func isName(s string) bool       { return len(content.IsDNS1123Label(s)) == 0 }
func isObjectName(s string) bool { return len(content.IsDNS1123Subdomain(s)) == 0 }

func (c Config) withDefaults() Config {
	if c.Expose == "" {
		c.Expose = exposePod
	}
	for d, def := range map[*time.Duration]time.Duration{
		&c.Drain: 5 * time.Second, &c.ScheduleTimeout: time.Minute, &c.StartTimeout: 5 * time.Minute,
	} {
		if *d == 0 {
			*d = def
		}
	}
	return c
}

// validate reports the first setting that cannot be used, by its path in the file.
func (c Config) validate() error {
	switch {
	case c.Kubeconfig != "" && !filepath.IsAbs(c.Kubeconfig):
		return fmt.Errorf("kubeconfig: %q is not an absolute path", c.Kubeconfig)
	case c.Kubeconfig == "" && c.Context != "":
		return errors.New("context: only a kubeconfig has contexts")
	case !isName(c.Namespace):
		return fmt.Errorf("namespace: %q is no namespace's name; it must be given", c.Namespace)
	case !slices.Contains([]string{exposePod, exposeNodePort, exposeLoadBalancer}, c.Expose):
		return fmt.Errorf("expose: %q is none of pod, nodePort, loadBalancer", c.Expose)
	case c.Expose == exposePod && len(c.ServiceAnnotations) > 0:
		return errors.New("serviceAnnotations: there is no Service with expose: pod")
	case c.PullSecret != "" && !isObjectName(c.PullSecret):
		return fmt.Errorf("pullSecret: %q is no Secret's name", c.PullSecret)
	case c.PriorityClass != "" && !isObjectName(c.PriorityClass):
		return fmt.Errorf("priorityClass: %q is no PriorityClass's name", c.PriorityClass)
	case !slices.Contains([]corev1.PullPolicy{"", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}, corev1.PullPolicy(c.ImagePullPolicy)):
		return fmt.Errorf("imagePullPolicy: %q is none of Always, IfNotPresent, Never", c.ImagePullPolicy)
	case c.Prober.Namespace != "" && len(c.Prober.Labels) == 0:
		return errors.New("prober: labels must be given, or every Pod of the namespace could reach the proxies")
	case c.Prober.Namespace != "" && !isName(c.Prober.Namespace):
		return fmt.Errorf("prober.namespace: %q is no namespace's name", c.Prober.Namespace)
	case c.Drain < time.Second || c.Drain%time.Second != 0:
		return fmt.Errorf("drain: %v is not a whole number of seconds, at least one", c.Drain)
	case c.ScheduleTimeout < 0 || c.StartTimeout < 0:
		return errors.New("scheduleTimeout and startTimeout must be positive")
	}
	for field, m := range map[string]map[string]string{"nodeSelector": c.NodeSelector, "prober.labels": c.Prober.Labels} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if wrong := slices.Concat(content.IsLabelKey(k), content.IsLabelValue(m[k])); len(wrong) > 0 {
				return fmt.Errorf("%s: %q: %q is no label: %s", field, k, m[k], wrong[0])
			}
		}
	}
	for i, t := range c.Tolerations {
		if err := t.validate(); err != nil {
			return fmt.Errorf("tolerations[%d].%w", i, err)
		}
	}
	return nil
}

// validateHost reports what is shared by all backends and cannot be used with this one.
func validateHost(h backends.HostConfig) error {
	if h.VendorData != "" {
		return errors.New("vendorData: a Pod has no cloud-init that would read it")
	}
	for _, k := range slices.Sorted(maps.Keys(h.Images)) {
		if !imageForm.MatchString(h.Images[k].Container) {
			return fmt.Errorf("images.%s.container: %q is no image reference; with kubernetes it must be given", k, h.Images[k].Container)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(h.MachineTypes)) {
		if t := h.MachineTypes[k]; t.Name != "" || t.VCPUs < 1 || t.MemoryMiB < 1 {
			return fmt.Errorf("machineTypes.%s: a Pod needs vcpus and memoryMiB, and has no type of the cluster's own", k)
		}
	}
	for _, f := range []float64{h.Limits.Overcommit.VCPUs, h.Limits.Overcommit.Memory, h.Limits.Overcommit.Disk} {
		if f != 0 && f != 1 {
			return errors.New("limits.overcommit: Kubernetes grants what is requested, or does not; it cannot be overcommitted")
		}
	}
	return nil
}
