// Package kubernetes tests the manifests of this folder.
package kubernetes

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ashore-mesh/ashore/internal/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is an object of a manifest.
type object interface {
	runtime.Object
	metav1.Object
}

// kinds are those of the manifests: a new object, and the collection of the API.
var kinds = map[string]struct {
	new        func() object
	collection string
}{
	"v1 Namespace":             {func() object { return &corev1.Namespace{} }, "namespaces"},
	"v1 ServiceAccount":        {func() object { return &corev1.ServiceAccount{} }, "serviceaccounts"},
	"v1 ConfigMap":             {func() object { return &corev1.ConfigMap{} }, "configmaps"},
	"v1 Service":               {func() object { return &corev1.Service{} }, "services"},
	"v1 PersistentVolumeClaim": {func() object { return &corev1.PersistentVolumeClaim{} }, "persistentvolumeclaims"},
	"apps/v1 Deployment":       {func() object { return &appsv1.Deployment{} }, "deployments"},
	"rbac.authorization.k8s.io/v1 ClusterRole": {
		func() object { return &rbacv1.ClusterRole{} }, "clusterroles",
	},
	"rbac.authorization.k8s.io/v1 Role": {func() object { return &rbacv1.Role{} }, "roles"},
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": {
		func() object { return &rbacv1.ClusterRoleBinding{} }, "clusterrolebindings",
	},
	"rbac.authorization.k8s.io/v1 RoleBinding": {
		func() object { return &rbacv1.RoleBinding{} }, "rolebindings",
	},
	"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration": {
		func() object { return &admissionregistrationv1.ValidatingWebhookConfiguration{} }, "validatingwebhookconfigurations",
	},
}

// manifest is an object with its text.
type manifest struct {
	file     string
	resource schema.GroupVersionResource
	object   object
	text     []byte
}

// manifests reads all files but the CRDs. An unknown or duplicate field is an error.
func manifests(t *testing.T) (out []manifest) {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		if file == "crds.yaml" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			text, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			var kind metav1.TypeMeta
			if err == nil {
				err = yaml.Unmarshal(text, &kind)
			}
			k, known := kinds[kind.APIVersion+" "+kind.Kind]
			if err != nil || !known {
				t.Fatalf("%s: %+v: %v", file, kind, err)
			}
			o := k.new()
			if err := yaml.UnmarshalStrict(text, o); err != nil {
				t.Errorf("%s: %s %s: %v", file, kind.Kind, o.GetName(), err)
			}
			version := o.GetObjectKind().GroupVersionKind().GroupVersion()
			out = append(out, manifest{file, version.WithResource(k.collection), o, text})
		}
	}
	return out
}

// find returns the objects of a type.
func find[T object](all []manifest) (out []T) {
	for _, m := range all {
		if o, ok := m.object.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

// The manifests have no unknown field, and what they name in one another exists.
func TestManifests(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	var roles, bound []string
	for _, r := range find[*rbacv1.ClusterRole](all) {
		roles = append(roles, "ClusterRole "+r.Name)
	}
	for _, r := range find[*rbacv1.Role](all) {
		roles = append(roles, "Role "+r.Name)
	}
	for _, b := range find[*rbacv1.ClusterRoleBinding](all) {
		bound = append(bound, b.RoleRef.Kind+" "+b.RoleRef.Name)
	}
	for _, b := range find[*rbacv1.RoleBinding](all) {
		bound = append(bound, b.RoleRef.Kind+" "+b.RoleRef.Name)
	}
	bound = append(bound, "ClusterRole ashored-secrets", "ClusterRole ashored-signer") // by commands of README.md
	slices.Sort(roles)
	slices.Sort(bound)
	if !slices.Equal(roles, bound) {
		t.Errorf("roles %q, bindings of %q", roles, bound)
	}
	deployment := find[*appsv1.Deployment](all)[0]
	ports := map[string]int32{}
	for _, p := range deployment.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	service := find[*corev1.Service](all)[0]
	for _, p := range service.Spec.Ports {
		if ports[p.TargetPort.StrVal] != p.Port {
			t.Errorf("port %d of the Service %s leads to %s, which is %d", p.Port, service.Name, p.TargetPort.StrVal,
				ports[p.TargetPort.StrVal])
		}
	}
	hook := find[*admissionregistrationv1.ValidatingWebhookConfiguration](all)[0].Webhooks[0].ClientConfig.Service
	if hook.Name != service.Name || hook.Namespace != service.Namespace || *hook.Port != ports["webhook"] {
		t.Errorf("the webhook calls %+v", hook)
	}
}

// The settings are valid, and use the ports, folders and names of the Deployment.
func TestSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ashored.yaml")
	all := manifests(t)
	text := find[*corev1.ConfigMap](all)[slices.IndexFunc(find[*corev1.ConfigMap](all), func(c *corev1.ConfigMap) bool {
		return c.Name == "ashored"
	})].Data["ashored.yaml"]
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := settings.Read(settings.Flags{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if s.XDS.Address != ":15012" || s.Metrics.Address != ":15014" || s.Webhook.Address != ":15017" {
		t.Errorf("addresses %q, %q, %q", s.XDS.Address, s.Metrics.Address, s.Webhook.Address)
	}
	var mounts []string
	for _, m := range find[*appsv1.Deployment](all)[0].Spec.Template.Spec.Containers[0].VolumeMounts {
		mounts = append(mounts, m.MountPath)
	}
	// A folder of its own below the volume, because the volume itself can be written by a group.
	for _, path := range []string{s.State, s.Admin.Socket, settings.DefaultFile} {
		if !slices.Contains(mounts, filepath.Dir(path)) {
			t.Errorf("%s is in no volume of %q", path, mounts)
		}
	}
}

// Every container runs with as little as it needs. Only the one that changes the Pod's network runs
// as root, and it has a single capability.
func TestSecurityContexts(t *testing.T) {
	t.Parallel()
	for _, d := range find[*appsv1.Deployment](manifests(t)) {
		pod := d.Spec.Template.Spec
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if !strings.HasPrefix(c.Image, "localhost/") {
				continue // the application
			}
			s := c.SecurityContext
			root := s.RunAsUser != nil && *s.RunAsUser == 0
			nonRoot := s.RunAsNonRoot != nil && *s.RunAsNonRoot || pod.SecurityContext != nil &&
				pod.SecurityContext.RunAsNonRoot != nil && *pod.SecurityContext.RunAsNonRoot
			if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s of %s: %+v", c.Name, d.Name, s)
			}
			network := slices.Equal(s.Capabilities.Add, []corev1.Capability{"NET_ADMIN"})
			if root != (c.Name == "redirect") || nonRoot == root || root != network {
				t.Errorf("%s of %s: root %v, not root %v, capabilities %v", c.Name, d.Name, root, nonRoot, s.Capabilities)
			}
			if c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s of %s has no limit of memory", c.Name, d.Name)
			}
		}
	}
}
