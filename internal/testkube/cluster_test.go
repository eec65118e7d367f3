package testkube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is what the test reads of an object.
type object struct {
	Metadata struct{ Name, ResourceVersion string }
	Status   struct {
		Authenticated, Allowed bool
		Audiences              []string
		Replicas               int
	}
}

// A cluster creates the Pods of a Deployment, issues tokens, and has RBAC. It keeps its objects over
// an outage, and loses the history of its watches and its data when told to.
func TestCluster(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	c := Start(t, &Machine{})
	t.Logf("started within %v", time.Since(begin).Round(time.Millisecond))

	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	labels := map[string]any{"app": "web"}
	must(t, c.Call(http.MethodPost, deployments, map[string]any{
		"metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"replicas": 2, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "none"}}}}},
	}, nil))
	var before object
	c.eventually("the Deployment has Pods", func() error {
		err := c.Call(http.MethodGet, deployments+"/web", nil, &before)
		if err == nil && before.Status.Replicas != 2 {
			err = fmt.Errorf("it has %d", before.Status.Replicas)
		}
		return err
	})

	var review object
	must(t, c.Call(http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", map[string]any{
		"spec": map[string]any{"token": c.Token("default", "default", "", "istio-ca"), "audiences": []string{"istio-ca"}},
	}, &review))
	if !review.Status.Authenticated || len(review.Status.Audiences) != 1 {
		t.Errorf("the review of a token is %+v", review.Status)
	}
	var access object
	must(t, c.Call(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", map[string]any{"spec": map[string]any{
		"user": "system:serviceaccount:default:default", "resourceAttributes": map[string]any{"verb": "list", "resource": "pods"},
	}}, &access))
	if access.Status.Allowed {
		t.Error("a ServiceAccount without a role may list Pods")
	}
	if c.Kubeconfig("default", "default") == c.Admin {
		t.Error("a ServiceAccount has the kubeconfig of the administrator")
	}

	c.StopAPI()
	if err := c.Call(http.MethodGet, "/readyz", nil, nil); err == nil {
		t.Error("a stopped API server answers")
	}
	c.StartAPI()
	must(t, c.Call(http.MethodPatch, deployments+"/web", nil, nil), "415")
	must(t, c.Call(http.MethodDelete, deployments+"/web", nil, nil))
	c.StopAPI()
	c.StartAPI()
	var event struct {
		Type   string
		Object struct{ Code int }
	}
	must(t, c.Call(http.MethodGet, deployments+"?watch=true&timeoutSeconds=5&resourceVersion="+
		before.Metadata.ResourceVersion, nil, &event))
	if event.Type != "ERROR" || event.Object.Code != http.StatusGone {
		t.Errorf("a watch from an old version got %+v, want code 410", event)
	}

	must(t, c.Call(http.MethodGet, "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", nil, nil))
	must(t, c.Call(http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "shop"}}, nil))
	c.Forget()
	must(t, c.Call(http.MethodGet, "/api/v1/namespaces/shop", nil, nil), "404")
}

// must fails the test unless err is nil or has all of words.
func must(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil && len(words) > 0 {
		t.Fatalf("no error, want one with %q", words)
	}
	if err != nil && len(words) == 0 {
		t.Fatal(err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("got %v, want an error with %q", err, w)
		}
	}
}
