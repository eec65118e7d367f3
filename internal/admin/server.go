package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // adds /debug/pprof/ to http.DefaultServeMux
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/semaphore"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/httpserver"
	"github.com/ashore-mesh/ashore/internal/ratelimit"
)

const (
	apiPath = "/v1/" // of every call
	// readTime and writeTime limit how long a request may take to arrive, and to be answered. A
	// profile takes up to five minutes.
	readTime, writeTime = 2 * time.Minute, 6 * time.Minute
	// turnTime is how long a request waits for its turn.
	turnTime = 30 * time.Second
	// shutdownTime is how long requests may take to finish when the server ends.
	shutdownTime = time.Second
	// maxConnections limits the connections of all users, and so the requests that are processed at
	// once. One more waits until another is closed.
	maxConnections = 64
	// maxBody limits the files of a request, in bytes, and maxViewed those of a viewer's: parsing
	// may take 200 times their size in memory.
	maxBody, maxViewed = 1 << 20, 8 << 20
)

// Config is the configuration of Serve.
type Config struct {
	// Listener is from Listen. Serve closes it.
	Listener net.Listener
	// Routes are the handlers of calls.
	Routes []Route
	// Record takes refused users to the audit log.
	Record func(audit.Event)
	Log    hclog.Logger
	// Role returns what a peer may do.
	Role func(Peer) Role
}

// Route is a call with its handler. Make it with Handle.
type Route struct {
	// Turn makes the requests of all routes that have it run one at a time; the others wait for up
	// to 30 s, and their bodies are not read before. Nil: they run at once.
	Turn *semaphore.Weighted
	// MaxBody limits the files of a request, in bytes. Zero means 1 MiB. Requests of viewers have at
	// most 8 MiB.
	MaxBody int64

	name   string
	role   Role // the least that may call it
	answer func(*http.Request) (any, error)
}

// Handle returns the route of a call. role is the least one that may call it. Actor tells f who
// calls. f's errors are those of NewError, or errors of the server.
func Handle[Q, A any](call Call[Q, A], role Role, f func(context.Context, Q) (A, error)) Route {
	return Route{name: string(call), role: role, answer: func(r *http.Request) (any, error) {
		var q Q
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		return f(r.Context(), q)
	}}
}

// NotSetUp returns the route with a handler that only returns ErrNotSetUp with a text.
func (r Route) NotSetUp(text string) Route {
	r.answer = func(*http.Request) (any, error) { return nil, NewError(ErrNotSetUp, "%s", text) }
	return r
}

// server answers operators. All fields are immutable.
type server struct {
	Config
	refusals *ratelimit.Limiter // of refusals in the audit log, by user
}

// Serve answers calls until ctx ends.
func Serve(ctx context.Context, cfg Config) error {
	s := &server{Config: cfg, refusals: &ratelimit.Limiter{}}
	srv := &http.Server{
		Handler: s.handler(),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			p := c.RemoteAddr().(Peer)
			return WithCaller(ctx, p.String(), cfg.Role(p))
		},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          cfg.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return httpserver.Run(ctx, srv, netutil.LimitListener(peerListener{cfg.Listener}, maxConnections), shutdownTime)
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range s.Routes {
		mux.HandleFunc("POST "+apiPath+rt.name, s.guard(rt.role, func(w http.ResponseWriter, r *http.Request) {
			out, err := s.serve(rt, w, r)
			s.respond(w, out, err)
		}))
	}
	mux.HandleFunc("GET /debug/pprof/", s.guard(Admin, http.DefaultServeMux.ServeHTTP))
	mux.HandleFunc("/", s.guard(Viewer, func(w http.ResponseWriter, r *http.Request) {
		s.respond(w, nil, NewError(ErrNotFound, "%s %s is not part of the admin API of this version", r.Method,
			r.URL.Path))
	}))
	return mux
}

// guard returns a handler for users who have a role. Others learn nothing but that they lack it.
func (s *server) guard(role Role, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if has := RoleOf(r.Context()); has < role {
			s.recordRefusal(r, fmt.Sprintf("needs the role %s, has %s", role, has))
			s.respond(w, nil, NewError(ErrForbidden, "%s may not do that: it needs the role %s, and theirs is %s "+
				"(setting admin.roles)", Actor(r.Context()), role, has))
			return
		}
		next(w, r)
	}
}

// serve answers a call when it is its turn.
func (s *server) serve(rt Route, w http.ResponseWriter, r *http.Request) (any, error) {
	if rt.Turn != nil {
		ctx, cancel := context.WithTimeout(r.Context(), turnTime)
		defer cancel()
		if rt.Turn.Acquire(ctx, 1) != nil {
			return nil, NewError(ErrBusy, "others used the store for %s: try again", turnTime)
		}
		defer rt.Turn.Release(1)
	}
	most := max(rt.MaxBody, maxBody)
	if RoleOf(r.Context()) == Viewer {
		most = min(most, maxViewed)
	}
	r.Body = http.MaxBytesReader(w, r.Body, most/2*3) // base64 and JSON take up to half as much again
	return rt.answer(r)
}

// recordRefusal records that a user was refused, up to a limit.
func (s *server) recordRefusal(r *http.Request, reason string) {
	actor := Actor(r.Context())
	record, silent := s.refusals.Allow(actor, time.Now())
	if !record {
		return
	}
	e := audit.Event{Action: audit.AdminRefuse, Actor: actor, Target: r.Method + " " + r.URL.Path,
		Outcome: audit.Refused, Reason: reason}
	if silent > 0 {
		e.Details = map[string]string{"notRecorded": strconv.Itoa(silent)}
	}
	s.Record(e)
}

// decode reads the body of a request: JSON without unknown fields.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return NewError(ErrInvalid, "the request has more than %d MiB: send it in several steps", tooLarge.Limit*2/3>>20)
	}
	if err != nil {
		return NewError(ErrInvalid, "the request's body is not what %s takes: %v", r.URL.Path, err)
	}
	return nil
}

// respond sends an answer, or the error instead.
func (s *server) respond(w http.ResponseWriter, answer any, err error) {
	code := http.StatusOK
	body, encodeErr := json.Marshal(answer)
	if err = cmp.Or(err, encodeErr); err != nil {
		refusal := refusalOf(err)
		code = refusal.Code
		body, _ = json.Marshal(refusal) // text and numbers can be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		s.Log.Debug("admin answer not read", "error", err)
	}
}
