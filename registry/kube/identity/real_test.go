package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testkube"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// real is a real cluster, with clients of an administrator and of ashored.
type real struct {
	*testkube.Cluster
	t     *testing.T
	admin *kube.Cluster
	own   *kube.Cluster // has the rights that grant gives
}

func newReal(t *testing.T) *real {
	r := &real{Cluster: testkube.Start(t, &testkube.Machine{}), t: t}
	r.make("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "istio-system"}})
	r.make("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "edge"}})
	r.account("istio-system", "ashored")
	r.account("istio-system", "admin")
	r.account("edge", "gateway")
	r.grant("", "istio-system/admin", rule("*", "*", "*"))
	connect := func(kubeconfig string) *kube.Cluster {
		options := kube.DefaultOptions()
		options.Kubeconfig = kubeconfig
		c, err := kube.Connect("east", options, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	r.admin, r.own = connect(r.Kubeconfig("istio-system", "admin")), connect(r.Kubeconfig("istio-system", "ashored"))
	return r
}

// make creates an object.
func (r *real) make(path string, object map[string]any) {
	r.t.Helper()
	if err := r.Call(http.MethodPost, path, object, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *real) account(namespace, name string) {
	r.t.Helper()
	r.make("/api/v1/namespaces/"+namespace+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": name}})
}

// grant gives an account the rights of rules, in a namespace or, if that is empty, everywhere.
func (r *real) grant(namespace, account string, rules ...map[string]any) {
	r.t.Helper()
	path, kind := "/apis/rbac.authorization.k8s.io/v1/", "ClusterRole"
	if namespace != "" {
		path, kind = path+"namespaces/"+namespace+"/", "Role"
	}
	owner, name, _ := strings.Cut(account, "/")
	role := fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
	r.make(path+strings.ToLower(kind)+"s", map[string]any{"metadata": map[string]any{"name": role}, "rules": rules})
	r.make(path+strings.ToLower(kind)+"bindings", map[string]any{"metadata": map[string]any{"name": role},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": owner, "name": name}}})
}

func rule(group, resource string, verbs ...string) map[string]any {
	return map[string]any{"apiGroups": []string{group}, "resources": []string{resource}, "verbs": verbs}
}

// wait waits until f returns nil.
func (r *real) wait(what string, f func() error) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: %v", what, err)
		}
	}
}

// wantError wants an error with these words.
func wantError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want %q", err, words)
	}
}

// Everything works with a real API server and only the rights that are needed. Missing rights are
// named.
func TestRealCluster(t *testing.T) {
	t.Parallel()
	r := newReal(t)
	r.tokens()
	r.access()
	r.signer()
	r.roots()
	r.secrets()
	r.StopAPI()
	begin := time.Now()
	_, _, refused, err := NewReviewer([]*kube.Cluster{r.own}).Review(t.Context(), "", "a.b.c")
	if refused != nil || err == nil || time.Since(begin) > 2*requestTimeout {
		t.Errorf("in an outage: refused %v, error %v after %s", refused, err, time.Since(begin))
	}
}

func (r *real) tokens() {
	t, reviewer := r.t, NewReviewer([]*kube.Cluster{r.own})
	review := func(token string) (string, error, error) {
		namespace, account, refused, err := reviewer.Review(t.Context(), "", token)
		return namespace + "/" + account, refused, err
	}
	good := r.Token("edge", "gateway", "", "istio-ca")
	_, _, err := review(good)
	wantError(t, err, "does not allow ashored to create tokenreviews")
	r.grant("", "istio-system/ashored", rule("authentication.k8s.io", "tokenreviews", "create"))
	r.wait("a review", func() error {
		got, refused, err := review(good)
		if refused != nil || err != nil || got != "edge/gateway" {
			return fmt.Errorf("got %s, refused %v, error %v", got, refused, err)
		}
		return nil
	})
	r.make("/api/v1/namespaces/edge/pods", map[string]any{"metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"serviceAccountName": "gateway", "terminationGracePeriodSeconds": 0,
			"containers": []any{map[string]any{"name": "web", "image": "none"}}}})
	bound := r.Token("edge", "gateway", "web", "istio-ca")
	if got, refused, err := review(bound); refused != nil || err != nil || got != "edge/gateway" {
		t.Errorf("a bound token: got %s, refused %v, error %v", got, refused, err)
	}
	if err := r.Call(http.MethodDelete, "/api/v1/namespaces/edge/pods/web", nil, nil); err != nil {
		t.Fatal(err)
	}
	r.wait("the end of a Pod", func() error { // the API server remembers good tokens for 10s
		if got, refused, err := review(bound); refused == nil {
			return fmt.Errorf("got %s, error %v", got, err)
		}
		return nil
	})
	for name, token := range map[string]string{"another audience": r.Token("edge", "gateway", "", "api"),
		"not signed": good[:len(good)-10] + "AAAAAAAAAA", "nonsense": "hello"} {
		if got, refused, err := review(token); refused == nil || err != nil {
			t.Errorf("%s: got %s, error %v", name, got, err)
		} else {
			t.Logf("%s: %v", name, refused)
		}
	}
}

func (r *real) access() {
	t, id := r.t, spiffe.ID{TrustDomain: "cluster.local", Namespace: "edge", ServiceAccount: "gateway"}
	_, err := NewAccess(r.own).MayRead(t.Context(), id)
	wantError(t, err, "does not allow ashored to create subjectaccessreviews")
	r.grant("", "istio-system/ashored", rule("authorization.k8s.io", "subjectaccessreviews", "create"))
	for _, want := range []bool{false, true} {
		if want {
			r.grant("edge", "edge/gateway", rule("", "secrets", "list"))
		}
		r.wait("an answer", func() error {
			if got, err := NewAccess(r.own).MayRead(t.Context(), id); err != nil || got != want {
				return fmt.Errorf("got %v, error %v, want %v", got, err, want)
			}
			return nil
		})
	}
	id.ServiceAccount = "of-a-machine" // the cluster does not have it
	if got, err := NewAccess(r.own).MayRead(t.Context(), id); err != nil || got {
		t.Errorf("an unknown account: got %v, error %v", got, err)
	}
}

func newTestKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign signs every approved request for a signer until ctx ends.
func (r *real) sign(ctx context.Context, name string, key crypto.Signer) {
	requests := r.admin.Client.CertificatesV1().CertificateSigningRequests()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	w, err := requests.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Error(err)
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || o.Spec.SignerName != name || len(o.Status.Conditions) == 0 || len(o.Status.Certificate) > 0 {
			continue
		}
		block, _ := pem.Decode(o.Spec.Request)
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			r.t.Error(err)
			return
		}
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), URIs: csr.URIs,
			NotAfter: time.Now().Add(time.Duration(*o.Spec.ExpirationSeconds) * time.Second)}, authority, csr.PublicKey, key)
		if err == nil {
			o.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
			_, err = requests.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		}
		if err != nil && ctx.Err() == nil {
			r.t.Error(err)
		}
	}
}

func (r *real) signer() {
	t := r.t
	u := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/edge/sa/gateway"}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{u}}, newTestKey(t))
	if err != nil {
		t.Fatal(err)
	}
	request := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	s := NewSigner(r.own, "example.com/mesh")
	sign := func() ([]byte, error) { return s.Sign(t.Context(), request, time.Hour) }
	_, err = sign()
	wantError(t, err, "does not allow ashored to create certificatesigningrequests")
	r.grant("", "istio-system/ashored",
		rule("certificates.k8s.io", "certificatesigningrequests", "create", "watch", "delete"),
		rule("certificates.k8s.io", "certificatesigningrequests/approval", "update"))
	r.wait("no right to approve", func() error {
		right := "to approve certificatesigningrequests of the signer example.com/mesh"
		if _, err := sign(); !strings.Contains(fmt.Sprint(err), right) {
			return err
		}
		return nil
	})
	approve := rule("certificates.k8s.io", "signers", "approve")
	approve["resourceNames"] = []string{"example.com/mesh"}
	r.grant("", "istio-system/ashored", approve)
	ctx, cancel := context.WithCancel(t.Context())
	var signing sync.WaitGroup
	signing.Go(func() { r.sign(ctx, "example.com/mesh", newTestKey(t)) })
	r.wait("a certificate", func() error {
		begin := time.Now()
		text, err := sign()
		if err != nil {
			return err
		}
		t.Logf("signed within %s", time.Since(begin).Round(time.Millisecond))
		block, _ := pem.Decode(text)
		if c, err := x509.ParseCertificate(block.Bytes); err != nil || c.URIs[0].String() != u.String() {
			t.Errorf("got %v, error %v", c, err)
		}
		return nil
	})
	cancel()
	signing.Wait()
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err = s.Sign(short, request, time.Hour); err == nil {
		t.Error("nobody signed, and there is a certificate")
	}
	left, err := r.admin.Client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d requests are left, error %v", len(left.Items), err)
	}
}

func (r *real) roots() {
	t := r.t
	var roots atomic.Pointer[string]
	set := func(text string) { roots.Store(&text) }
	set("one")
	changed := make(chan struct{}, 1)
	w := NewRootWriter(RootWriterConfig{Cluster: r.own, Roots: func() []byte { return []byte(*roots.Load()) },
		Changed: func(context.Context) <-chan struct{} { return changed }})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	defer running.Wait()
	defer cancel()
	problem := func(words string) {
		t.Helper()
		r.wait("problems", func() error {
			for _, p := range w.Problems() {
				if words != "" && strings.Contains(p.Text, words) {
					return nil
				}
			}
			if got := w.Problems(); words != "" || len(got) > 0 {
				return fmt.Errorf("they are %v, want %q", got, words)
			}
			return nil
		})
	}
	problem("does not allow ashored to list and watch configmaps")
	maps := func(verbs ...string) map[string]any {
		out := rule("", "configmaps", verbs...)
		out["resourceNames"] = []string{"istio-ca-root-cert"}
		return out
	}
	r.grant("", "istio-system/ashored", maps("list", "watch"), rule("", "namespaces", "list", "watch"))
	problem("does not allow ashored to create and patch configmaps")
	r.grant("", "istio-system/ashored", maps("create", "patch"))
	has := func(want string, namespaces ...string) {
		t.Helper()
		r.wait("roots", func() error {
			for _, n := range namespaces {
				o, err := r.admin.Client.CoreV1().ConfigMaps(n).Get(ctx, "istio-ca-root-cert", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if o.Data["root-cert.pem"]+o.Data["other"] != want {
					return fmt.Errorf("%s has %v, want %q", n, o.Data, want)
				}
			}
			return nil
		})
	}
	has("one", "default", "edge", "kube-system", "istio-system")
	problem("")
	r.make("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "shop"}})
	has("one", "shop")
	set("two")
	changed <- struct{}{}
	has("two", "default", "edge", "shop")
	inShop := r.admin.Client.CoreV1().ConfigMaps("shop")
	o, err := inShop.Get(ctx, "istio-ca-root-cert", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.Data = map[string]string{"root-cert.pem": "three", "other": "x"}
	if _, err := inShop.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	has("twox", "shop")
	configMaps := r.admin.Client.CoreV1().ConfigMaps("edge")
	if err := configMaps.Delete(ctx, "istio-ca-root-cert", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	has("two", "edge")
	if err := r.Call(http.MethodDelete, "/api/v1/namespaces/shop", nil, nil); err != nil {
		t.Fatal(err)
	}
	r.wait("the end of a namespace", func() error {
		if err := r.Call(http.MethodGet, "/api/v1/namespaces/shop", nil, nil); err == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	problem("")
}

func (r *real) secrets() {
	t := r.t
	s := NewSecrets(r.own)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	r.wait("no right", func() error {
		if _, err := s.Read(); !strings.Contains(fmt.Sprint(err), "does not allow ashored to list and watch secrets") {
			return fmt.Errorf("error %v", err)
		}
		return nil
	})
	r.grant("", "istio-system/ashored", rule("", "secrets", "list", "watch"))
	create := func(name string, kind corev1.SecretType, data ...string) {
		t.Helper()
		o := tlsSecret(name, data...)
		o.Type = kind
		if _, err := r.admin.Client.CoreV1().Secrets("edge").Create(ctx, o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("release", "helm.sh/release.v1", "cert", "c", "key", "k")
	create("web", corev1.SecretTypeTLS, "tls.crt", "c", "tls.key", "k")
	web := secret.Name{Namespace: "edge", Name: "web"}
	has := func(want secret.Secret) {
		t.Helper()
		r.wait("secrets", func() error {
			got, err := s.Read()
			if err != nil || got[web] != want || want != (secret.Secret{}) && len(got) != 1 {
				return fmt.Errorf("there are %d, error %v", len(got), err)
			}
			return nil
		})
	}
	has(secret.Secret{Certificate: "c", Key: "k"})
	r.StopAPI()
	r.wait("an outage", func() error {
		if got, err := s.Read(); err == nil || len(got) != 1 {
			return fmt.Errorf("there are %d, error %v", len(got), err)
		}
		return nil
	})
	r.StartAPI()
	has(secret.Secret{Certificate: "c", Key: "k"})
	if err := r.admin.Client.CoreV1().Secrets("edge").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	has(secret.Secret{})
}
