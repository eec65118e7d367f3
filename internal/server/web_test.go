package server

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/build"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

func sample() admin.Status {
	return admin.Status{
		Config: admin.ConfigStatus{Objects: map[string]int{"VirtualService": 2, "Gateway": 1}, Services: 5,
			Endpoints: 9, Errors: 1, Warnings: 3, Conflicts: 2, Contexts: 7},
		Sources: []feed.SourceStatus{{Name: "files", Synced: true, Items: 3},
			{Name: "mcp:peer", Synced: true, Problems: 4, Retained: 2, Error: "away", ErrorSince: time.Now().Add(-time.Hour)}},
	}
}

func sampleRegistry() *prometheus.Registry {
	reg := newRegistry()
	reg.MustRegister(collectFunc(summaryMetrics(sample)))
	return reg
}

// Metrics have Istio's names where it has one.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := &web{gatherer: sampleRegistry(), targets: &discovery{}, log: testlog.New(t)}
	rec := httptest.NewRecorder()
	w.routes().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	lines := strings.Split(rec.Body.String(), "\n")
	for _, want := range []string{
		`ashore_config_objects{kind="Gateway"} 1`,
		`ashore_config_objects{kind="VirtualService"} 2`,
		`ashore_config_problems{severity="error"} 1`,
		`ashore_config_problems{severity="warning"} 3`,
		"ashore_endpoints 9",
		`ashore_source_synced{source="files"} 1`,
		`ashore_source_items{source="files"} 3`,
		"ashore_config_conflicts 2",
		`ashore_source_up{source="files"} 1`,
		`ashore_source_age_seconds{source="files"} 0`,
		`ashore_source_up{source="mcp:peer"} 0`,
		`ashore_source_retained_items{source="mcp:peer"} 2`,
		"pilot_services 5",
		"pilot_virt_services 2",
		`istio_build{component="pilot",tag="` + build.Read().Version + `"} 1`,
		`pilot_info{version="` + build.Read().Version + `"} 1`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s in\n%s", want, rec.Body)
		}
	}
	if !strings.Contains(rec.Body.String(), "\nashore_source_age_seconds{source=\"mcp:peer\"} 36") {
		t.Error("the source that is down for an hour has another age")
	}
	if !strings.Contains(rec.Body.String(), "go_goroutines ") {
		t.Error("no metrics of the Go runtime")
	}
}

func TestWeb(t *testing.T) {
	t.Parallel()
	waiting := []string{"file:/etc/ashore"}
	w := &web{gatherer: sampleRegistry(), waiting: func() []string { return waiting },
		targets: &discovery{}, log: testlog.New(t)}
	srv := httptest.NewServer(w.routes())
	defer srv.Close()
	check := func(path string, code int, want string) {
		t.Helper()
		resp, err := srv.Client().Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != code || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %.80q, %v; want %d with %q", path, resp.StatusCode, body, err, code, want)
		}
	}
	check("/healthz", http.StatusOK, "alive")
	check("/ready", http.StatusServiceUnavailable, "waits for file:/etc/ashore")
	waiting = nil
	check("/ready", http.StatusOK, "ready")
	check("/metrics", http.StatusOK, "pilot_services 5")
	check("/prometheus/targets", http.StatusNotFound, "set metrics.targetsTokenFile")
	check("/nothing", http.StatusNotFound, "")
}

func TestListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{
		l.Addr().String(): "address already in use: stop the process that uses it",
		"192.0.2.1:1":     "192.0.2.1:1: bind: cannot assign requested address",
	} {
		err := newServer(settings.Config{XDS: settings.XDS{PlaintextAddress: address}}, testlog.New(t)).listen()
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "(setting xds.plaintextAddress)") {
			t.Errorf("%s: error %v, want %q and the setting", address, err, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{"127.0.0.1:1": true, "127.0.0.9:1": true, "[::1]:1": true, ":1": false,
		"0.0.0.0:1": false, "10.0.0.1:1": false, "x": false} {
		if got := loopback(address); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}
