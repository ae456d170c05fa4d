package kubernetes

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proxyfleet/internal/backends"
)

var podsOf = schema.GroupResource{Resource: "pods"}

// TestEachErrorGoesToWhoCanMendIt has the statuses as a real API server 1.37 gives them.
func TestEachErrorGoesToWhoCanMendIt(t *testing.T) {
	terminating := apierrors.NewForbidden(podsOf, "pf-x", errors.New("unable to create new content in namespace n because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "pf-x", nil)
	taken := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "pf-x", nil)
	taken.ErrStatus.Message = `Service "pf-x" is invalid: spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated`
	for name, c := range map[string]struct {
		err   error
		class error
		code  string
	}{
		"a right is missing to create": {apierrors.NewForbidden(podsOf, "", errors.New(`User "a" cannot create resource "pods" in API group "" in the namespace "n"`)),
			backends.ErrHostFault, backends.CheckForbidden},
		"a right is missing to read": {apierrors.NewForbidden(podsOf, "pf-x", errors.New(`User "a" cannot get resource "pods" in API group "" in the namespace "n"`)),
			backends.ErrHostFault, backends.CheckForbidden},
		"a quota is exhausted": {apierrors.NewForbidden(podsOf, "pf-x", errors.New("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")),
			backends.ErrNoCapacity, backends.CheckQuotaExhausted},
		"Pod security refuses": {apierrors.NewForbidden(podsOf, "pf-x", errors.New(`violates PodSecurity "restricted:latest": seccompProfile`)),
			backends.ErrHostFault, backends.CheckForbidden},
		"a priority class is missing": {apierrors.NewForbidden(podsOf, "pf-x", errors.New("no PriorityClass with name p was found")),
			backends.ErrHostFault, backends.CheckForbidden},
		"a limit range refuses": {apierrors.NewForbidden(podsOf, "pf-x", errors.New("maximum cpu usage per Container is 1, but limit is 2")),
			backends.ErrPermanent, backends.CheckForbidden},
		"the namespace is going":          {terminating, backends.ErrHostFault, backends.CheckForbidden},
		"the namespace is missing":        {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "n"), backends.ErrHostFault, backends.CheckNamespaceNotFound},
		"the token has expired":           {apierrors.NewUnauthorized("Unauthorized"), backends.ErrHostFault, backends.CheckUnauthorized},
		"a validating policy refuses":     {invalid, backends.ErrPermanent, backends.CheckAPIError},
		"the node port is taken":          {taken, backends.ErrNoCapacity, backends.CheckAPIError},
		"something vanished":              {apierrors.NewNotFound(podsOf, "pf-x"), backends.ErrTransient, backends.CheckAPIError},
		"somebody wrote at the same time": {apierrors.NewConflict(podsOf, "pf-x", errors.New("modified")), backends.ErrTransient, backends.CheckAPIError},
		"the server is busy":              {apierrors.NewTooManyRequests("later", 1), backends.ErrTransient, backends.CheckAPIError},
		"the server has trouble":          {apierrors.NewInternalError(io.EOF), backends.ErrTransient, backends.CheckAPIError},
		"nobody answers":                  {&url.Error{Op: "Get", Err: io.EOF}, backends.ErrTransient, backends.CheckUnreachable},
		"the certificate is another's":    {&url.Error{Op: "Get", Err: x509.UnknownAuthorityError{}}, backends.ErrHostFault, backends.CheckCertificateInvalid},
		"there are no credentials":        {&url.Error{Op: "Get", Err: &credentialError{io.EOF}}, backends.ErrHostFault, backends.CheckCredentialsUnavailable},
		"time is up":                      {context.DeadlineExceeded, backends.ErrTransient, backends.CheckTimeout},
	} {
		if got := backends.Class(classify("op", c.err, "x")); got != c.class {
			t.Errorf("%s: got class %v, want %v", name, got, c.class)
		}
		if got := code(c.err); got != c.code {
			t.Errorf("%s: got code %s, want %s", name, got, c.code)
		}
	}
}

func TestAnErrorThatHasAClassKeepsIt(t *testing.T) {
	err := backends.Errorf(backends.ErrConflict, "look", "not ours")
	if got := classify("op", err, "x"); got != err {
		t.Errorf("got %v, want %v", got, err)
	}
	if classify("op", nil, "x") != nil {
		t.Error("no error gave one")
	}
}
