package agent

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ashore-mesh/ashore/agent/envoy"
	"github.com/ashore-mesh/ashore/agent/metrics"
	"github.com/ashore-mesh/ashore/internal/peername"
)

// serveStatus serves the status port until ctx ends.
func (a *Agent) serveStatus(ctx context.Context) error {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", a.settings.at(statusPort))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/ready", a.serveReady)
	mux.HandleFunc("POST /quitquitquit", a.serveQuit)
	mux.HandleFunc("GET /metrics", a.serveMetrics)
	mux.HandleFunc("GET /stats/prometheus", a.serveMetrics)
	return serveHTTP(ctx, l, mux, a.log)
}

// serveReady answers 200, or 503 with the reason.
func (a *Agent) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := a.health.ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// serveQuit drains and ends Envoy and the agent. Only requests from this machine are accepted.
func (a *Agent) serveQuit(w http.ResponseWriter, r *http.Request) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	to, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if err != nil || to == nil || !from.Addr().IsLoopback() && from.Addr().Unmap() != to.AddrPort().Addr().Unmap() {
		http.Error(w, "only processes of this machine may end the agent", http.StatusForbidden)
		return
	}
	a.log.Info("envoy and this agent end: /quitquitquit asks for it")
	a.quit()
}

// maxScrapes is the maximum number of concurrent scrapes; more get 429. The server's write timeout
// ends those of slow readers.
const maxScrapes = 4

// scrapeTimeout is less than the server's write timeout.
const scrapeTimeout = 4 * envoy.AdminTimeout

// serveMetrics answers with all metrics, compressed if the reader accepts it.
func (a *Agent) serveMetrics(w http.ResponseWriter, r *http.Request) {
	select {
	case a.scrapes <- struct{}{}:
		defer func() { <-a.scrapes }()
	default:
		http.Error(w, "too many scrapes at one time", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
	defer cancel()
	w.Header().Set("Content-Type", metricsType)
	var out io.Writer = w
	finish := func() error { return nil }
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") { // each line repeats all labels
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		out, finish = z, z.Close
	}
	err := a.writeMetrics(ctx, out)
	if err == nil {
		err = finish()
	}
	if err != nil {
		a.log.Debug("write metrics", "error", err)
		panic(http.ErrAbortHandler) // so that the reader notices
	}
}

// writeMetrics writes the agent's own metrics and, after them, Envoy's and the application's.
func (a *Agent) writeMetrics(ctx context.Context, w io.Writer) error {
	application, appErr := a.applicationMetrics(ctx)
	if _, err := w.Write(a.ownMetrics(appErr)); err != nil {
		return err
	}
	// If Envoy does not answer, the metric envoy_up says so.
	if body, err := a.admin.Open(ctx, http.MethodGet, "/stats/prometheus"); err == nil {
		err := metrics.Rewrite(w, body, a.workload()) // streamed, because it may have 64 MiB and any host can ask
		if err = errors.Join(err, body.Close()); err != nil {
			return fmt.Errorf("pass on Envoy's metrics: %w", err)
		}
	}
	_, err := w.Write(application)
	return err
}

// workload returns what metrics say of this workload: what its certificate says, so that both ends of
// a connection have the same labels. A certificate without names leaves its settings.
func (a *Agent) workload() metrics.Workload {
	w := &a.settings.Workload
	out := metrics.Workload{Name: w.peerName(), Namespace: w.Namespace}
	if a.certs != nil {
		id := a.certs.Identity()
		out.Principal = id.ID.String()
		if n := id.peerName(); n != (peername.Name{}) {
			out.Name = n // a renewed certificate may have others
		}
	}
	return out
}

// metricsType is the content type of Prometheus' text format.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"
