package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/net/netutil"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/httpserver"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

const (
	// answerTime is how long an answer may take to be read, profileTime that of a profile.
	answerTime  = 30 * time.Second
	profileTime = 5 * time.Minute
	// shutdownTime is how long requests may take to finish when the server ends.
	shutdownTime = time.Second
)

// Config is what a Server is made of.
type Config struct {
	// Listener is where it listens, from Listen. The server closes it.
	Listener net.Listener
	// Backend answers.
	Backend Backend
	// Tokens, Authority, Workloads, Audit and Explain answer what they are about. One that is nil
	// is not set up: Missing says why, and what to do.
	Tokens    Tokens
	Authority Authorities
	Workloads Workloads
	Audit     AuditLog
	Explain   Explainer
	Missing   string
	// Maintenance ends what is retained until an operator says so. Nil: it is not set up.
	Maintenance Maintenance
	// Catalog tells of services. Nil: it is not set up.
	Catalog Catalog
	// Store writes and reads the store of configuration. Nil: there is none.
	Store Stores
	// Record takes who read a dump and who was refused to the audit log. Nil: the log alone is
	// told.
	Record func(audit.Event)
	// Log is told the same.
	Log hclog.Logger
	// Role says what a peer may do. Nil: the user of this process and root everything, and others
	// nothing.
	Role func(Peer) Role
}

// Server answers operators.
type Server struct {
	cfg      Config
	busy     semaphore         // requests
	streams  semaphore         // requests that follow or watch
	writes   semaphore         // writes to the store, one at a time
	reads    semaphore         // previews and differences, one at a time: they need much memory
	refusals ratelimit.Limiter // by user
	ending   chan struct{}     // closed by end: streams end
	end      func()            // once
}

// New returns a server that answers once it runs.
func New(cfg Config) *Server {
	if cfg.Role == nil {
		cfg.Role = Access{}.Role
	}
	if cfg.Record == nil {
		cfg.Record = func(audit.Event) {}
	}
	s := &Server{cfg: cfg, busy: make(semaphore, maxRequests), streams: make(semaphore, maxStreams),
		writes: make(semaphore, 1), reads: make(semaphore, 1), ending: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.ending) })
	return s
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	defer s.end()
	srv := &http.Server{
		Handler:           s.identified(s.routes()),
		ConnContext:       withPeer,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          s.cfg.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	srv.RegisterOnShutdown(s.end)
	return httpserver.Run(ctx, srv, netutil.LimitListener(peerListener{s.cfg.Listener}, maxConnections), shutdownTime)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, list := range [][]route{s.stateRoutes(), s.tokenRoutes(), s.authorityRoutes(), s.workloadRoutes(),
		s.explainRoutes(), s.storeRoutes(), s.maintenanceRoutes()} {
		for _, rt := range list {
			mux.HandleFunc(rt.pattern, s.permit(rt.role, func(w http.ResponseWriter,
				r *http.Request) {
				s.serve(w, r, rt)
			}))
		}
	}
	mux.HandleFunc("GET /v1/audit", s.permit(Operator, func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Audit == nil {
			s.answer(w, nil, s.notSetUp(r))
		} else if err := s.auditTail(w, r); err != nil {
			s.answer(w, nil, err)
		}
	}))
	mux.HandleFunc("GET /v1/services", s.permit(Viewer, func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Catalog == nil {
			s.answer(w, nil, s.notSetUp(r))
		} else if err := s.services(w, r); err != nil {
			s.answer(w, nil, err)
		}
	}))
	for path, profile := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline,
		"profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
		mux.HandleFunc("GET "+profiles+path, s.permit(Admin, s.slot(profile)))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, http.StatusNotFound, fmt.Sprintf("%s %s is not part of the admin API of this version", r.Method,
			r.URL.Path))
	})
	return mux
}

// stateRoutes are those of Backend.
func (s *Server) stateRoutes() []route {
	b := s.cfg.Backend
	return []route{
		{"GET /v1/version", Viewer, true, func(*http.Request) (any, error) { return b.Version(), nil }},
		{"GET /v1/status", Viewer, true, func(*http.Request) (any, error) { return b.Status(), nil }},
		{"GET /v1/problems", Viewer, true, func(*http.Request) (any, error) { return b.Problems(), nil }},
		{"GET /v1/objects", Viewer, true, func(r *http.Request) (any, error) {
			q := r.URL.Query()
			return b.Objects(q.Get("kind"), q.Get("namespace"), q.Get("name"))
		}},
		{"GET /v1/dump", Operator, true, func(r *http.Request) (any, error) {
			q := r.URL.Query()
			out, err := b.Dump(q.Get("proxy"), q.Get("type"))
			s.dumped(r, q.Get("proxy"), q.Get("type"), err)
			return out, err
		}},
	}
}

// dumped records who read a dump.
func (s *Server) dumped(r *http.Request, proxy, typ string, err error) {
	e := audit.Event{Action: audit.DumpRead, Actor: who(r), Target: proxy}
	if typ != "" {
		e.Details = map[string]string{"type": typ}
	}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, err.Error()
	}
	s.cfg.Log.Info("dump read", "proxy", proxy, "type", typ, "by", e.Actor)
	s.cfg.Record(e)
}

func (s *Server) answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		s.refuseWith(w, status(err), refusalOf(err))
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		s.refuse(w, http.StatusInternalServerError, fmt.Sprintf("encode the answer: %v", err))
		return
	}
	s.write(w, http.StatusOK, body)
}

func (s *Server) refuse(w http.ResponseWriter, code int, text string) {
	s.refuseWith(w, code, refusalBody{Error: text})
}

// refuseWith refuses with all that there is to say.
func (s *Server) refuseWith(w http.ResponseWriter, code int, b refusalBody) {
	body, err := json.Marshal(b)
	if err != nil { // a string always encodes
		code, body = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	s.write(w, code, body)
}

func (s *Server) write(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil && !errors.Is(err, net.ErrClosed) {
		s.cfg.Log.Debug("admin answer not read", "error", err)
	}
}
