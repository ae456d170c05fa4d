package kubetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// callTime bounds each request of a test.
const callTime = time.Minute

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTime)
}

// AddNode adds a node in a zone of its own and waits until Pods can go there.
func (c *Cluster) AddNode(t testing.TB, name, cpu, memory string) {
	t.Helper()
	ctx, cancel := within()
	defer cancel()
	has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse("110")}
	nodes := c.API.CoreV1().Nodes()
	n, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: "zone-of-" + name}}}, metav1.CreateOptions{})
	must(t, err)
	n.Status.Allocatable, n.Status.Capacity = has, has
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	must(t, err)
	eventually(t, "node "+name, func() error {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
				n.Spec.Taints = nil // which a controller would take away
				_, err := nodes.Update(ctx, n, metav1.UpdateOptions{})
				return err
			}
		}
		return errors.New("it is not ready")
	})
}

// AddNamespace makes a namespace that takes Pods of the restricted standard only.
func (c *Cluster) AddNamespace(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := within()
	defer cancel()
	_, err := c.API.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.API.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	must(t, err)
}

// Agent is the service account of an agent, with exactly the rights of
// deploy/kubernetes/rbac.yaml.
type Agent struct {
	Kubeconfig string
	TokenFile  string // that the kubeconfig names
	Account    string
}

// AddAgent makes a service account in a namespace and gives it the rights of an agent there.
func (c *Cluster) AddAgent(t testing.TB, namespace, name string) Agent {
	t.Helper()
	ctx, cancel := within()
	defer cancel()
	_, err := c.API.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}}
	for _, o := range Manifest(t, "rbac.yaml") {
		switch o := o.(type) {
		case *rbacv1.Role:
			o.Namespace, o.Name = namespace, name
			_, err = c.API.RbacV1().Roles(namespace).Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			o.Namespace, o.Name, o.Subjects, o.RoleRef.Name = namespace, name, subject, name
			_, err = c.API.RbacV1().RoleBindings(namespace).Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.ClusterRole:
			o.Name = namespace + "-" + name
			_, err = c.API.RbacV1().ClusterRoles().Create(ctx, o, metav1.CreateOptions{})
		case *rbacv1.ClusterRoleBinding:
			o.Name, o.Subjects, o.RoleRef.Name = namespace+"-"+name, subject, namespace+"-"+name
			_, err = c.API.RbacV1().ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
		}
		must(t, err)
	}
	a := Agent{TokenFile: c.path(namespace + "-" + name + ".token"), Account: name}
	must(t, os.WriteFile(a.TokenFile, []byte(c.Token(t, namespace, name)), 0o600))
	a.Kubeconfig = c.Kubeconfig(t, namespace+"-"+name, &clientcmdapi.AuthInfo{TokenFile: a.TokenFile})
	return a
}

// Token issues a new token of a service account.
func (c *Cluster) Token(t testing.TB, namespace, account string) string {
	t.Helper()
	return c.BoundToken(t, namespace, account, nil)
}

// BoundToken issues a token that is revoked by deleting a Secret.
func (c *Cluster) BoundToken(t testing.TB, namespace, account string, to *corev1.Secret) string {
	t.Helper()
	ctx, cancel := within()
	defer cancel()
	req := &authenticationv1.TokenRequest{}
	if to != nil {
		req.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: to.Name, UID: to.UID}
	}
	r, err := c.API.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, req, metav1.CreateOptions{})
	must(t, err)
	return r.Status.Token
}

// Manifest reads the objects of a file of deploy/kubernetes.
func Manifest(t testing.TB, name string) (out []apiruntime.Object) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../../deploy/kubernetes", name))
	must(t, err)
	decode := scheme.Codecs.UniversalDeserializer()
	for docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		o, _, err := decode.Decode(doc, nil, nil)
		must(t, err)
		out = append(out, o)
	}
}
