package agent

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/agent/probe"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// The application's metrics follow the agent's. An application that does not answer as it should is
// a metric, not an error.
func TestApplicationMetrics(t *testing.T) {
	t.Parallel()
	const plain = "text/plain; version=0.0.4"
	for name, tc := range map[string]struct {
		body, kind string
		code       int
		well       bool
	}{
		"well":      {"app_requests 7", plain, http.StatusOK, true},
		"error":     {"app_requests 7\n", plain, http.StatusInternalServerError, false},
		"redirect":  {"app_requests 7\n", plain, http.StatusFound, false},
		"a page":    {"<p>app_requests 7\n", "text/html", http.StatusOK, false},
		"too large": {strings.Repeat("app_requests 7\n", maxApplicationMetrics/10), plain, http.StatusOK, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.Header().Set("Location", "/elsewhere")
				if r.URL.Path != "/app/metrics" {
					tc.code = http.StatusNotFound
				}
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(tc.body)) // the client stops at its bound
			}))
			t.Cleanup(app.Close)
			_, port, _ := strings.Cut(app.Listener.Addr().String(), ":") // on loopback; nothing serves it at the own address
			a := &Agent{settings: example(t, "127.0.42.9", nil)}
			a.setConfig(&meshconfig.ProxyConfig{ProxyMetadata: map[string]string{
				resource.ApplicationMetrics: port + "/app/metrics"}})
			got, err := a.applicationMetrics(t.Context())
			if (err == nil) != tc.well || tc.well && string(got) != tc.body+"\n" {
				t.Errorf("got %.100q, %v", got, err)
			}
		})
	}
}

// The agent asks for the application's metrics as the control plane says, and on this machine alone.
func TestApplicationURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":               "[]",
		"9100/metrics":   "[http://10.0.0.7:9100/metrics http://127.0.0.1:9100/metrics]",
		"80@evil.test/x": "[]",
		"evil.test:80/":  "[]",
		"99999/metrics":  "[]",
	} {
		a := &Agent{settings: good()}
		a.settings.Workload.Addresses = []string{"10.0.0.7"}
		a.setConfig(&meshconfig.ProxyConfig{ProxyMetadata: map[string]string{resource.ApplicationMetrics: text}})
		if got := fmt.Sprint(a.applicationURLs()); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// docs/metrics.md has every metric of the agent.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("agent_metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"(ashore_agent_[a-z_]+)"`).FindAllSubmatch(code, -1)
	for _, name := range names {
		if !bytes.Contains(doc, []byte("| `"+string(name[1]))) {
			t.Errorf("docs/metrics.md does not have %s", name[1])
		}
	}
	if len(names) < 10 {
		t.Errorf("found %d metrics", len(names))
	}
}

// Envoy's metrics are passed on while Envoy writes them, and an answer that is cut short is not
// taken for the whole.
func TestMetricsStream(t *testing.T) {
	t.Parallel()
	s := example(t, "127.0.42.10", nil)
	l, err := net.Listen("unix", s.adminSocket())
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("envoy_metric 1\n" + strings.Repeat("#", 64<<10)))
		w.(http.Flusher).Flush()
		<-next
		panic(http.ErrAbortHandler)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	a := &Agent{settings: s, log: testlog.New(t), admin: envoy.NewAdmin(s.adminSocket()), scrapes: make(chan struct{}, 1),
		envoy: &envoy.Child{}, health: &healthReporter{proxy: errStarting}}
	if err := a.connect(testlog.New(t)); err != nil {
		t.Fatal(err)
	}
	status := httptest.NewServer(http.HandlerFunc(a.serveMetrics))
	t.Cleanup(status.Close)
	// Compressed, the text would be sent in larger parts.
	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(client.CloseIdleConnections)
	resp, err := client.Get(status.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	read := bufio.NewScanner(resp.Body)
	for read.Scan() && read.Text() != "envoy_metric 1" {
	}
	if read.Err() != nil || read.Text() != "envoy_metric 1" {
		t.Fatalf("%q, %v: not there while Envoy writes", read.Text(), read.Err())
	}
	close(next)
	for read.Scan() {
	}
	if read.Err() == nil {
		t.Error("an answer that was cut short looks complete")
	}
}

// /quitquitquit is for this machine alone.
func TestQuit(t *testing.T) {
	t.Parallel()
	quit := 0
	a := &Agent{quit: func() { quit++ }, log: testlog.New(t)}
	for from, want := range map[string]int{"127.0.0.1:999": http.StatusOK, "10.0.0.7:999": http.StatusOK,
		"10.0.0.8:999": http.StatusForbidden} {
		w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/quitquitquit", nil)
		req.RemoteAddr = from
		to := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.7:15020"))
		a.serveQuit(w, req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, to)))
		if w.Code != want {
			t.Errorf("from %s: %d, want %d", from, w.Code, want)
		}
	}
	if quit != 2 {
		t.Errorf("quit %d times, want 2", quit)
	}
}

// The agent reports READY when Envoy is ready, or after a bound, and WATCHDOG at the interval that
// was asked for.
func TestNotify(t *testing.T) {
	t.Parallel()
	var sent []string
	a := &Agent{settings: good(), notifier: notifier{notify: func(s string) { sent = append(sent, s) },
		watchdog: time.Hour}}
	if err := a.connect(testlog.New(t)); err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Duration{0, time.Second, startupWait, 2 * startupWait} {
		a.notify(errNotRunning, at)
	}
	a.notify(nil, time.Hour)
	const want = "WATCHDOG=1 READY=1"
	if got := strings.Join(sent, " "); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// The service manager waits for a drain that is longer than its own bound.
func TestDrainExtendsStop(t *testing.T) {
	t.Parallel()
	s := example(t, "127.0.42.11", func(s *Settings) { s.Drain.Maximum = 3 * time.Minute })
	var sent []string
	a := &Agent{settings: s, log: testlog.New(t), admin: envoy.NewAdmin(s.adminSocket()), envoy: &envoy.Child{},
		ready:    newReadiness(nil, nil, nil, testlog.New(t)),
		health:   &healthReporter{report: func(probe.Health) {}},
		notifier: notifier{notify: func(s string) { sent = append(sent, s) }}}
	a.finish(t.Context())
	if got, want := strings.Join(sent, " "), "STOPPING=1 EXTEND_TIMEOUT_USEC=191000000"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}
