//go:build real

package kubernetes

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/kubernetes/kubetest"
)

// manifestsAreTaken gives the reviewed files to the API server, which judges them in full and
// keeps nothing.
func manifestsAreTaken(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	addPriority(x, c, "proxies")
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	for name := range goldens {
		text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		check(t, err)
		for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
			o, _, err := scheme.Codecs.UniversalDeserializer().Decode(doc, nil, nil)
			check(t, err)
			o.(metav1.Object).SetNamespace(x.Namespace)
			switch o := o.(type) {
			case *corev1.Secret:
				o.UID = ""
				_, err = c.API.CoreV1().Secrets(x.Namespace).Create(x.ctx(), o, dry)
			case *corev1.Service:
				_, err = c.API.CoreV1().Services(x.Namespace).Create(x.ctx(), o, dry)
			case *networkingv1.NetworkPolicy:
				_, err = c.API.NetworkingV1().NetworkPolicies(x.Namespace).Create(x.ctx(), o, dry)
			case *policyv1.PodDisruptionBudget:
				_, err = c.API.PolicyV1().PodDisruptionBudgets(x.Namespace).Create(x.ctx(), o, dry)
			case *corev1.Pod:
				if _, err = c.API.CoreV1().Pods(x.Namespace).Create(x.ctx(), o, dry); err != nil {
					break
				}
				// The same Pod with a right too many is refused: the standard is in force.
				o.Spec.Containers[0].SecurityContext.Capabilities.Drop = nil
				if _, err := c.API.CoreV1().Pods(x.Namespace).Create(x.ctx(), o, dry); err == nil || !strings.Contains(err.Error(), "PodSecurity") {
					t.Errorf("%s: a Pod with capabilities was taken (%v)", name, err)
				}
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// theAgentsOwnAreTaken does the same with what the agent itself is deployed by.
func theAgentsOwnAreTaken(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	deployed := false
	for _, o := range kubetest.Manifest(t, "agent.yaml") {
		var err error
		switch o := o.(type) {
		case *corev1.Namespace:
			_, err = c.API.CoreV1().Namespaces().Create(x.ctx(), o, dry)
		case *corev1.ServiceAccount:
			o.Namespace = x.Namespace
			_, err = c.API.CoreV1().ServiceAccounts(x.Namespace).Create(x.ctx(), o, metav1.CreateOptions{}) // the Pod needs it
		case *corev1.ConfigMap:
			o.Namespace = x.Namespace
			_, err = c.API.CoreV1().ConfigMaps(x.Namespace).Create(x.ctx(), o, dry)
		case *corev1.PersistentVolumeClaim:
			o.Namespace = x.Namespace
			_, err = c.API.CoreV1().PersistentVolumeClaims(x.Namespace).Create(x.ctx(), o, dry)
		case *appsv1.Deployment:
			o.Namespace = x.Namespace
			if _, err = c.API.AppsV1().Deployments(x.Namespace).Create(x.ctx(), o, dry); err != nil {
				break
			}
			// Its Pods are what the standard is held against.
			pod := &corev1.Pod{ObjectMeta: o.Spec.Template.ObjectMeta, Spec: o.Spec.Template.Spec}
			pod.Name = "agent"
			_, err = c.API.CoreV1().Pods(x.Namespace).Create(x.ctx(), pod, dry)
			deployed = true
		default:
			t.Errorf("nobody tried %T", o)
		}
		if err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	if !deployed {
		t.Error("there is no Deployment")
	}
}

// setQuota writes a quota with its status, which no controller counts here.
func setQuota(x *bench, c *kubetest.Cluster, hard, used corev1.ResourceList) {
	x.Helper()
	quotas := c.API.CoreV1().ResourceQuotas(x.Namespace)
	q, err := quotas.Create(x.ctx(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	check(x.T, err)
	q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used}
	_, err = quotas.UpdateStatus(x.ctx(), q, metav1.UpdateOptions{})
	check(x.T, err)
}

func amount(name, n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(n)}
}

// quotaIsNoCapacity meets a quota that is known before anything is made, and one that comes
// right before the Pod does.
func quotaIsNoCapacity(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	late := request(newRef("late"))
	_, err := x.b.Ensure(at(x.ctx(), "pod.create", func() { setQuota(x, c, amount("pods", "0"), amount("pods", "0")) }), late, func(backends.Progress) {})
	x.expect(err, backends.ErrNoCapacity, "quota")
	early := request(newRef("early"))
	x.eventually("the quota is known", func() error {
		_, _, exhausted, err := x.b.survey(x.ctx(), shapeSpace(backends.MachineType{VCPUs: 1}))
		if err == nil && exhausted == "" {
			err = errNotYet
		}
		return err
	})
	_, err = x.ensure(early)
	x.expect(err, backends.ErrNoCapacity, "quota quota (pods 0, used 0)")
	if left := x.traces(t, early.Ref); len(left) > 0 {
		t.Errorf("something was made: %v", left)
	}
	check(t, c.API.CoreV1().ResourceQuotas(x.Namespace).Delete(x.ctx(), "quota", metav1.DeleteOptions{}))
	x.eventually("the quota is gone", func() error { _, err := x.ensure(late); return err })
	x.mustDelete(late.Ref)
}

// without takes a verb of a resource from the agent's Role.
func without(x *bench, c *kubetest.Cluster, resource, verb string) {
	x.Helper()
	roles := c.API.RbacV1().Roles(x.Namespace)
	r, err := roles.Get(x.ctx(), "agent", metav1.GetOptions{})
	check(x.T, err)
	var rules []rbacv1.PolicyRule
	for _, rule := range r.Rules {
		if !slices.Contains(rule.Resources, resource) {
			rules = append(rules, rule)
			continue
		}
		others := rule.DeepCopy()
		others.Resources = slices.DeleteFunc(others.Resources, func(s string) bool { return s == resource })
		rule.Resources = []string{resource}
		rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(s string) bool { return s == verb })
		rules = append(rules, rule)
		if len(others.Resources) > 0 {
			rules = append(rules, *others)
		}
	}
	r.Rules = rules
	_, err = roles.Update(x.ctx(), r, metav1.UpdateOptions{})
	check(x.T, err)
}

func (x *bench) checkOf(target string) backends.TargetHealth {
	x.Helper()
	checks := x.b.Check(x.ctx())
	for _, h := range checks {
		if h.Target == target {
			return h
		}
	}
	x.Fatalf("there is no check of %s: %+v", target, checks)
	return backends.TargetHealth{}
}

func missingRight(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	for _, h := range x.b.Check(x.ctx()) {
		if h.Code != backends.CheckOK {
			t.Errorf("with every right: %+v", h)
		}
	}
	without(x, c, "pods", "create")
	x.eventually("the check names the right", func() error {
		if h := x.checkOf("permissions"); h.Code != backends.CheckForbidden || !strings.Contains(h.Message, ": create pods; ") {
			return errNotYet
		}
		return nil
	})
	req := request(newRef("p"))
	_, err := x.ensure(req)
	x.expect(err, backends.ErrHostFault, "its checks name which")
	if h := x.checkOf("image/squid"); h.Code != backends.CheckForbidden {
		t.Errorf("the dry run: got %+v, want Forbidden", h)
	}
	x.mustDelete(req.Ref)
}

// manifestGrantsRights holds deploy/kubernetes/rbac.yaml to the rights that are checked.
func manifestGrantsRights(t *testing.T, _ *kubetest.Cluster) {
	granted := map[right]bool{}
	grant := func(rules []rbacv1.PolicyRule, cluster bool) {
		for _, rule := range rules {
			for _, group := range rule.APIGroups {
				for _, res := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted[right{group, res, verb, cluster}] = true
					}
				}
			}
		}
	}
	for _, o := range kubetest.Manifest(t, "rbac.yaml") {
		switch o := o.(type) {
		case *rbacv1.Role:
			grant(o.Rules, false)
		case *rbacv1.ClusterRole:
			grant(o.Rules, true)
		}
	}
	for _, r := range rights() {
		if !granted[r] {
			t.Errorf("the manifest lacks: %s", r)
		}
		delete(granted, r)
	}
	for r := range granted {
		t.Errorf("the manifest grants what is never needed: %s", r)
	}
}

func policyRefuses(t *testing.T, c *kubetest.Cluster) {
	x := open(t, c, nil)
	match := &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: x.Namespace}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{"CREATE"},
			Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}}
	policies := c.API.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(x.ctx(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-pods"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{MatchConstraints: match, Validations: []admissionv1.Validation{{Expression: "false", Message: "no proxies on Sundays"}}}}, metav1.CreateOptions{})
	check(t, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(x.ctx(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-pods"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "no-pods", ValidationActions: []admissionv1.ValidationAction{"Deny"}}}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		check(t, policies.ValidatingAdmissionPolicyBindings().Delete(x.ctx(), "no-pods", metav1.DeleteOptions{}))
		check(t, policies.ValidatingAdmissionPolicies().Delete(x.ctx(), "no-pods", metav1.DeleteOptions{}))
	})
	x.eventually("the check says so", func() error {
		if h := x.checkOf("image/squid"); !strings.Contains(h.Message, "Sundays") {
			return errNotYet
		}
		return nil
	})
	req := request(newRef("p"))
	_, err = x.ensure(req)
	x.expect(err, backends.ErrPermanent, "no proxies on Sundays")
	x.mustDelete(req.Ref)
}
