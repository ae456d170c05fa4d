package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxyfleet/internal/backends"
)

// classify gives an error of the client its class. An error that has one keeps it.
func classify(op string, err error, format string, args ...any) error {
	return backends.Judge(op, err, judgeError, format, args...)
}

// judgeError returns the class of an error of the client, and what to do about it where
// there is something to say.
func judgeError(err error) (class error, hint string) {
	var credential *credentialError
	switch {
	case backends.Ended(err):
		return backends.ErrTransient, ""
	case errors.As(err, &credential):
		return backends.ErrHostFault, "put them right on this host; they are read again by themselves"
	case untrusted(err):
		return backends.ErrHostFault, "the API server's certificate does not fit the configured CA"
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return backends.ErrTransient, ""
	}
	s := answer.Status()
	switch s.Code {
	case http.StatusUnauthorized:
		return backends.ErrHostFault, "the API server does not know these credentials, or they have expired"
	case http.StatusForbidden:
		return judgeForbidden(s)
	case http.StatusNotFound:
		if s.Details != nil && s.Details.Kind == "namespaces" {
			return backends.ErrHostFault, "the namespace does not exist; make it, or mend the agent's configuration"
		}
		return backends.ErrTransient, "" // something vanished under us
	case http.StatusUnprocessableEntity:
		if strings.Contains(s.Message, "port is already allocated") {
			return backends.ErrNoCapacity, "another Service of the cluster has this port"
		}
		return backends.ErrPermanent, ""
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return backends.ErrPermanent, ""
	}
	return backends.ErrTransient, ""
}

// judgeForbidden tells apart what answers 403. The authoriser knows no name of what is to be
// created, so its status has none; admission (quotas, limits, Pod security, webhooks) names
// the object. Of other calls the text tells: the authoriser always says who cannot do what.
func judgeForbidden(s metav1.Status) (class error, hint string) {
	authoriser := s.Details == nil || s.Details.Name == "" || strings.Contains(s.Message, `: User "`) && strings.Contains(s.Message, `" cannot `)
	switch {
	case authoriser:
		return backends.ErrHostFault, "the agent lacks a right; its checks name which"
	case apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: s}, corev1.NamespaceTerminatingCause):
		return backends.ErrHostFault, "the namespace is being deleted"
	case strings.Contains(s.Message, "exceeded quota: "):
		return backends.ErrNoCapacity, "a quota of the namespace is exhausted"
	case strings.Contains(s.Message, "no PriorityClass with name"):
		return backends.ErrHostFault, "make the PriorityClass, or mend the agent's configuration"
	case strings.Contains(s.Message, "violates PodSecurity"):
		return backends.ErrHostFault, "the namespace's Pod security refuses what the agent makes; it needs restricted or less"
	}
	return backends.ErrPermanent, "the cluster's admission refuses it"
}

func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &hostname)
}
