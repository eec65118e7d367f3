package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
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
	// lineTime is how long a client of a stream may take to read one item.
	lineTime = 30 * time.Second
	// turnTime is how long a request waits for its turn.
	turnTime = 30 * time.Second
	// shutdownTime is how long requests may take to finish when the server ends.
	shutdownTime = time.Second
	// maxConnections limits the connections of all users, so that file descriptors remain for
	// proxies. One more waits until another is closed.
	maxConnections = 256
	// maxRequests limits the requests that are processed at once, and maxStreams those that follow.
	maxRequests, maxStreams = 16, 16
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
	// Record takes refused users to the audit log. Nil: they are only logged.
	Record func(audit.Event)
	Log    hclog.Logger
	// Role returns what a peer may do. Nil: root and the user of this process are admins, others
	// may do nothing.
	Role func(Peer) Role
}

// Route is a call with its handler. Make it with Handle or HandleStream.
type Route struct {
	// Turn makes the requests of all routes that have it run one at a time; the others wait for up
	// to 30 s, and their bodies are not read before. Nil: they run at once.
	Turn *semaphore.Weighted
	// MaxBody limits the files of a request, in bytes. Zero means 1 MiB. Requests of viewers have at
	// most 8 MiB.
	MaxBody int64

	name    string
	role    Role // the least that may call it
	handler func(*server, http.ResponseWriter, *http.Request) error
}

// Handle returns the route of a call. role is the least one that may call it. Actor tells f who
// calls. f's errors are those of NewError, or errors of the server.
func Handle[Q, A any](call Call[Q, A], role Role, f func(context.Context, Q) (A, error)) Route {
	return Route{name: string(call), role: role, handler: func(s *server, w http.ResponseWriter, r *http.Request) error {
		release, err := acquire(s.requests, maxRequests, "requests are being processed")
		if err != nil {
			return err
		}
		defer release()
		var q Q
		if err := decode(r, &q); err != nil {
			return err
		}
		out, err := f(r.Context(), q)
		if err != nil {
			return err
		}
		return s.write(w, http.StatusOK, out)
	}}
}

// follower is the request of a stream. Follows says that the stream has no end.
type follower interface{ Follows() bool }

// line is a line of a stream: an item, or why the stream ends early.
type line[T any] struct {
	Item    *T       `json:"item,omitempty"`
	Refusal *Refusal `json:"refusal,omitempty"`
}

// HandleStream returns the route of a stream. f calls emit for each item, and returns when its
// context ends.
func HandleStream[Q follower, T any](stream Stream[Q, T], role Role,
	f func(ctx context.Context, q Q, emit func(T) error) error) Route {
	return Route{name: string(stream), role: role, handler: func(s *server, w http.ResponseWriter, r *http.Request) error {
		var q Q
		if err := decode(r, &q); err != nil {
			return err
		}
		limit, most, what := s.requests, int64(maxRequests), "requests are being processed"
		if q.Follows() {
			limit, most, what = s.streams, maxStreams, "streams follow the audit log or services already"
		}
		release, err := acquire(limit, most, what)
		if err != nil {
			return err
		}
		defer release()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			select {
			case <-s.ending:
				cancel()
			case <-ctx.Done():
			}
		}()
		w.Header().Set("Content-Type", "application/jsonl")
		c, out := http.NewResponseController(w), json.NewEncoder(w)
		send := func(l line[T]) error {
			err := errors.Join(c.SetWriteDeadline(time.Now().Add(lineTime)), out.Encode(l))
			if err == nil && q.Follows() {
				err = c.Flush()
			}
			return err
		}
		if q.Follows() { // the client learns that it may follow before the first item
			err = errors.Join(c.SetReadDeadline(time.Time{}), c.Flush())
		}
		if err == nil {
			err = f(ctx, q, func(v T) error { return send(line[T]{Item: &v}) })
		}
		if err != nil && ctx.Err() == nil {
			if unsent := send(line[T]{Refusal: refusalOf(err)}); unsent != nil {
				s.Log.Debug("admin stream not read", "error", unsent)
			}
		}
		return nil
	}}
}

// NotSetUp returns the route with a handler that only returns ErrNotSetUp with a text.
func (r Route) NotSetUp(text string) Route {
	r.handler = func(*server, http.ResponseWriter, *http.Request) error { return NewError(ErrNotSetUp, "%s", text) }
	return r
}

// server answers operators. All fields are immutable.
type server struct {
	Config
	ending            <-chan struct{} // closed when streams have to end
	requests, streams *semaphore.Weighted
	refusals          *ratelimit.Limiter // of refusals in the audit log, by user
}

// Serve answers calls until ctx ends.
func Serve(ctx context.Context, cfg Config) error {
	if cfg.Role == nil {
		cfg.Role = Access{}.Role
	}
	s := &server{Config: cfg, ending: ctx.Done(), requests: semaphore.NewWeighted(maxRequests),
		streams: semaphore.NewWeighted(maxStreams), refusals: &ratelimit.Limiter{}}
	srv := &http.Server{
		Handler:           s.routes(),
		ConnContext:       withPeer,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          cfg.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return httpserver.Run(ctx, srv, netutil.LimitListener(peerListener{cfg.Listener}, maxConnections), shutdownTime)
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range s.Routes {
		mux.HandleFunc("POST "+apiPath+rt.name, s.guard(rt))
	}
	for name, profile := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline,
		"profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
		mux.HandleFunc("GET /debug/pprof/"+name, s.guard(Route{role: Admin,
			handler: func(s *server, w http.ResponseWriter, r *http.Request) error {
				release, err := acquire(s.requests, maxRequests, "requests are being processed")
				if err != nil {
					return err
				}
				defer release()
				profile(w, r)
				return nil
			}}))
	}
	mux.HandleFunc("/", s.guard(Route{role: Viewer, handler: func(_ *server, _ http.ResponseWriter, r *http.Request) error {
		return NewError(ErrNotFound, "%s %s is not part of the admin API of this version", r.Method, r.URL.Path)
	}}))
	return mux
}

// guard returns the handler of a route for users who have the role. Others learn nothing but that.
func (s *server) guard(rt Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := peerOf(r.Context())
		role := s.Role(p)
		switch {
		case err != nil:
			err = s.turnAway(r, "the user at the other end is not known", err.Error())
		case role == Nobody:
			err = s.turnAway(r, fmt.Sprintf("%s may not use the admin API: root and the user that ashored runs as may, "+
				"and whom the setting admin.roles names", p), "no role")
		case role < rt.role:
			err = s.turnAway(r, fmt.Sprintf("%s may not do that: it is for the role %s, and theirs is %s "+
				"(setting admin.roles)", p, rt.role, role), fmt.Sprintf("needs the role %s, has %s", rt.role, role))
		default:
			err = s.serve(rt, role, w, r)
		}
		if err != nil {
			refusal := refusalOf(err)
			_ = s.write(w, refusal.Code, refusal) // text and numbers can be encoded
		}
	}
}

// serve runs the handler of a route when it is its turn.
func (s *server) serve(rt Route, role Role, w http.ResponseWriter, r *http.Request) error {
	if rt.Turn != nil {
		ctx, cancel := context.WithTimeout(r.Context(), turnTime)
		defer cancel()
		if rt.Turn.Acquire(ctx, 1) != nil {
			return NewError(ErrBusy, "others used the store for %s: try again", turnTime)
		}
		defer rt.Turn.Release(1)
	}
	most := max(rt.MaxBody, maxBody)
	if role == Viewer {
		most = min(most, maxViewed)
	}
	r.Body = http.MaxBytesReader(w, r.Body, most/2*3) // base64 and JSON take up to half as much again
	return rt.handler(s, w, r)
}

// acquire takes one of most places. Errors: ErrBusy, with what takes them.
func acquire(limit *semaphore.Weighted, most int64, what string) (release func(), err error) {
	if !limit.TryAcquire(1) {
		return nil, NewError(ErrBusy, "%d %s: try again", most, what)
	}
	return func() { limit.Release(1) }, nil
}

// turnAway records that a user was refused, up to a limit, and returns the error.
func (s *server) turnAway(r *http.Request, text, reason string) error {
	p, _ := peerOf(r.Context()) // all who are not known count as one
	if record, silent := s.refusals.Allow(strconv.FormatUint(uint64(p.UID), 10), time.Now()); record {
		e := audit.Event{Action: audit.AdminRefuse, Actor: Actor(r.Context()), Target: r.Method + " " + r.URL.Path,
			Outcome: audit.Refused, Reason: reason}
		if silent > 0 {
			e.Details = map[string]string{"notRecorded": strconv.Itoa(silent)}
		}
		s.Log.Warn("admin request refused", "by", e.Actor, "method", r.Method, "path", r.URL.Path, "reason", reason,
			"not_recorded", silent)
		if s.Record != nil {
			s.Record(e)
		}
	}
	return NewError(ErrForbidden, "%s", text)
}

// decode reads the body of a request: one JSON object without unknown fields.
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
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return NewError(ErrInvalid, "the request's body goes on after its end")
	}
	return nil
}

// write sends a response. Errors: it cannot be encoded; nothing is sent then.
func (s *server) write(w http.ResponseWriter, code int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		s.Log.Debug("admin answer not read", "error", err)
	}
	return nil
}
