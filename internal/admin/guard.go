package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/audit"
)

const (
	// profiles is where Go's profiles are.
	profiles = "/debug/pprof/"
	// maxBody bounds a question, in bytes.
	maxBody = 64 << 10
)

// route is a question and who may ask it.
type route struct {
	pattern string // as http.ServeMux takes it
	role    Role   // the least that is needed
	set     bool   // there is somebody to answer
	ask     func(*http.Request) (any, error)
}

// identified lets through who is known and has any role: nobody else learns so much as which paths
// there are.
func (s *Server) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.setDeadlines(w, r)
		p, err := peerOf(r)
		if err != nil {
			s.turnAway(w, r, "the user at the other end is not known", err.Error())
			return
		}
		role := s.cfg.Role(p)
		if role == Nobody {
			s.turnAway(w, r, fmt.Sprintf("%s may not use the admin API: root and the user that ashored runs as may, and whom the setting admin.roles names", p), "no role")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit(r, role))
		next.ServeHTTP(w, r)
	})
}

// setDeadlines bounds how long a question may take.
func (s *Server) setDeadlines(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	err := c.SetWriteDeadline(time.Now().Add(writeTime(r)))
	if storeWrite(r) {
		err = errors.Join(err, c.SetReadDeadline(time.Now().Add(storeTime)))
	}
	if err != nil {
		s.cfg.Log.Debug("admin connection without deadline", "error", err)
	}
}

// permit lets through who has the role.
func (s *Server) permit(role Role, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := peerOf(r)
		if have := s.cfg.Role(p); err != nil || have < role {
			s.turnAway(w, r, fmt.Sprintf("%s may not do that: it is for the role %s, and theirs is %s (setting admin.roles)", p, role, have),
				fmt.Sprintf("needs the role %s, has %s", role, have))
			return
		}
		next(w, r)
	}
}

// turnAway refuses who may not, and records it, but not without end.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, text, reason string) {
	p, _ := peerOf(r) // who is not known counts as one
	if record, silent := s.refusals.Allow(strconv.FormatUint(uint64(p.UID), 10), time.Now()); record {
		e := audit.Event{Action: audit.AdminRefuse, Actor: who(r), Target: r.Method + " " + r.URL.Path,
			Outcome: audit.Refused, Reason: reason}
		if silent > 0 {
			e.Details = map[string]string{"notRecorded": strconv.Itoa(silent)}
		}
		s.cfg.Log.Warn("admin request refused", "by", e.Actor, "method", r.Method, "path", r.URL.Path, "reason", reason,
			"not_recorded", silent)
		s.cfg.Record(e)
	}
	s.refuse(w, http.StatusForbidden, text)
}

// slot limits the requests that are processed, or whose answers wait to be read.
func (s *Server) slot(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		release, err := s.busy.tryAcquire("requests are being processed")
		if err != nil {
			s.answer(w, nil, err)
			return
		}
		defer release()
		next(w, r)
	}
}

// serve answers one question.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt route) {
	if !rt.set {
		s.answer(w, nil, s.notSetUp(r))
		return
	}
	s.slot(func(w http.ResponseWriter, r *http.Request) {
		out, err := rt.ask(r)
		s.answer(w, out, err)
	})(w, r)
}

// notSetUp is the error for what nobody here answers.
func (s *Server) notSetUp(r *http.Request) error {
	text := "this control plane does not answer " + r.URL.Path
	if s.cfg.Missing != "" {
		text += ": " + s.cfg.Missing
	}
	return NewError(ErrNotSetUp, text)
}

// who is the user at the other end, for people.
func who(r *http.Request) string {
	p, err := peerOf(r)
	if err != nil {
		return "unknown"
	}
	return p.String()
}

// writeTime is how long an answer may take.
func writeTime(r *http.Request) time.Duration {
	if strings.HasPrefix(r.URL.Path, profiles) {
		return profileTime
	}
	if strings.HasPrefix(r.URL.Path, storePaths) {
		return 2 * storeTime // what arrives at the last moment is answered, too
	}
	return answerTime
}

// decode reads the question in a body: one JSON object without fields that are not known.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return NewError(ErrInvalid, fmt.Sprintf("the request's body is not what %s %s takes: %v", r.Method, r.URL.Path,
			err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return NewError(ErrInvalid, "the request's body goes on after its end")
	}
	return nil
}
