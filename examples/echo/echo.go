package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// answer is what echo says about a request.
type answer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Address is where the request arrived, Peer where it came from.
	Address string      `json:"address"`
	Peer    string      `json:"peer"`
	Method  string      `json:"method"`
	Host    string      `json:"host"`
	Path    string      `json:"path"`
	Query   string      `json:"query,omitempty"`
	Proto   string      `json:"proto"`
	Headers http.Header `json:"headers"`
	// Body is the size of the request's body in bytes.
	Body int64 `json:"body"`
	// Request counts from one.
	Request uint64 `json:"request"`
}

// maxBody bounds what is read of a request, and of another service's answer.
const maxBody = 16 << 20

// echo answers requests.
type echo struct {
	name, version string
	mux           *http.ServeMux
	client        *http.Client
	requests      atomic.Uint64
}

func newEcho(c *config) *echo {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	if c.proxy != nil {
		transport.Proxy = func(*http.Request) (*url.URL, error) { return c.proxy, nil }
	}
	e := &echo{name: c.name, version: c.version, mux: http.NewServeMux(),
		client: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
	e.mux.HandleFunc("/", e.reply)
	e.mux.HandleFunc("/stream", e.stream)
	e.mux.HandleFunc("/call", e.call)
	e.mux.HandleFunc("/requests", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]uint64{"requests": e.requests.Load()})
	})
	return e
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-echo", e.name+" "+e.version)
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	e.mux.ServeHTTP(w, r)
}

// asked is a query parameter, else the header "x-" + name.
func asked(r *http.Request, name string) string {
	if v := r.URL.Query().Get(name); v != "" {
		return v
	}
	return r.Header.Get("x-" + name)
}

// parameter parses the value of a parameter, which is from least to most. An empty value is absent.
func parameter[T cmp.Ordered](name, value string, absent, least, most T, parse func(string) (T, error),
	want string) (T, error) {
	if value == "" {
		return absent, nil
	}
	v, err := parse(value)
	if err != nil || v < least || v > most {
		return v, fmt.Errorf("%s=%q: want %s", name, value, want)
	}
	return v, nil
}

func parseFloat(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

func badRequest(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusBadRequest) }

func (e *echo) reply(w http.ResponseWriter, r *http.Request) {
	count := e.requests.Add(1)
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		badRequest(w, fmt.Errorf("read the body: %w", err))
		return
	}
	status, ok := e.trouble(w, r)
	if !ok {
		return
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	writeJSON(w, status, answer{
		Name: e.name, Version: e.version, Address: fmt.Sprint(local), Peer: r.RemoteAddr, Method: r.Method, Host: r.Host,
		Path: r.URL.Path, Query: r.URL.RawQuery, Proto: r.Proto, Headers: r.Header, Body: size, Request: count,
	})
}

// trouble waits and chooses the status as the request asks for; not ok when it has answered
// already.
func (e *echo) trouble(w http.ResponseWriter, r *http.Request) (status int, ok bool) {
	delay, err1 := parameter("delay", asked(r, "delay"), 0, 0, time.Hour, time.ParseDuration, "a duration such as 200ms")
	status, err2 := parameter("status", asked(r, "status"), http.StatusOK, 200, 599, strconv.Atoi,
		"a number from 200 to 599")
	share, err3 := parameter("fail", asked(r, "fail"), 0, 0, 1, parseFloat, "a share from 0 to 1")
	if err := errors.Join(err1, err2, err3); err != nil {
		badRequest(w, err)
		return 0, false
	}
	select {
	case <-r.Context().Done():
		return 0, false
	case <-time.After(delay):
	}
	if rand.Float64() < share {
		status = http.StatusServiceUnavailable
	}
	return status, true
}

// stream sends lines one at a time.
func (e *echo) stream(w http.ResponseWriter, r *http.Request) {
	e.requests.Add(1)
	q := r.URL.Query()
	chunks, err1 := parameter("chunks", q.Get("chunks"), 5, 0, 1_000_000, strconv.Atoi, "a number up to 1000000")
	every, err2 := parameter("every", q.Get("every"), 100*time.Millisecond, 0, time.Hour, time.ParseDuration,
		"a duration such as 100ms")
	if err := errors.Join(err1, err2); err != nil {
		badRequest(w, err)
		return
	}
	out := http.NewResponseController(w)
	for i := range chunks {
		if _, err := fmt.Fprintf(w, "%s %s %d\n", e.name, e.version, i+1); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(every):
		}
	}
}

// writeJSON answers with v. A client that has gone does not matter.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}
