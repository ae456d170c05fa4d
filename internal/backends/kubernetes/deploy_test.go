package kubernetes

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"proxyfleet/internal/backends/kubernetes/kubetest"
)

// dockerfile are the instructions of a file of deploy/kubernetes, in their order.
type dockerfile []string

func readDockerfile(t *testing.T, name string) (out dockerfile) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../deploy/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// last is what the last instruction of a kind says.
func (d dockerfile) last(instruction string) string {
	for _, line := range slices.Backward(d) {
		if rest, ok := strings.CutPrefix(line, instruction+" "); ok {
			return rest
		}
	}
	return ""
}

// deployment is the agent's, and the one container that it has.
func deployment(t *testing.T) (*appsv1.Deployment, corev1.Container) {
	t.Helper()
	for _, o := range kubetest.Manifest(t, "agent.yaml") {
		if d, ok := o.(*appsv1.Deployment); ok && len(d.Spec.Template.Spec.Containers) == 1 {
			return d, d.Spec.Template.Spec.Containers[0]
		}
	}
	t.Fatal("there is no Deployment with one container")
	return nil, corev1.Container{}
}

func TestTheAgentsImageFitsItsDeployment(t *testing.T) {
	image := readDockerfile(t, "agent.Dockerfile")
	d, box := deployment(t)
	pod := d.Spec.Template.Spec
	if got, want := image.last("USER"), fmt.Sprintf("%d:%d", *pod.SecurityContext.RunAsUser, *pod.SecurityContext.RunAsGroup); got != want {
		t.Errorf("the image is of user %s, the Pod runs as %s", got, want)
	}
	if box.Command != nil {
		t.Errorf("the Deployment replaces the image's entry point by %v", box.Command)
	}
	built := regexp.MustCompile(` -o (\S+) \./cmd/agent$`).FindStringSubmatch(image.last("RUN"))
	program := strings.Trim(image.last("ENTRYPOINT"), `[]"`)
	if built == nil || image.last("COPY") != "--from=build "+built[1]+" "+program {
		t.Errorf("%q is built, %q is put there, and %q is run", image.last("RUN"), image.last("COPY"), program)
	}
	module, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module)); want == nil || image[0] != "FROM golang:"+want[1]+" AS build" {
		t.Errorf("it is built by %q, want a compiler of %q", image[0], want)
	}
}

func TestTheSquidImageFitsThePods(t *testing.T) {
	image := readDockerfile(t, "Dockerfile")
	if want := fmt.Sprintf("%d:%d", user, user); image.last("USER") != want {
		t.Errorf("the image is of user %s, Pods run as %s", image.last("USER"), want)
	}
	if !strings.Contains(image.last("RUN"), " squid ") {
		t.Errorf("Squid is not in it: %s", image.last("RUN"))
	}
}

// One agent of an identity at a time, which may go at any moment.
func TestTheDeploymentRunsOneAgent(t *testing.T) {
	d, box := deployment(t)
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("%d replicas, strategy %s", *d.Spec.Replicas, d.Spec.Strategy.Type)
	}
	mounts := map[string]string{}
	for _, m := range box.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if mounts[v.Name] == "" {
			t.Errorf("volume %s is mounted nowhere", v.Name)
		}
		if claim := v.PersistentVolumeClaim; v.Name == "state" && (claim == nil || claim.ClaimName != "proxyfleet-agent") {
			t.Errorf("the state is kept on %+v", v)
		}
	}
	if mounts["state"] != "/var/lib/proxyfleet" || !slices.Contains(box.Args, mounts["config"]) {
		t.Errorf("the state is at %s, the arguments %v do not name %s", mounts["state"], box.Args, mounts["config"])
	}
	for _, o := range kubetest.Manifest(t, "agent.yaml") {
		switch o := o.(type) {
		case *corev1.PersistentVolumeClaim:
			if !slices.Equal(o.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}) {
				t.Errorf("the state may be shared: %v", o.Spec.AccessModes)
			}
		case *corev1.ConfigMap:
			if !strings.Contains(o.Data["agent.yaml"], "credentials: "+mounts["nats"]+"/") || path.Base(mounts["config"]) != "agent.yaml" {
				t.Errorf("the configuration at %s does not look for the credentials in %s:\n%s", mounts["config"], mounts["nats"], o.Data["agent.yaml"])
			}
		}
	}
	if live, ready := box.LivenessProbe.HTTPGet.Path, box.ReadinessProbe.HTTPGet.Path; live == "/healthz" || ready != "/healthz" {
		t.Errorf("it is restarted by %s and ready by %s; what /healthz says, no restart mends", live, ready)
	}
}
