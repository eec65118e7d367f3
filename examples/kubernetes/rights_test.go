package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testkube"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry/kube"
	"github.com/ashore-mesh/ashore/registry/kube/crd"
	"github.com/ashore-mesh/ashore/registry/kube/identity"
)

// right is what ashored may do, or must not be able to do. resource is "GROUP/RESOURCE" and perhaps
// "/SUBRESOURCE". Empty namespace: all.
type right struct{ verbs, resource, namespace, name string }

// rights are those that the code uses.
func rights() []right {
	out := []right{
		// registry/kube/services
		{"list watch", "/services", "", ""},
		{"list watch", "/pods", "", ""},
		{"list watch", "/nodes", "", ""},
		{"list watch", "/namespaces", "", ""},
		{"list watch", "discovery.k8s.io/endpointslices", "", ""},
		// kube.Cluster.Lead
		{"create", "coordination.k8s.io/leases", "istio-system", ""},
		{"get update", "coordination.k8s.io/leases", "istio-system", "ashored-leader"},
		// registry/kube/crd
		{"list watch patch", "admissionregistration.k8s.io/validatingwebhookconfigurations", "", "ashore"},
		{"create", "networking.istio.io/gateways", "istio-system", ""},
		// registry/kube/identity
		{"create", "authentication.k8s.io/tokenreviews", "", ""},
		{"list watch", "/configmaps", "", "istio-ca-root-cert"},
		{"create patch", "/configmaps", "shop", "istio-ca-root-cert"},
		{"create", "authorization.k8s.io/subjectaccessreviews", "", ""},
		{"list watch", "/secrets", "", ""},
		{"create watch delete", "certificates.k8s.io/certificatesigningrequests", "", ""},
		{"update", "certificates.k8s.io/certificatesigningrequests/approval", "", ""},
		{"approve", "certificates.k8s.io/signers", "", "example.com/mesh"},
	}
	for _, k := range config.Kinds() {
		out = append(out, right{"list watch", k.Group + "/" + k.Plural, "", ""},
			right{"patch", k.Group + "/" + k.Plural + "/status", "shop", ""})
	}
	return out
}

// excess are rights that others could misuse.
func excess() []right {
	return []right{
		{"get list watch create update patch delete", "/secrets", "shop", "web"},
		{"create update patch delete", "/services", "shop", "web"},
		{"create update patch delete", "/pods", "shop", "web"},
		{"get list watch update patch delete", "/configmaps", "shop", "other"},
		{"create", "/serviceaccounts/token", "shop", "web"},
		{"create update patch delete", "networking.istio.io/virtualservices", "shop", "web"},
		{"create", "networking.istio.io/gateways", "shop", ""},
		{"get update patch delete", "coordination.k8s.io/leases", "istio-system", "other"},
		{"update patch delete", "admissionregistration.k8s.io/validatingwebhookconfigurations", "", "other"},
		{"approve", "certificates.k8s.io/signers", "", "kubernetes.io/kube-apiserver-client"},
		{"create update", "rbac.authorization.k8s.io/clusterroles", "", ""},
		{"impersonate", "/users", "", ""},
	}
}

// allowed asks the API server about each verb of a right of the service account of ashored.
func (r right) allowed(t *testing.T, c kubernetes.Interface) map[string]bool {
	t.Helper()
	group, resource, _ := strings.Cut(r.resource, "/")
	resource, sub, _ := strings.Cut(resource, "/")
	out := map[string]bool{}
	for _, verb := range strings.Fields(r.verbs) {
		review, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:istio-system:ashored",
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: r.namespace, Name: r.name,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out[verb] = review.Status.Allowed
	}
	return out
}

// A real API server accepts the manifests. The roles allow what ashored does, and nothing else.
func TestRights(t *testing.T) {
	t.Parallel()
	api := testkube.Start(t, &testkube.Machine{})
	client, objects := connect(t, api)
	all := manifests(t)
	isNamespace := func(m manifest) bool { return m.resource.Resource == "namespaces" }
	all = append(slices.DeleteFunc(slices.Clone(all), func(m manifest) bool { return !isNamespace(m) }),
		slices.DeleteFunc(all, isNamespace)...)
	for _, m := range all {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(m.text, &u.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Resource(m.resource).Namespace(m.object.GetNamespace()).Create(t.Context(), u,
			metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Errorf("%s: %v", m.file, err)
		}
	}
	account := api.Kubeconfig("istio-system", "ashored")
	leading(t, client, account)
	for _, r := range excess() {
		for verb, allowed := range r.allowed(t, client) {
			if allowed {
				t.Errorf("ashored may %s %+v", verb, r)
			}
		}
	}
	for _, role := range []string{"ashored-secrets", "ashored-signer"} {
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "ashored", Namespace: "istio-system"}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range rights() {
		eventually(t, func() error {
			for verb, allowed := range r.allowed(t, client) {
				if !allowed {
					return fmt.Errorf("ashored may not %s %+v", verb, r)
				}
			}
			return nil
		})
	}
}

// connect returns clients of the administrator.
func connect(t *testing.T, api *testkube.Cluster) (kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	config := &rest.Config{Host: api.URL, QPS: -1}
	client, err := kubernetes.NewForConfigAndClient(config, api.Client)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, api.Client)
	if err != nil {
		t.Fatal(err)
	}
	return client, objects
}

// leading has parts of ashored do what only the leader does, with the rights of the account.
func leading(t *testing.T, client kubernetes.Interface, kubeconfig string) {
	t.Helper()
	options := kube.DefaultOptions()
	options.Kubeconfig = kubeconfig
	cluster, err := kube.Connect("local", options, testlog.New(t))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ca.NewManager(t.Context(), ca.ManagerConfig{Dir: t.TempDir(), TrustDomain: "cluster.local",
		Records: record.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	pem := authority.Bundle().PEM()
	read := func() []byte { return pem }
	roots := identity.NewRootWriter(identity.RootWriterConfig{Cluster: cluster, Roots: read, Changed: authority.Changed})
	hook := crd.NewWebhook(crd.WebhookConfig{Cluster: cluster, Roots: read})
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	report := func(err error) { // the API server learns of a binding a moment later
		if err != nil && ctx.Err() == nil {
			t.Logf("the leader: %v", err)
		}
	}
	parts.Go(func() {
		cluster.Lead(ctx, "one", report, func(ctx context.Context) {
			var both sync.WaitGroup
			both.Go(func() { roots.Run(ctx) })
			both.Go(func() { hook.Run(ctx) })
			both.Wait()
		})
	})
	eventually(t, func() error {
		found, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "istio-ca-root-cert", metav1.GetOptions{})
		if err == nil && found.Data["root-cert.pem"] != string(pem) {
			err = fmt.Errorf("it has %q", found.Data)
		}
		return err
	})
	eventually(t, func() error {
		hooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		found, err := hooks.Get(t.Context(), "ashore", metav1.GetOptions{})
		if err == nil && !bytes.Equal(found.Webhooks[0].ClientConfig.CABundle, pem) {
			err = fmt.Errorf("the caBundle is %q, %v", found.Webhooks[0].ClientConfig.CABundle, hook.Problems())
		}
		return err
	})
	if found := roots.Problems(); len(found) > 0 {
		t.Error(found)
	}
}

// eventually waits until f returns no error.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
