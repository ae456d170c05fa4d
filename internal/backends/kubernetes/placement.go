package kubernetes

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Toleration lets proxies go to nodes that a taint keeps others from. Its fields mean what they
// mean in a Pod: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
type Toleration struct {
	Key      string `yaml:"key"`      // empty: every taint, with operator Exists
	Operator string `yaml:"operator"` // Equal (the default) or Exists
	Value    string `yaml:"value"`    // with Equal only
	Effect   string `yaml:"effect"`   // NoSchedule, PreferNoSchedule or NoExecute; empty: every one
	// TolerationSeconds is how long a Pod stays on a node that gets the taint, with NoExecute
	// only. Left out: for ever. It shortens what a lost node holds its proxies for, which are
	// five minutes by default.
	TolerationSeconds *int64 `yaml:"tolerationSeconds"`
}

// validate refuses what the API server would refuse in each Pod.
func (t Toleration) validate() error {
	operator := corev1.TolerationOperator(t.Operator)
	switch {
	case t.Key == "" && operator != corev1.TolerationOpExists:
		return errors.New("key: must be given, unless operator is Exists")
	case t.Key != "" && len(content.IsLabelKey(t.Key)) > 0:
		return fmt.Errorf("key: %q: %s", t.Key, content.IsLabelKey(t.Key)[0])
	case operator != "" && operator != corev1.TolerationOpEqual && operator != corev1.TolerationOpExists:
		return fmt.Errorf("operator: %q is neither Equal nor Exists", t.Operator)
	case operator == corev1.TolerationOpExists && t.Value != "":
		return errors.New("value: operator Exists has none")
	case len(content.IsLabelValue(t.Value)) > 0:
		return fmt.Errorf("value: %q: %s", t.Value, content.IsLabelValue(t.Value)[0])
	case !slices.Contains([]corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}, corev1.TaintEffect(t.Effect)):
		return fmt.Errorf("effect: %q is none of NoSchedule, PreferNoSchedule, NoExecute", t.Effect)
	case t.TolerationSeconds != nil && (corev1.TaintEffect(t.Effect) != corev1.TaintEffectNoExecute || *t.TolerationSeconds < 0):
		return errors.New("tolerationSeconds: must be 0 or more, and only effect NoExecute has it")
	}
	return nil
}

// tolerations are what every Pod tolerates.
func (c Config) tolerations() []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range c.Tolerations {
		out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value,
			Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds})
	}
	return out
}
