package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// do makes a request, and returns status and body.
func do(t testing.TB, c *http.Client, method, url, contentType string, body io.Reader) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// Requests are answered over HTTP/2 and HTTP/1.1, with TLS 1.2 and newer, and in no other way.
func TestProtocols(t *testing.T) {
	t.Parallel()
	w := run(t, Config{})
	for name, tc := range map[string]struct {
		change func(*http.Transport)
		major  int
		fails  bool
	}{
		"HTTP/2":   {nil, 2, false},
		"HTTP/1.1": {func(tr *http.Transport) { tr.ForceAttemptHTTP2 = false }, 1, false},
		"TLS 1.2":  {func(tr *http.Transport) { tr.TLSClientConfig.MaxVersion = tls.VersionTLS12 }, 2, false},
		"TLS 1.1": {func(tr *http.Transport) {
			tr.TLSClientConfig.MinVersion, tr.TLSClientConfig.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := w.client(t, tc.change)
			resp, err := c.Post(w.url+validatePath, "", strings.NewReader(goodText))
			if tc.fails {
				if err == nil {
					resp.Body.Close()
					t.Error("it was answered")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.ProtoMajor != tc.major {
				t.Errorf("%s by %s, want 200 by HTTP/%d", resp.Status, resp.Proto, tc.major)
			}
		})
	}
	resp, err := http.Post(strings.Replace(w.url, "https:", "http:", 1)+validatePath, "", strings.NewReader(goodText))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS it answers %s", resp.Status)
	}
}

// What cannot be served says what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method, path, kind, host string
		header                   []string
		code                     int
		want                     string
	}{
		"GET of reviews":   {method: "GET", path: reviewPath, code: 405, want: "POST an AdmissionReview"},
		"GET of text":      {method: "GET", path: validatePath, host: "mesh.example:15017", code: 405, want: "@web.yaml 'https://HOST:PORT/v1/validate?file=web.yaml'"},
		"PUT":              {method: "PUT", path: validatePath, code: 405, want: "POST configuration"},
		"OPTIONS":          {method: "OPTIONS", path: validatePath, code: 405, want: "POST configuration"},
		"root":             {method: "POST", path: "/", code: 404, want: "POST an AdmissionReview to /validate"},
		"metrics":          {method: "GET", path: "/metrics", code: 404, want: "there is nothing here"},
		"nearly":           {method: "POST", path: validatePath + "/", code: 404, want: "there is nothing here"},
		"a review as text": {method: "POST", path: reviewPath, kind: "text/plain", code: 415, want: `Content-Type is "text/plain", want application/json`},
		"a review untyped": {method: "POST", path: reviewPath, code: 415, want: `Content-Type is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, Config{})
			r, err := http.NewRequest(tc.method, "https://localhost"+tc.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.RemoteAddr, r.Host = "10.0.0.1:1", tc.host
			r.Header.Set("Content-Type", tc.kind)
			for i := 0; i+1 < len(tc.header); i += 2 {
				r.Header.Set(tc.header[i], tc.header[i+1])
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("status %d, %q; want %d with %q", w.Code, w.Body, tc.code, tc.want)
			}
			if (w.Header().Get("Allow") != "") != (tc.code == 405) {
				t.Errorf("Allow is %q", w.Header().Get("Allow"))
			}
		})
	}
}

// A body that is too large is refused before it is read, also when its sender does not say how
// large it is.
func TestOversized(t *testing.T) {
	t.Parallel()
	w := run(t, Config{MaxBytes: 64 << 10})
	big := strings.Repeat("#", 1<<20)
	for name, change := range map[string]func(*http.Transport){"HTTP/2": nil,
		"HTTP/1.1": func(tr *http.Transport) { tr.ForceAttemptHTTP2 = false }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := w.client(t, change)
			for what, body := range map[string]io.Reader{"told": strings.NewReader(big),
				"not told": struct{ io.Reader }{strings.NewReader(big)}} {
				if resp, text := do(t, c, http.MethodPost, w.url+validatePath, "",
					body); resp.StatusCode != http.StatusRequestEntityTooLarge ||
					!strings.Contains(text, "send less at once") {
					t.Errorf("%s: %s %q", what, resp.Status, text)
				}
			}
			if resp, text := do(t, c, http.MethodPost, w.url+validatePath, "",
				strings.NewReader(goodText)); resp.StatusCode != http.StatusOK {
				t.Errorf("after that: %s %q", resp.Status, text)
			}
		})
	}
}

// A body that does not come ends with its time, on both protocols, and holds nobody else up.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	w := run(t, Config{Timeout: 50 * time.Millisecond})
	w.slow(t)
	for name, change := range map[string]func(*http.Transport){"HTTP/2": nil,
		"HTTP/1.1": func(tr *http.Transport) { tr.ForceAttemptHTTP2 = false }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := w.client(t, change)
			body, end := io.Pipe()
			defer end.Close()
			go func() { _, _ = io.WriteString(end, "a: b\n") }() // it fails when the server has had enough
			r, err := http.NewRequest(http.MethodPost, w.url+validatePath, body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(r)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("the server waits longer than the client")
			}
			if err != nil {
				return // the server ended the connection
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusRequestTimeout {
				t.Errorf("%s, want 408", resp.Status)
			}
		})
	}
}

// slow makes a connection that says nothing, and one that stops within the head; both are closed by
// the server.
func (w *world) slow(t *testing.T) {
	t.Helper()
	for _, said := range []string{"", "POST /v1/validate HTTP/1.1\r\nHost: lo"} {
		c := w.dial(t)
		if _, err := io.WriteString(c, said); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the server's patience, or the test
	}
}

// A certificate that is renewed is what the next connection is shown, while requests go on over
// those that there are.
func TestRenewed(t *testing.T) {
	t.Parallel()
	w := run(t, Config{})
	old := w.client(t, nil)
	serial := func(c *http.Client) int64 {
		t.Helper()
		resp, text := do(t, c, http.MethodPost, w.url+validatePath, "", strings.NewReader(goodText))
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", resp.Status, text)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(old); n != 2 {
		t.Fatalf("it shows %d", n)
	}
	w.certificate.Store(w.authority.server(t, 3))
	if n := serial(old); n != 2 {
		t.Errorf("an open connection shows %d", n)
	}
	if n := serial(w.client(t, nil)); n != 3 {
		t.Errorf("a new connection shows %d, want 3", n)
	}
}

// Many at once are all answered.
func TestMany(t *testing.T) {
	t.Parallel()
	w := run(t, Config{Log: hclog.NewNullLogger()})
	var all sync.WaitGroup
	for i := range 20 {
		c := w.client(t, nil)
		all.Go(func() {
			for j := range 10 {
				operation, spec, allowed := "CREATE", goodSpec, true
				if (i+j)%2 == 0 {
					spec, allowed = badSpec, false
				}
				body := reviewOf(requestOf(operation, "VirtualService", objectOf("v1", "VirtualService", "", spec), ""))
				resp, text := do(t, c, http.MethodPost, w.url+reviewPath, jsonType, strings.NewReader(body))
				if resp.StatusCode != http.StatusOK || decodeResponse(t, []byte(text)).Allowed != allowed {
					t.Errorf("%s %s, want allowed %v", resp.Status, text, allowed)
				}
			}
		})
	}
	all.Wait()
}

// One address may have half of the connections.
func TestConnections(t *testing.T) {
	t.Parallel()
	w := run(t, Config{Connections: 2})
	w.dial(t)
	if c, err := tls.Dial("tcp", w.config.Listener.Addr().String(),
		&tls.Config{RootCAs: w.authority.pool}); err == nil {
		t.Errorf("the second connection of an address is open: %v", c.Close())
	}
	if open, refused := w.conns.Numbers(); open != 1 || refused != 1 {
		t.Errorf("%d are open, %d were refused, want 1 and 1", open, refused)
	}
}

// The end of the server answers what is under way, and leaves nothing behind (TestMain looks).
func TestEnd(t *testing.T) {
	t.Parallel()
	w := run(t, Config{})
	_ = w.dial(t) // says nothing
	resp, _ := do(t, w.client(t, nil), http.MethodPost, w.url+validatePath, "", strings.NewReader(goodText))
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

// Metrics count by paths and answers, whatever strangers say.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := newServer(t, Config{Registerer: reg, Log: hclog.NewNullLogger()})
	ask(t, s, requestOf("CREATE", "VirtualService", objectOf("v1", "VirtualService", "", goodSpec), ""))
	ask(t, s, requestOf("CREATE", "VirtualService", objectOf("v1", "VirtualService", "", badSpec), ""))
	for i := range 3 {
		ask(t, s, strings.ReplaceAll(requestOf("CREATE", "Foo", objectOf("v1", "Foo", "", "{}"), ""),
			`"virtualservices"`, fmt.Sprintf(`"foo-%d"`, i)))
		post(s, fmt.Sprintf("/x-%d", i), "", "")
	}
	post(s, reviewPath, jsonType, "")
	post(s, validatePath, "", badText)
	want := map[string]float64{
		"ashore_webhook_requests_total /v1/validate 422": 1,
		"ashore_webhook_requests_total /validate 200":    5,
		"ashore_webhook_requests_total /validate 400":    1,
		"ashore_webhook_requests_total other 404":        3,
		"ashore_webhook_reviews_total false":             4,
		"ashore_webhook_reviews_total true":              1,
	}
	if diff := cmp.Diff(want, counters(t, reg)); diff != "" {
		t.Error(diff)
	}
}

// counters are the values of a registry's counters with labels, by name and values of labels.
func counters(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if m.GetCounter() != nil && len(m.GetLabel()) > 0 {
				out[name] = m.GetCounter().GetValue()
			}
		}
	}
	return out
}
