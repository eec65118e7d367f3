package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testkube"
)

// signer signs approved requests for example.com/mesh below a root of its own, until the test ends.
type signer struct {
	root *ca.Signer
	file string // has the root
}

func startSigner(t *testing.T, client kubernetes.Interface) *signer {
	t.Helper()
	root, err := ca.NewRoot("signer", time.Hour, ca.NewKey(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{root, filepath.Join(t.TempDir(), "root.pem")}
	if err := os.WriteFile(s.file, ca.EncodeCertificates(root.Cert), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(ctx, period, true, func(ctx context.Context) (bool, error) {
			if err := s.signAll(ctx, client); err != nil && ctx.Err() == nil {
				t.Logf("signer: %v", err) // an outage, or the request is gone
			}
			return false, nil
		})
	}()
	return s
}

// signAll signs the approved requests that there are.
func (s *signer) signAll(ctx context.Context, client kubernetes.Interface) error {
	requests := client.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=example.com/mesh"})
	if err != nil {
		return err
	}
	for i := range list.Items {
		o := &list.Items[i]
		if len(o.Status.Conditions) == 0 || len(o.Status.Certificate) > 0 {
			continue
		}
		if o.Status.Certificate, err = s.sign(o.Spec); err == nil {
			_, err = requests.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	return nil
}

// sign signs what a request asks for.
func (s *signer) sign(spec certificatesv1.CertificateSigningRequestSpec) ([]byte, error) {
	block, _ := pem.Decode(spec.Request)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), URIs: csr.URIs,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Duration(*spec.ExpirationSeconds) * time.Second),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		s.root.Cert, csr.PublicKey, s.root.Key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// edge is a mesh whose workloads have certificates of a signer, and a gateway that shows certificates
// in Secrets.
type edge struct {
	*harness.Mesh
	cluster *testkube.Cluster
	ca      *harness.CA
	gateway *harness.Proxy
}

func newEdge(t *testing.T) *edge {
	e := &edge{cluster: testkube.Start(t, &testkube.Machine{}), ca: harness.NewCA(t)}
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: e.cluster.URL, QPS: -1}, e.cluster.Client)
	if err != nil {
		t.Fatal(err)
	}
	s := startSigner(t, client)
	e.Mesh = harness.New(t, map[string]string{"edge.yaml": `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: gateway, namespace: edge}
spec:
  metadata: {labels: {app: gateway}}
  template: {serviceAccount: gateway}
`}, harness.Secure("secrets: {kubernetes: east}\nca: {signer: {name: example.com/mesh, source: east, roots: "+s.file+"}}"),
		harness.Sources(fmt.Sprintf("{kind: kubernetes, name: east, kubeconfig: %s}", e.cluster.Admin)))
	app := harness.NewBackend(t, "app", e.IP()+":8080")
	e.gateway = e.Join(harness.Workload{Name: "gateway-1", Group: "edge/gateway", Router: true})
	e.Write("gateway.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: app, namespace: shop}
spec:
  hosts: [app.local]
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  endpoints: [{address: %s}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gateway, namespace: edge}
spec:
  selector: {app: gateway}
  servers:
  - port: {number: 8443, name: https, protocol: HTTPS}
    bind: %s
    hosts: [web.test]
    tls: {mode: SIMPLE, credentialName: web}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gateway, namespace: edge}
spec:
  hosts: [web.test]
  gateways: [gateway]
  http: [{route: [{destination: {host: app.local, port: {number: 8080}}}]}]
`, strings.TrimSuffix(app.Address, ":8080"), e.gateway.IP))
	return e
}

// call sends a request to the API server.
func (e *edge) call(method, path string, object map[string]any) {
	e.T.Helper()
	if err := e.cluster.Call(method, path, object, nil); err != nil {
		e.T.Fatal(err)
	}
}

// secret is a new certificate for web.test as a Secret.
func (e *edge) secret() map[string]any {
	e.T.Helper()
	cert, key := e.ca.Issue(e.T, "web.test")
	return map[string]any{"metadata": map[string]any{"name": "web"}, "type": "kubernetes.io/tls",
		"stringData": map[string]any{"tls.crt": string(cert), "tls.key": string(key)}}
}

// shown waits until web.test answers with another certificate than that with a serial number, and
// returns the one that was shown.
func (e *edge) shown(other *big.Int) (serial *big.Int) {
	e.T.Helper()
	harness.Eventually(e.T, "https://web.test answers", func() error {
		c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: e.ca.Pool, ServerName: "web.test"}}}
		r, err := http.NewRequest(http.MethodGet, "https://"+e.gateway.IP+":8443/", nil)
		if err != nil {
			return err
		}
		r.Host = "web.test"
		resp, err := c.Do(r)
		if err != nil {
			return err
		}
		serial = resp.TLS.PeerCertificates[0].SerialNumber
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d, error %w", resp.StatusCode, err)
		}
		if other != nil && serial.Cmp(other) == 0 {
			return errors.New("still the old certificate")
		}
		return nil
	})
	return serial
}

// A gateway whose certificate is of a signer gets a Secret once its account may list Secrets. It keeps
// the Secret while the API server is away, also over a restart of ashored, and gets the next one
// when it is back.
func TestGateway(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	harness.Eventually(t, "the workload is listed by its key", func() error {
		list, err := admin.Send(t.Context(), e.Admin, admin.CallWorkloads, admin.None{})
		if err == nil && (len(list.Workloads) != 1 || !strings.HasPrefix(list.Workloads[0].Name, "edge/gateway~")) {
			err = fmt.Errorf("listed are %+v", list)
		}
		return err
	})
	e.call(http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "edge"}})
	const secrets, roles = "/api/v1/namespaces/edge/secrets", "/apis/rbac.authorization.k8s.io/v1/namespaces/edge/role"
	e.call(http.MethodPost, secrets, e.secret())
	e.gateway.Kill()
	e.gateway.Run()
	e.Audited("secret.refuse", "spiffe://cluster.local/ns/edge/sa/gateway", "kubernetes://web", "no access")
	e.call(http.MethodPost, roles+"s", map[string]any{"metadata": map[string]any{"name": "gateway"}, "rules": []any{
		map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"list"}}}})
	e.call(http.MethodPost, roles+"bindings", map[string]any{"metadata": map[string]any{"name": "gateway"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gateway"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "edge", "name": "gateway"}}})
	e.Ashored.Kill() // else the answer from before counts for a minute
	e.Start()
	first := e.shown(nil)

	t.Log("the API server is away")
	e.cluster.StopAPI()
	e.Ashored.Kill()
	e.Start()
	e.shown(nil)
	e.cluster.StartAPI()
	e.call(http.MethodPut, secrets+"/web", e.secret())
	e.shown(first)
}
