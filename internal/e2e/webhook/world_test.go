package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
)

// world is an ashored that validates, and who knows its root certificate.
type world struct {
	*harness.Mesh
	t     *testing.T
	at    string // ADDRESS:PORT of the webhook
	roots string // a file with the root certificates
}

// newWorld starts one.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	w.Mesh = harness.New(t, nil, func(m *harness.Mesh) {
		w.at = m.IP() + ":15017"
		harness.Secure(fmt.Sprintf("webhook: {address: %q}", w.at))(m)
	})
	w.roots = filepath.Join(t.TempDir(), "ca.pem")
	out, code, err := harness.Command("ashorectl", "ca", "show", "--pem", "--socket", w.Socket())
	if err != nil || code != 0 {
		t.Fatalf("the root certificates: exit code %d, %v: %s", code, err, out)
	}
	if err := os.WriteFile(w.roots, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) url(path string) string { return "https://" + w.at + path }

// client knows the root certificates; from is its address on loopback, empty: any.
func (w *world) client(from string) *http.Client {
	w.t.Helper()
	text, err := os.ReadFile(w.roots)
	if err != nil {
		w.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		w.t.Fatalf("no root certificates in %q", text)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer(from).DialContext(ctx, network, address)
		}}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

func dialer(from string) *net.Dialer {
	if from == "" {
		return &net.Dialer{}
	}
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
}

// answer is what came back.
type answer struct {
	code   int
	body   string
	serial string // of the certificate that was shown
}

// post sends a body. An error says that there was no answer.
func (w *world) post(c *http.Client, path, kind string, body io.Reader) (answer, error) {
	r, err := http.NewRequest(http.MethodPost, w.url(path), body)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", kind)
	resp, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(text), resp.TLS.PeerCertificates[0].SerialNumber.String()}, err
}

const (
	goodSpec = `{"hosts": ["web.example.com"], "http": [{"route": [{"destination": {"host": "web.example.com"}}]}]}`
	badSpec  = `{"hosts": ["web.example.com"], "http": [{"timeout": "-5s", "route": [{"destination": {"host": "web.example.com"}}]}]}`
	goodText = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec: " + goodSpec + "\n"
	badText  = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: shop}\nspec: " + badSpec + "\n"
)

// verdict is the part of an answer that an API server reads.
type verdict struct {
	APIVersion, Kind string
	Response         struct {
		UID     string
		Allowed bool
		Status  struct {
			Code            int
			Reason, Message string
		}
		Warnings []string
	}
}

// review asks as an API server does. An error says that there was no answer to the review.
func (w *world) review(c *http.Client, uid, spec string) (verdict, answer, error) {
	var v verdict
	object := `{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "web", "namespace": "shop", "uid": "x", "managedFields": [{"manager": "kubectl"}]}, "spec": ` + spec + `}`
	body := fmt.Sprintf(`{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": %q, "kind": {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"},
		"resource": {"group": "networking.istio.io", "version": "v1", "resource": "virtualservices"}, "name": "web", "namespace": "shop", "operation": "CREATE", "userInfo": {"username": "ann"},
		"object": %s, "oldObject": null, "dryRun": false, "options": {"kind": "CreateOptions"}}}`, uid, object)
	a, err := w.post(c, "/validate?timeout=5s", "application/json", strings.NewReader(body))
	if err != nil {
		return v, a, err
	}
	if a.code != http.StatusOK {
		return v, a, fmt.Errorf("status %d: %s", a.code, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Kind != "AdmissionReview" || v.Response.UID != uid {
		return v, a, fmt.Errorf("not the answer to %s (%v): %s", uid, err, a.body)
	}
	return v, a, nil
}

// judged sends a valid or an invalid object, and reports whether the answer is wrong. Both errors:
// the first says that there was none.
func (w *world) judged(c *http.Client, n int) (a answer, missing, wrong error) {
	good := n%2 == 0
	spec := badSpec
	if good {
		spec = goodSpec
	}
	v, a, err := w.review(c, fmt.Sprintf("u-%d", n), spec)
	if err == nil && (v.Response.Allowed != good || !good &&
		!strings.Contains(v.Response.Status.Message, "spec.http[0].timeout: ")) {
		wrong = fmt.Errorf("good is %v, and the answer %s", good, a.body)
	}
	return a, err, wrong
}

// metrics has all of words in a line of the metrics of ashored.
func (w *world) metric(words ...string) error {
	resp, err := http.Get("http://" + w.Metrics() + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return err
	}
lines:
	for line := range strings.Lines(text.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		return nil
	}
	return fmt.Errorf("no line with %q", words)
}
