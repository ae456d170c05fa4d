package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"

	"proxyfleet/internal/backends"
)

// oldestServer is the first version whose Pods may sleep before they end, and know their
// node's addresses, by default.
var oldestServer = version.MajorMinor(1, 30)

// Check implements [backends.Backend]. While the API server does not answer, that is the only
// target. Nothing is made: Pods are tried by a dry run.
func (b *Backend) Check(ctx context.Context) []backends.TargetHealth {
	info, err := b.serverVersion(ctx)
	if err != nil {
		return []backends.TargetHealth{unwell("api", err, "the API server does not answer as it should")}
	}
	api := backends.TargetHealth{Target: "api", Code: backends.CheckOK, Details: map[string]string{"version": info}}
	if v, err := version.ParseGeneric(info); err != nil || v.LessThan(oldestServer) {
		api.Code, api.Message = backends.CheckAPIError, "Kubernetes "+info+" is older than "+oldestServer.String()+", the oldest that has what the Pods use"
	}
	out := []backends.TargetHealth{api, b.checkRights(ctx)}
	out = append(out, b.checkPods(ctx)...)
	return append(out, b.checkNodes(ctx))
}

func (b *Backend) serverVersion(ctx context.Context) (string, error) {
	raw, err := b.api.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var info apiversion.Info
	err = json.Unmarshal(raw, &info)
	return info.GitVersion, err
}

// unwell is a target about which err was met.
func unwell(target string, err error, what string) backends.TargetHealth {
	_, hint := judgeError(err)
	message := what + ": " + err.Error()
	if hint != "" {
		message += "; " + hint
	}
	return backends.TargetHealth{Target: target, Code: code(err), Message: message}
}

// code is the stable code for an error of the client.
func code(err error) string {
	var credential *credentialError
	var answer apierrors.APIStatus
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return backends.CheckTimeout
	case errors.As(err, &credential):
		return backends.CheckCredentialsUnavailable
	case untrusted(err):
		return backends.CheckCertificateInvalid
	case !errors.As(err, &answer):
		return backends.CheckUnreachable
	}
	switch s := answer.Status(); {
	case s.Code == http.StatusUnauthorized:
		return backends.CheckUnauthorized
	case namespaceMissing(err):
		return backends.CheckNamespaceNotFound
	case s.Code == http.StatusForbidden && strings.Contains(s.Message, "exceeded quota: "):
		return backends.CheckQuotaExhausted
	case s.Code == http.StatusForbidden:
		return backends.CheckForbidden
	}
	return backends.CheckAPIError
}

// checkPods has the API server try a Pod of each image: whether the namespace is there, its
// Pod security, quotas and policies take it. The smallest machine type stands for all.
func (b *Backend) checkPods(ctx context.Context) (out []backends.TargetHealth) {
	shapes := slices.SortedFunc(maps.Values(b.host.MachineTypes), func(x, y backends.MachineType) int { return x.MemoryMiB - y.MemoryMiB })
	if len(shapes) == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(b.host.Images)) {
		p := plan{req: backends.Request{Ref: backends.Ref{Proxy: "check", UID: "check"}}, image: b.host.Images[key].Container, shape: shapes[0], listen: DefaultPort}
		pod := b.pod(p, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pf-check", UID: types.UID("check")}})
		h := backends.TargetHealth{Target: "image/" + key, Code: backends.CheckOK, Details: map[string]string{"container": p.image}}
		_, err := b.api.CoreV1().Pods(b.conf.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			h = unwell(h.Target, err, "the namespace does not take its Pods")
		}
		out = append(out, h)
	}
	return out
}

// checkNodes looks for nodes that may run proxies.
func (b *Backend) checkNodes(ctx context.Context) backends.TargetHealth {
	h := backends.TargetHealth{Target: "nodes", Code: backends.CheckOK}
	c, left, _, err := b.survey(ctx, space{})
	if err != nil {
		return unwell(h.Target, err, "what the cluster has left is not known")
	}
	h.Details = map[string]string{"nodes": strconv.Itoa(len(c.free))}
	for what, n := range map[string]int64{"quotaMilliCPU": left.milliCPU, "quotaMemoryMiB": left.memory / mib, "quotaProxies": left.pods} {
		if n < unlimited/mib {
			h.Details[what] = strconv.FormatInt(n, 10)
		}
	}
	if len(c.free) == 0 {
		h.Code, h.Message = backends.CheckUnreachable, fmt.Sprintf("no node is ready, has labels %v, and has no taint but those that are tolerated", b.conf.NodeSelector)
	}
	return h
}
