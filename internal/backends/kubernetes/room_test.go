package kubernetes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func testNode(name string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a"}}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("3900m"), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("10")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True"}}}}
	if change != nil {
		change(n)
	}
	return n
}

func taint(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Value: value, Effect: effect}} }
}

func testPod(node, cpu, memory string, own bool) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}}}}}
	if own {
		p.Labels = map[string]string{"own": "yes"}
	}
	return p
}

var testRules = rules{selector: labels.SelectorFromSet(map[string]string{"pool": "a"}),
	tolerations: []corev1.Toleration{{Key: "egress", Value: "only"}, {Key: "dead", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}, own: labels.SelectorFromSet(map[string]string{"own": "yes"})}

func TestTheRoomIsWhatNodesHaveLessWhatOthersAsked(t *testing.T) {
	gib := int64(1 << 30)
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		pods  []*corev1.Pod
		want  space
	}{
		"an empty node, in whole processors":     {[]*corev1.Node{testNode("a", nil)}, nil, space{3000, 4 * gib, 10}},
		"another's Pod takes of it":              {[]*corev1.Node{testNode("a", nil)}, []*corev1.Pod{testPod("a", "1", "1Gi", false)}, space{2000, 3 * gib, 9}},
		"our own Pod does not":                   {[]*corev1.Node{testNode("a", nil)}, []*corev1.Pod{testPod("a", "1", "1Gi", true)}, space{3000, 4 * gib, 10}},
		"our Pod that waits for a node does not": {[]*corev1.Node{testNode("a", nil)}, []*corev1.Pod{testPod("", "1", "1Gi", true)}, space{3000, 4 * gib, 10}},
		"another's Pod without a node does not":  {[]*corev1.Node{testNode("a", nil)}, []*corev1.Pod{testPod("", "1", "1Gi", false)}, space{3000, 4 * gib, 10}},
		"halves of two nodes make no processor": {[]*corev1.Node{testNode("a", nil), testNode("b", nil)},
			[]*corev1.Pod{testPod("a", "3400m", "0", false), testPod("b", "3400m", "0", false)}, space{0, 8 * gib, 18}},
		"what is over-asked is none, not less": {[]*corev1.Node{testNode("a", nil), testNode("b", nil)},
			[]*corev1.Pod{testPod("a", "9", "9Gi", false)}, space{3000, 4 * gib, 19}},
		"a cordoned node has nothing but our Pods on it": {[]*corev1.Node{testNode("a", func(n *corev1.Node) { n.Spec.Unschedulable = true })},
			[]*corev1.Pod{testPod("a", "1", "1Gi", true)}, space{1000, gib, 1}},
		"a tainted node":                {[]*corev1.Node{testNode("a", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Effect: "NoSchedule"}} })}, nil, space{}},
		"a taint that is tolerated":     {[]*corev1.Node{testNode("a", taint("egress", "only", "NoSchedule"))}, nil, space{3000, 4 * gib, 10}},
		"one with another value":        {[]*corev1.Node{testNode("a", taint("egress", "other", "NoSchedule"))}, nil, space{}},
		"one with another effect":       {[]*corev1.Node{testNode("a", taint("dead", "", "NoSchedule"))}, nil, space{}},
		"an eviction that is":           {[]*corev1.Node{testNode("a", taint("dead", "x", "NoExecute"))}, nil, space{3000, 4 * gib, 10}},
		"a node that is better avoided": {[]*corev1.Node{testNode("a", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Effect: "PreferNoSchedule"}} })}, nil, space{3000, 4 * gib, 10}},
		"a node that is not ready":      {[]*corev1.Node{testNode("a", func(n *corev1.Node) { n.Status.Conditions[0].Status = "Unknown" })}, nil, space{}},
		"a node that says nothing":      {[]*corev1.Node{testNode("a", func(n *corev1.Node) { n.Status.Conditions = nil })}, nil, space{}},
		"a node with other labels":      {[]*corev1.Node{testNode("a", func(n *corev1.Node) { n.Labels = nil })}, nil, space{}},
	} {
		if got := survey(testRules, c.nodes, c.pods).total(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// A toleration of every taint is one of being cordoned.
func TestACordonedNodeIsOfferedToWhoToleratesEverything(t *testing.T) {
	r := testRules
	r.tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	cordoned := testNode("a", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	if !r.schedulable(cordoned) || testRules.schedulable(cordoned) {
		t.Error("it is not told apart who may go to a cordoned node")
	}
}

func TestAProxyNeedsRoomOnOneNode(t *testing.T) {
	c := survey(testRules, []*corev1.Node{testNode("a", nil), testNode("b", nil)}, []*corev1.Pod{testPod("a", "2", "1Gi", true), testPod("b", "2", "1Gi", false)})
	if !c.fits(space{1000, 1 << 30, 1}) || c.fits(space{2000, 1 << 30, 1}) || c.fits(space{1000, 4 << 30, 1}) || c.fits(space{1000, 1 << 30, 10}) {
		t.Errorf("of %+v it is wrong what fits", c.free)
	}
}

func TestQuotasBoundWhatIsLeft(t *testing.T) {
	quota := func(hard, used corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Scopes: scopes}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
	}
	one := func(name, n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(n)}
	}
	need := space{1000, 1 << 30, 1}
	for name, c := range map[string]struct {
		quota     *corev1.ResourceQuota
		expose    string
		left      space
		exhausted bool
	}{
		"processors":                        {quota(one("requests.cpu", "4"), one("requests.cpu", "1500m")), "pod", space{2500, unlimited, unlimited}, false},
		"limits of processors, exhausted":   {quota(one("limits.cpu", "4"), one("limits.cpu", "3500m")), "pod", space{500, unlimited, unlimited}, true},
		"memory, exhausted":                 {quota(one("memory", "1Gi"), one("memory", "1Gi")), "pod", space{unlimited, 0, unlimited}, true},
		"Pods":                              {quota(one("pods", "3"), one("pods", "1")), "pod", space{unlimited, unlimited, 2}, false},
		"Secrets, exhausted":                {quota(one("count/secrets", "3"), one("count/secrets", "3")), "pod", space{unlimited, unlimited, 0}, true},
		"node ports that nobody asks for":   {quota(one("services.nodeports", "0"), nil), "pod", space{unlimited, unlimited, unlimited}, false},
		"node ports, exhausted":             {quota(one("services.nodeports", "0"), nil), "nodePort", space{unlimited, unlimited, 0}, true},
		"load balancers, exhausted":         {quota(one("services.loadbalancers", "0"), nil), "loadBalancer", space{unlimited, unlimited, 0}, true},
		"what others count":                 {quota(one("count/jobs.batch", "0"), nil), "pod", space{unlimited, unlimited, unlimited}, false},
		"Pods that are not guaranteed":      {quota(one("pods", "0"), nil, corev1.ResourceQuotaScopeBestEffort), "pod", space{unlimited, unlimited, unlimited}, false},
		"Pods that are, exhausted":          {quota(one("pods", "0"), nil, corev1.ResourceQuotaScopeNotBestEffort), "pod", space{unlimited, unlimited, 0}, true},
		"Pods of our priority":              {quota(one("pods", "1"), nil, corev1.ResourceQuotaScopePriorityClass), "pod", space{unlimited, unlimited, 1}, false},
		"used beyond what is allowed, once": {quota(one("pods", "1"), one("pods", "3")), "pod", space{unlimited, unlimited, 0}, true},
	} {
		left, exhausted := headroom([]*corev1.ResourceQuota{c.quota}, Config{Expose: c.expose, PriorityClass: "ours"}, need)
		if left != c.left || (exhausted != "") != c.exhausted {
			t.Errorf("%s: got %+v, %q; want %+v, exhausted %v", name, left, exhausted, c.left, c.exhausted)
		}
	}
}

func TestAQuotaCountsPodsOfItsPriorityClasses(t *testing.T) {
	for _, c := range []struct {
		operator   corev1.ScopeSelectorOperator
		values     []string
		ours, none bool // what it says of Pods of the class "ours", and of those of none
	}{
		{corev1.ScopeSelectorOpIn, []string{"ours", "theirs"}, true, false},
		{corev1.ScopeSelectorOpIn, []string{"theirs"}, false, false},
		{corev1.ScopeSelectorOpNotIn, []string{"ours"}, false, true},
		{corev1.ScopeSelectorOpNotIn, []string{"theirs"}, true, true},
		{corev1.ScopeSelectorOpExists, nil, true, false},
		{corev1.ScopeSelectorOpDoesNotExist, nil, false, true},
	} {
		q := corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: c.operator, Values: c.values}}}}
		if ours, none := concerns(q, "ours"), concerns(q, ""); ours != c.ours || none != c.none {
			t.Errorf("%s %v: got %v for the class, %v for none", c.operator, c.values, ours, none)
		}
	}
}
