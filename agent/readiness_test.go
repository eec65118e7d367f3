package agent

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ashore-mesh/ashore/internal/testlog"
)

// A starting Envoy is seldom asked for its statistics, and at once when it serves.
func TestStartingEnvoyIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := example(t, "127.0.41.24", nil)
	l, err := net.Listen("unix", s.adminSocket())
	if err != nil {
		t.Fatal(err)
	}
	var live, configured atomic.Bool
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !live.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		body := `{"stats": [{"name": "cluster_manager.cds.update_success", "value": 0}]}`
		if configured.Load() {
			body = `{"stats": [{"name": "cluster_manager.cds.update_success", "value": 1},
				{"name": "listener_manager.lds.update_success", "value": 1}, {"name": "listener_manager.workers_started", "value": 1}]}`
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Error(err)
		}
	})
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})

	super := &supervisor{pid: func() int { return 0 }, runs: 1}
	r := newReadiness(newAdmin(&s), super, func() string { return "" }, testlog.New(t))
	want := func(what string, times int64) {
		t.Helper()
		for range missingEvery {
			if err := r.check(t.Context()); err == nil || !strings.Contains(err.Error(), "accepted no clusters and no listeners") {
				t.Fatalf("%s: %v, want what is missing", what, err)
			}
		}
		if n := asked.Load(); n != times {
			t.Errorf("%s: asked %d times, want %d", what, n, times)
		}
	}
	want("at first", 1)
	want("later", 2)
	live.Store(true)
	configured.Store(true)
	for range 5 {
		if err := r.check(t.Context()); err != nil {
			t.Errorf("it serves: %v", err)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("it serves: asked %d times, want 3", n)
	}
}
