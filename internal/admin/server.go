package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// maxRequests is how many requests are worked on at once; more are refused, for an operator's
	// script must not take the machine from the proxies.
	maxRequests = 16
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
	// Log is told who read a dump, and who was refused.
	Log hclog.Logger
	// Allow says whether a user may ask. Nil: the user of this process, and root.
	Allow func(uid uint32) bool
}

// Server answers operators.
type Server struct {
	cfg  Config
	busy chan struct{} // one slot for each request at work
}

// New returns a server that answers once it runs.
func New(cfg Config) *Server {
	if cfg.Allow == nil {
		cfg.Allow = ownerOrRoot
	}
	return &Server{cfg: cfg, busy: make(chan struct{}, maxRequests)}
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	srv := &http.Server{
		Handler:           s.guard(s.routes()),
		ConnContext:       withPeer,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          s.cfg.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(s.cfg.Listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", s.cfg.Listener.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if err := srv.Shutdown(end); err != nil {
		err = srv.Close() // a long profile: cut it off
		<-failed
		return err
	}
	<-failed
	return nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	b := s.cfg.Backend
	mux.HandleFunc("GET /v1/version", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, b.Version(), nil) })
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, b.Status(), nil) })
	mux.HandleFunc("GET /v1/problems", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, b.Problems(), nil) })
	mux.HandleFunc("GET /v1/objects", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		out, err := b.Objects(q.Get("kind"), q.Get("namespace"), q.Get("name"))
		s.answer(w, out, err)
	})
	mux.HandleFunc("GET /v1/dump", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		s.cfg.Log.Info("dump read", "proxy", q.Get("proxy"), "type", q.Get("type"), "uid", uid(r))
		out, err := b.Dump(q.Get("proxy"), q.Get("type"))
		s.answer(w, out, err)
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, http.StatusNotFound, fmt.Sprintf("%s %s is not part of the admin API of this version", r.Method, r.URL.Path))
	})
	return mux
}

// guard lets through whom the server allows, and only so many at once.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(peer)
		if p.cred == nil || !s.cfg.Allow(p.cred.Uid) {
			s.cfg.Log.Warn("admin request refused", "uid", uid(r), "path", r.URL.Path, "error", p.err)
			s.refuse(w, http.StatusForbidden, fmt.Sprintf("user %s may not use the admin API: only root and the user that ashored runs as may", uid(r)))
			return
		}
		select {
		case s.busy <- struct{}{}:
			defer func() { <-s.busy }()
		default:
			s.refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d requests are at work already: try again", maxRequests))
			return
		}
		limit := answerTime
		if strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
			limit = profileTime
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit)); err != nil {
			s.cfg.Log.Debug("admin connection without deadline", "error", err)
		}
		r.Body = http.MaxBytesReader(w, r.Body, 0)
		next.ServeHTTP(w, r)
	})
}

// uid is the user at the other end, for people.
func uid(r *http.Request) string {
	if p, _ := r.Context().Value(peerKey{}).(peer); p.cred != nil {
		return fmt.Sprint(p.cred.Uid)
	}
	return "unknown"
}

func (s *Server) answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		s.refuse(w, status(err), err.Error())
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
	body, err := json.Marshal(map[string]string{"error": text})
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
