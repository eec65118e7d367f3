package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
)

// serveStatus serves the status port until ctx ends.
func (a *Agent) serveStatus(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/ready", a.serveReady)
	mux.HandleFunc("POST /quitquitquit", a.serveQuit)
	mux.HandleFunc("GET /metrics", a.serveMetrics)
	mux.HandleFunc("GET /stats/prometheus", a.serveMetrics)
	return serveHTTP(ctx, l, mux, a.log)
}

// serveReady answers 200, or 503 with the reason.
func (a *Agent) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := a.ready.state(); err != nil {
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
