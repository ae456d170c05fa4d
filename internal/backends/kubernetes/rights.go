package kubernetes

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// right is one kind of call that the backend makes. deploy/kubernetes/rbac.yaml grants
// exactly these.
type right struct {
	group, resource, verb string
	cluster               bool // in all namespaces, or of what has none
}

func (r right) String() string {
	s := r.verb + " " + r.resource
	if r.group != "" {
		s += "." + r.group
	}
	if r.cluster {
		s += " (cluster-wide)"
	}
	return s
}

// rights are all that the backend needs.
func rights() (out []right) {
	add := func(cluster bool, group, resource, verbs string) {
		for verb := range strings.FieldsSeq(verbs) {
			out = append(out, right{group, resource, verb, cluster})
		}
	}
	add(false, "", "pods", "get list watch create delete")
	add(false, "", "services", "get list watch create delete")
	add(false, "", "secrets", "get list watch create update delete")
	add(false, "networking.k8s.io", "networkpolicies", "get list watch create update delete")
	add(false, "policy", "poddisruptionbudgets", "get create update delete")
	add(false, "", "resourcequotas", "list watch")
	add(true, "", "nodes", "list watch")
	add(true, "", "pods", "list watch")
	return out
}

// checkRights asks the API server for each right; a question is all that it is.
func (b *Backend) checkRights(ctx context.Context) backends.TargetHealth {
	h := backends.TargetHealth{Target: "permissions", Code: backends.CheckOK}
	var missing []string
	for _, r := range rights() {
		a := &authorizationv1.ResourceAttributes{Group: r.group, Resource: r.resource, Verb: r.verb, Namespace: b.conf.Namespace}
		if r.cluster {
			a.Namespace = ""
		}
		review, err := b.api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a}}, metav1.CreateOptions{})
		if err != nil {
			return unwell(h.Target, err, "the agent's rights cannot be asked for")
		}
		if !review.Status.Allowed {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		h.Code = backends.CheckForbidden
		h.Message = fmt.Sprintf("the agent may not, in namespace %s: %s; deploy/kubernetes/rbac.yaml grants it", b.conf.Namespace, strings.Join(missing, ", "))
	}
	return h
}
