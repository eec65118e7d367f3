package identity

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// newCluster is a cluster that a fake client stands for.
func newCluster(name string, objects ...runtime.Object) (*kube.Cluster, *fake.Clientset) {
	client := fake.NewClientset(objects...)
	options := kube.Options{Cluster: name}
	return &kube.Cluster{Name: name, Options: options, Log: hclog.NewNullLogger(), Client: client}, client
}

// react answers the creation of a resource.
func react[T runtime.Object](c *fake.Clientset, resource string, f func(T) error) {
	c.PrependReactor("create", resource, func(a ktesting.Action) (bool, runtime.Object, error) {
		o := a.(ktesting.CreateAction).GetObject().(T)
		err := f(o)
		return true, o, err
	})
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no such right"))
}

// wantProblem wants one problem with these words, or none.
func wantProblem(t *testing.T, got []feed.Problem, words string) {
	t.Helper()
	if words == "" && len(got) > 0 || words != "" && (len(got) != 1 || !strings.Contains(got[0].String(), words)) {
		t.Errorf("problems are %v, want %q", got, words)
	}
}

// eventually waits until f returns no text.
func eventually(t *testing.T, f func() string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		text := f()
		if text == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(text)
		}
	}
}

// A review proves a service account only if all of it does.
func TestReview(t *testing.T) {
	t.Parallel()
	type status = authenticationv1.TokenReviewStatus
	good := status{Authenticated: true, Audiences: []string{"istio-ca"},
		User: authenticationv1.UserInfo{Username: "system:serviceaccount:shop:web"}}
	with := func(change func(*status)) status {
		s := good
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		status status
		want   string
	}{
		"good": {good, ""},
		"not authenticated": {with(func(s *status) { s.Authenticated, s.Error = false, "expired" }),
			"does not accept the token: expired"},
		"an error":    {with(func(s *status) { s.Error = "odd" }), "does not accept the token: odd"},
		"audience":    {with(func(s *status) { s.Audiences = []string{"api"} }), `is for ["api"]`},
		"no audience": {with(func(s *status) { s.Audiences = nil }), "want the audience istio-ca"},
		"a user":      {with(func(s *status) { s.User.Username = "admin" }), "which is no service account"},
		"no name": {with(func(s *status) { s.User.Username = "system:serviceaccount:shop" }),
			"no service account"},
	} {
		c, client := newCluster("east")
		react(client, "tokenreviews", func(r *authenticationv1.TokenReview) error {
			if r.Spec.Token != "text" || !slices.Equal(r.Spec.Audiences, []string{"istio-ca"}) {
				t.Errorf("%s: asked is %+v", name, r.Spec)
			}
			r.Status = tc.status
			return nil
		})
		namespace, account, refused, err := NewReviewer([]*kube.Cluster{c}).Review(t.Context(), "other", "text")
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want == "" && (refused != nil || namespace != "shop" || account != "web"):
			t.Errorf("%s: got %s/%s, refused %v", name, namespace, account, refused)
		case tc.want != "" && (refused == nil || !strings.Contains(refused.Error(), tc.want)):
			t.Errorf("%s: refused %v, want %q", name, refused, tc.want)
		}
	}
}

// The caller chooses among several clusters. One that cannot review is a problem until it can.
func TestReviewClusters(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	var clusters []*kube.Cluster
	for _, name := range []string{"east", "west"} {
		c, client := newCluster(name)
		react(client, "tokenreviews", func(r *authenticationv1.TokenReview) error {
			if failing.Load() {
				return forbidden("tokenreviews")
			}
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"istio-ca"},
				User: authenticationv1.UserInfo{Username: "system:serviceaccount:" + name + ":web"}}
			return nil
		})
		clusters = append(clusters, c)
	}
	r := NewReviewer(clusters)
	for id, want := range map[string]string{
		"east": "", "west": "",
		"":      "does not name its cluster (header clusterid), and there are several: east, west",
		"north": `names the cluster "north", whose tokens are not accepted; want one of east, west`,
	} {
		namespace, _, refused, err := r.Review(t.Context(), id, "text")
		switch {
		case err != nil, want == "" && (refused != nil || namespace != id):
			t.Errorf("%s: got %s, refused %v, error %v", id, namespace, refused, err)
		case want != "" && (refused == nil || !strings.Contains(refused.Error(), want)):
			t.Errorf("%q: refused %v, want %q", id, refused, want)
		}
	}
	failing.Store(true)
	if _, _, refused, err := r.Review(t.Context(), "west", "text"); refused != nil || err == nil {
		t.Errorf("refused %v, error %v", refused, err)
	}
	wantProblem(t, r.Problems(), "cluster west does not allow ashored to create tokenreviews")
	failing.Store(false)
	if _, _, _, err := r.Review(t.Context(), "west", "text"); err != nil {
		t.Error(err)
	}
	wantProblem(t, r.Problems(), "")
}

// An answer counts for a minute. What is no answer does not.
func TestAccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, client := newCluster("east")
		asked, failing, allowed := 0, true, true
		react(client, "subjectaccessreviews", func(r *authorizationv1.SubjectAccessReview) error {
			asked++
			if failing {
				return forbidden("subjectaccessreviews")
			}
			want := authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:edge:gateway",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "edge", Verb: "list", Resource: "secrets"}}
			if d := cmp.Diff(want, r.Spec); d != "" {
				t.Errorf("asked (-want +got):\n%s", d)
			}
			r.Status.Allowed = allowed
			return nil
		})
		a := NewAccess(c)
		id, err := spiffe.New("cluster.local", "edge", "gateway")
		if err != nil {
			t.Fatal(err)
		}
		may := func(want bool, times int) {
			t.Helper()
			if got, err := a.MayRead(t.Context(), id); err != nil || got != want || asked != times {
				t.Errorf("may: %v, error %v, asked %d times, want %v after %d", got, err, asked, want, times)
			}
		}
		if got, err := a.MayRead(t.Context(), id); got || err == nil {
			t.Errorf("may: %v, error %v", got, err)
		}
		wantProblem(t, a.Problems(), "cluster east does not allow ashored to create subjectaccessreviews")
		failing = false
		may(true, 2)
		wantProblem(t, a.Problems(), "")
		allowed = false
		time.Sleep(59 * time.Second)
		may(true, 2)
		time.Sleep(time.Second)
		may(false, 3)
	})
}

// A request is created, approved, and deleted whatever comes of it.
func TestSign(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sign  func(*certificatesv1.CertificateSigningRequest) // nil: the signer does nothing
		fails string                                          // a verb that is not allowed
		want  string
	}{
		"signed": {sign: func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("chain") }},
		"fails": {sign: func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Reason: "Bad", Message: "no URI"})
		}, want: "the signer example.com/mesh of cluster east refuses: Bad: no URI"},
		"nothing":          {want: "the signer example.com/mesh of cluster east did not sign within 12s"},
		"no right":         {fails: "create", want: "does not allow ashored to create certificatesigningrequests"},
		"no right, either": {fails: "update", want: "to approve certificatesigningrequests of the signer example.com/mesh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, client := newCluster("east")
				if tc.fails != "" {
					client.PrependReactor(tc.fails, "*", func(ktesting.Action) (bool, runtime.Object, error) {
						return true, nil, forbidden("certificatesigningrequests")
					})
				}
				const resource = "certificatesigningrequests"
				client.PrependReactor("update", resource, func(a ktesting.Action) (bool, runtime.Object, error) {
					r := a.(ktesting.UpdateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
					if a.GetSubresource() != "approval" || tc.fails != "" {
						return false, nil, nil
					}
					s, approved := r.Spec, r.Status.Conditions[0].Type == certificatesv1.CertificateApproved
					if string(s.Request) != "request" || s.SignerName != "example.com/mesh" ||
						*s.ExpirationSeconds != 3600 || !approved {
						t.Errorf("approved is %+v", r)
					}
					if tc.sign != nil {
						signed := r.DeepCopy()
						go func() { // the signer
							time.Sleep(time.Second)
							tc.sign(signed)
							_ = client.Tracker().Update(certificatesv1.SchemeGroupVersion.WithResource(resource), signed, "")
						}()
					}
					return false, nil, nil
				})
				// A fake client names nothing by itself.
				client.PrependReactor("create", resource, func(a ktesting.Action) (bool, runtime.Object, error) {
					r := a.(ktesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
					r.Name = r.GenerateName + "1"
					return tc.fails == "create", nil, forbidden("certificatesigningrequests")
				})
				got, err := NewSigner(c, "example.com/mesh").Sign(t.Context(), []byte("request"), time.Hour)
				switch {
				case tc.want == "" && (err != nil || string(got) != "chain"):
					t.Errorf("got %q, error %v", got, err)
				case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
					t.Errorf("error %v, want %q", err, tc.want)
				}
				left, err := client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
				if err != nil || len(left.Items) > 0 {
					t.Errorf("%d requests are left, error %v", len(left.Items), err)
				}
			})
		})
	}
}

// tls makes a Secret.
func tlsSecret(name string, data ...string) *corev1.Secret {
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name,
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "has the key too"}},
		Data: map[string][]byte{"password": []byte("x")}}
	for i := 0; i < len(data); i += 2 {
		o.Data[data[i]] = []byte(data[i+1])
	}
	return o
}

// Secrets have Kubernetes' keys or Istio's. Others are nothing for gateways.
func TestConvert(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		data []string
		want secret.Secret
	}{
		"of Kubernetes": {[]string{"tls.crt", "c", "tls.key", "k", "ca.crt", "a", "ca.crl", "r"},
			secret.Secret{Certificate: "c", Key: "k", Authorities: "a", Revoked: "r"}},
		"of Istio": {[]string{"cert", "c", "key", "k", "cacert", "a", "crl", "r"},
			secret.Secret{Certificate: "c", Key: "k", Authorities: "a", Revoked: "r"}},
		"both": {[]string{"cert", "c", "key", "k", "tls.crt", "C", "tls.key", "K"},
			secret.Secret{Certificate: "c", Key: "k"}},
		"authorities": {[]string{"ca.crt", "a"}, secret.Secret{Authorities: "a"}},
		"a list alone": {[]string{"tls.crt", "c", "tls.key", "k", "ca.crl", "r"},
			secret.Secret{Certificate: "c", Key: "k"}},
		"half a pair":          {[]string{"key", "k", "tls.crt", "c"}, secret.Secret{}},
		"an empty key":         {[]string{"tls.crt", "c", "tls.key", ""}, secret.Secret{}},
		"nothing for gateways": {nil, secret.Secret{}},
	} {
		if got := convert(tlsSecret("x", tc.data...)); got.content != tc.want {
			t.Errorf("%s: got another secret", name)
		}
	}
}

// Secrets follow the cluster. A list without any removes none, since the API server may have lost them.
func TestSecrets(t *testing.T) {
	t.Parallel()
	c, client := newCluster("east", tlsSecret("web", "tls.crt", "c", "tls.key", "k"), tlsSecret("other"))
	s := NewSecrets(c)
	ctx, cancel := context.WithCancel(t.Context())
	changed := s.Watch(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	has := func(want ...string) {
		t.Helper()
		eventually(t, func() string {
			got, err := s.Read()
			var names []string
			for n, v := range got {
				names = append(names, n.String()+" "+v.Certificate)
			}
			slices.Sort(names)
			if err != nil {
				return err.Error()
			}
			return cmp.Diff(want, names)
		})
	}
	has("edge/web c")
	<-changed
	secrets := client.CoreV1().Secrets("edge")
	if _, err := secrets.Create(ctx, tlsSecret("api", "cert", "d", "key", "k"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has("edge/api d", "edge/web c")
	if _, err := secrets.Update(ctx, tlsSecret("web"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	has("edge/api d")
	for len(changed) > 0 {
		<-changed
	}
	if _, err := secrets.Create(ctx, tlsSecret("password"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if len(changed) > 0 {
		t.Error("a Secret that is not for gateways is reported")
	}
	s.replace(nil, false)
	if got, err := s.Read(); len(got) != 1 || err == nil || !strings.Contains(err.Error(), "has lost Secrets, such as edge/api") {
		t.Errorf("after an empty list there are %d, error %v", len(got), err)
	}
	for _, lost := range []bool{true, false} { // then a reconnection
		s.replace([]gatewaySecret{convert(tlsSecret("other", "cert", "o", "key", "k"))}, lost)
		if got, err := s.Read(); len(got) != 2 || err == nil {
			t.Errorf("after data was lost (%t) there are %d, error %v; want 2", lost, len(got), err)
		}
	}
	again := convert(tlsSecret("api", "cert", "d", "key", "k"))
	s.change(func() bool { return s.put(again.name, again.content) })
	has("edge/api d", "edge/other o")
	s.replace([]gatewaySecret{convert(tlsSecret("new", "cert", "e", "key", "k"))}, false)
	has("edge/new e")
	s.report(errors.New("connection refused"))
	if got, err := s.Read(); len(got) != 1 || err == nil {
		t.Errorf("in an outage there are %d, error %v", len(got), err)
	}
	s.report(nil)
	has("edge/new e")
	s.change(func() bool { return s.put(secret.Name{Namespace: "edge", Name: "new"}, secret.Secret{}) })
	has()
}

// The roots are in each namespace that stays: new ones, after changes by others, and new roots.
func TestRoots(t *testing.T) {
	t.Parallel()
	namespace := func(name string, phase corev1.NamespacePhase) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}}
	}
	c, client := newCluster("east", namespace("shop", corev1.NamespaceActive),
		namespace("old", corev1.NamespaceTerminating))
	var roots atomic.Pointer[string]
	set := func(text string) { roots.Store(&text) }
	set("one")
	changed := make(chan struct{}, 1)
	w := NewRootWriter(RootWriterConfig{Cluster: c, Roots: func() []byte { return []byte(*roots.Load()) },
		Changed: func(context.Context) <-chan struct{} { return changed }})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	defer running.Wait()
	defer cancel()
	has := func(want map[string]string) {
		t.Helper()
		eventually(t, func() string {
			list, err := client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			got := map[string]string{}
			for _, o := range list.Items {
				got[o.Namespace+" "+o.Name+" "+o.Labels["istio.io/config"]] = o.Data["root-cert.pem"] + o.Data["other"]
			}
			return cmp.Diff(want, got)
		})
	}
	const name = " istio-ca-root-cert true"
	has(map[string]string{"shop" + name: "one"})
	edge := namespace("edge", corev1.NamespaceActive)
	if _, err := client.CoreV1().Namespaces().Create(ctx, edge, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has(map[string]string{"shop" + name: "one", "edge" + name: "one"})
	set("two")
	changed <- struct{}{}
	has(map[string]string{"shop" + name: "two", "edge" + name: "two"})
	wantProblem(t, w.Problems(), "")
}

// What others change is written again after a while. A missing right is one problem, and tried again.
func TestRootsAgain(t *testing.T) {
	t.Parallel()
	c, client := newCluster("east")
	w := NewRootWriter(RootWriterConfig{Cluster: c, Roots: func() []byte { return []byte("one") }})
	w.namespaces = map[string]bool{"shop": true, "edge": true}
	w.present, w.latest = map[string]string{"edge": "one"}, map[string]write{}
	writes := 0
	var failure error
	client.PrependReactor("patch", "configmaps", func(a ktesting.Action) (bool, runtime.Object, error) {
		if p := a.(ktesting.PatchAction).GetPatch(); !bytes.Contains(p, []byte(`"root-cert.pem":"one"`)) {
			t.Errorf("written is %s", p)
		}
		writes++
		return true, &corev1.ConfigMap{}, failure
	})
	for _, tc := range []struct {
		name    string
		failure error
		again   time.Duration
		writes  int
		problem string
	}{
		{"no right", forbidden("configmaps"), retryPause, 1, "does not allow ashored to create and patch configmaps"},
		{"a terminating namespace", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}, 0, 2, ""},
		{"written", nil, 0, 3, ""},
		{"changed by others at once", nil, rewritePause, 3, ""},
	} {
		failure = tc.failure
		if got := w.write(t.Context()); got != tc.again || writes != tc.writes {
			t.Errorf("%s: again after %s, %d writes, want %s, %d", tc.name, got, writes, tc.again, tc.writes)
		}
		wantProblem(t, w.Problems(), tc.problem)
	}
	w.latest["shop"] = write{"one", time.Now().Add(-rewritePause)}
	if got := w.write(t.Context()); got != 0 || writes != 4 {
		t.Errorf("later: again after %s, %d writes", got, writes)
	}
}

// Whatever is in a Secret, it has what gateways use, or nothing.
func FuzzConvert(f *testing.F) {
	f.Add("tls.crt", []byte("c"), "tls.key", []byte("k"))
	f.Fuzz(func(t *testing.T, key1 string, value1 []byte, key2 string, value2 []byte) {
		got := convert(&corev1.Secret{Data: map[string][]byte{key1: value1, key2: value2}}).content
		if (got.Certificate == "") != (got.Key == "") || got.Revoked != "" && got.Authorities == "" {
			t.Error("half a secret")
		}
	})
}
