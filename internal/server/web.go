package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ashore-mesh/ashore/internal/httpserver"
)

// web serves what machines ask over HTTP: metrics, health, readiness and targets. Nothing but the
// targets is secret.
type web struct {
	listener net.Listener
	gatherer prometheus.Gatherer
	// waiting names what proxies still wait for; empty when they are served.
	waiting func() []string
	targets http.Handler
	log     hclog.Logger
}

// run serves until ctx ends.
func (w *web) run(ctx context.Context) error {
	srv := &http.Server{
		Handler:           http.MaxBytesHandler(w.routes(), 0),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          w.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return httpserver.Run(ctx, srv, w.listener, time.Second)
}

func (w *web) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.gatherer, promhttp.HandlerOpts{
		ErrorLog:            w.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}),
		MaxRequestsInFlight: 4,
		Timeout:             20 * time.Second,
	}))
	mux.Handle("GET /prometheus/targets", w.targets)
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "alive\n") })
	mux.HandleFunc("GET /ready", func(rw http.ResponseWriter, _ *http.Request) {
		if waiting := w.waiting(); len(waiting) > 0 {
			http.Error(rw, "not ready: waits for "+strings.Join(waiting, ", "), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(rw, "ready\n")
	})
	return mux
}
