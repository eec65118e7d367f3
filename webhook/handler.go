package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/connlimit"
)

const (
	// reviewPath is Istio's, so that an API server that asked Istio needs no other.
	reviewPath   = "/validate"
	validatePath = "/v1/validate"
	otherPath    = "other" // of all other paths, in metrics

	jsonType = "application/json"
	// retryAfter is when a client should retry, in seconds.
	retryAfter = "1"
)

// answer is the response to a request.
type answer struct {
	code int
	kind string // the type of body
	body []byte
}

func textAnswer(code int, text string) answer {
	return answer{code, "text/plain; charset=utf-8", []byte(text)}
}

func jsonAnswer(code int, v any) (answer, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return answer{}, fmt.Errorf("write JSON: %w", err)
	}
	return answer{code, jsonType, append(body, '\n')}, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	path, serve := s.route(r.URL.Path)
	a, err := answer{}, check(r, path)
	if err == nil {
		a, err = s.serve(w, r, serve)
	}
	if err != nil {
		a = s.refuse(r, err)
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	switch a.code {
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", retryAfter)
	}
	w.WriteHeader(a.code)
	if _, err := w.Write(a.body); err != nil {
		s.config.Log.Debug("answer not read", "from", r.RemoteAddr, "error", err)
	}
	s.metrics.requests.WithLabelValues(path, strconv.Itoa(a.code)).Inc()
	s.metrics.seconds.WithLabelValues(path).Observe(time.Since(began).Seconds())
}

// route returns the function that serves a path, or nil, and the path's name in metrics.
func (s *Server) route(path string) (string, func(*http.Request, []byte) (answer, error)) {
	switch path {
	case reviewPath:
		return reviewPath, s.admission
	case validatePath:
		return validatePath, s.text
	default:
		return otherPath, nil
	}
}

// check refuses a request by its path, method and headers.
func check(r *http.Request, path string) error {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // empty if it cannot be read
	switch {
	case path == otherPath:
		return refusef(http.StatusNotFound,
			"there is nothing here: POST an AdmissionReview to %s, or configuration as YAML or JSON to %s", reviewPath, validatePath)
	case r.Method != http.MethodPost && path == reviewPath:
		return refusef(http.StatusMethodNotAllowed, "POST an AdmissionReview of %s here, as an API server does", reviewVersion)
	case r.Method != http.MethodPost:
		return refusef(http.StatusMethodNotAllowed,
			"POST configuration as YAML or JSON here: curl --cacert ca.pem --data-binary @web.yaml 'https://HOST:PORT%s?%s=web.yaml'", validatePath, fileParameter)
	case path == reviewPath && kind != jsonType:
		return refusef(http.StatusUnsupportedMediaType, "the Content-Type is %.100q, want %s", kind, jsonType)
	}
	return nil
}

// serve admits, reads and answers a request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request,
	serve func(*http.Request, []byte) (answer, error)) (answer, error) {
	leave, err := s.gate.enter(connlimit.Source(r.RemoteAddr).String(), time.Now())
	if err != nil {
		return answer{}, err
	}
	defer leave()
	data, err := s.gate.read(w, r)
	if err != nil {
		return answer{}, err
	}
	done, err := s.gate.parse(r.Context(), len(data))
	if err != nil {
		return answer{}, err
	}
	defer done()
	return serve(r, data)
}

// refuse is the answer that tells an error. It is logged, as a warning if an operator could do
// something about it.
func (s *Server) refuse(r *http.Request, err error) answer {
	var no *refusal
	if !errors.As(err, &no) {
		no = refusef(http.StatusInternalServerError, "%v", err)
	}
	level := hclog.Debug
	switch no.code {
	case http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError:
		if r.Context().Err() == nil { // the client still waits
			level = hclog.Warn
		}
	}
	from := connlimit.Source(r.RemoteAddr).String()
	s.log.Log(level, from, "request to validate refused", "from", from, "path", fmt.Sprintf("%.100q", r.URL.Path),
		"status", no.code, "error", no.text)
	return textAnswer(no.code, no.text+"\n")
}
