package kubernetes

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proxyfleet/internal/backends/squid"
)

const (
	containerName = "squid"
	portName      = "proxy"

	configDir     = "/etc/proxyfleet"
	passwordsPath = configDir + "/" + passwordsKey
	runDir        = "/run/squid"
	ownAddresses  = runDir + "/own-addresses"

	// User is Debian's "proxy", whom its squid package runs as; see deploy/kubernetes/Dockerfile.
	user = 13
	// killMargin is what Squid gets to end beyond its own shutdown lifetime.
	killMargin = 5 * time.Second
	// firstFreePort is the first that needs no privilege to listen on.
	firstFreePort = 1024
)

// command writes the addresses of the Pod and of its node, which Squid refuses as
// destinations, and becomes Squid. It needs a shell and tr in the image.
var command = []string{"/bin/sh", "-c",
	`echo "$POD_IPS,$HOST_IPS" | tr , '\n' >` + ownAddresses + ` && exec /usr/sbin/squid -N -f ` + configDir + "/" + confKey}

// pod runs Squid as the restricted Pod Security Standard asks
// (https://kubernetes.io/docs/concepts/security/pod-security-standards/).
func (b *Backend) pod(p plan, owner *corev1.Secret) *corev1.Pod {
	meta := b.owned(p, owner)
	meta.Annotations = map[string]string{
		annotationConfig: p.config,
		// No controller makes it again, but the agent does: a node may be scaled away.
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
	}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: new(int64((b.conf.Drain + squid.ShutdownLifetime + killMargin).Seconds())),
		NodeSelector:                  b.conf.NodeSelector,
		Tolerations:                   b.conf.tolerations(),
		PriorityClassName:             b.conf.PriorityClass,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)),
			FSGroup: new(int64(user)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{b.container(p)},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: owner.Name, DefaultMode: new(int32(0o440)),
				Items: []corev1.KeyToPath{{Key: confKey, Path: confKey}, {Key: passwordsKey, Path: passwordsKey}}}}},
			{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("1Mi"))}}},
		},
		TopologySpreadConstraints: b.spread(p),
	}}
	if b.conf.PullSecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: b.conf.PullSecret}}
	}
	if p.listen < firstFreePort { // a sysctl of the Pod's own network, which the standard allows
		pod.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	}
	return pod
}

func (b *Backend) container(p plan) corev1.Container {
	// Asked and allowed alike: neither takes from its neighbours, and quotas of both kinds hold.
	resources := requests(p.shape)
	// Its own listener and nothing behind it: a target that fails must restart no proxy. A
	// connection, not a request: the kubelet has no credentials, and none belong here.
	listener := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(portName)}}
	return corev1.Container{
		Name: containerName, Image: p.image, ImagePullPolicy: corev1.PullPolicy(b.conf.ImagePullPolicy), Command: command,
		Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: int32(p.listen), Protocol: corev1.ProtocolTCP}},
		Env: []corev1.EnvVar{
			{Name: "POD_IPS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIPs"}}},
			{Name: "HOST_IPS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.hostIPs"}}},
		},
		Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: configDir, ReadOnly: true},
			{Name: "run", MountPath: runDir},
		},
		ReadinessProbe: &corev1.Probe{ProbeHandler: listener, PeriodSeconds: 2, TimeoutSeconds: 2, FailureThreshold: 3},
		LivenessProbe:  &corev1.Probe{ProbeHandler: listener, InitialDelaySeconds: 10, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3},
		// The kubelet's own pause, so that the image needs no sleep: whoever balances over the
		// proxies learns that this one ends while it still serves.
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(b.conf.Drain.Seconds())}}},
		SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
	}
}

// spread keeps members of a pool apart, over zones and over nodes, where there is a choice.
func (b *Backend) spread(p plan) []corev1.TopologySpreadConstraint {
	if p.req.Pool == "" {
		return nil
	}
	var out []corev1.TopologySpreadConstraint
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
		out = append(out, corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: b.poolLabels(p.req.Pool)}})
	}
	return out
}
