package agent

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// A starting Envoy is not asked for its statistics, and once when it serves.
func TestStartingEnvoyIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := example(t, "127.0.41.24", nil)
	l, err := net.Listen("unix", s.adminSocket())
	if err != nil {
		t.Fatal(err)
	}
	var live atomic.Bool
	var asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !live.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		const body = "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 1\n" +
			"listener_manager.workers_started: 1\n"
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

	r := newReadiness(envoy.NewAdmin(s.adminSocket()), startedOnce{}, func() string { return "" }, testlog.New(t))
	for range 5 {
		if err := r.check(t.Context()); err == nil || !strings.Contains(err.Error(),
			"has not accepted its configuration") {
			t.Fatalf("it starts: %v", err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("it starts: asked %d times, want 0", n)
	}
	live.Store(true)
	for range 5 {
		if err := r.check(t.Context()); err != nil {
			t.Errorf("it serves: %v", err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it serves: asked %d times, want 1", n)
	}
}

// startedOnce is an Envoy in its first run.
type startedOnce struct{ envoy.Runner }

func (startedOnce) State() envoy.State { return envoy.State{Runs: 1} }
