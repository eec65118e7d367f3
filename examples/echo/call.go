package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// maxTimes bounds how often one /call asks.
const maxTimes = 10_000

// tally is what many answers of a service add up to.
type tally struct {
	// Answers counts by version.
	Answers map[string]int `json:"answers"`
	// Failures counts by reason.
	Failures map[string]int `json:"failures,omitempty"`
}

// call asks another service, once or many times.
func (e *echo) call(w http.ResponseWriter, r *http.Request) {
	e.requests.Add(1)
	url := r.URL.Query().Get("url")
	if url == "" {
		badRequest(w, errors.New(`url="": want the URL to ask`))
		return
	}
	times, err := parameter("times", r.URL.Query().Get("times"), 0, 1, maxTimes, strconv.Atoi,
		fmt.Sprintf("a number from 1 to %d", maxTimes))
	if err != nil {
		badRequest(w, err)
		return
	}
	if times > 0 {
		writeJSON(w, http.StatusOK, e.callTimes(r, url, times))
		return
	}
	status, header, body, err := e.ask(r, url)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("content-type", header.Get("content-type"))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone does not matter
}

// callTimes asks one after the other until the client goes away.
func (e *echo) callTimes(r *http.Request, url string, times int) tally {
	t := tally{Answers: map[string]int{}, Failures: map[string]int{}}
	for range times {
		if r.Context().Err() != nil {
			break
		}
		status, _, body, err := e.ask(r, url)
		var a answer
		switch {
		case err != nil:
			t.Failures[err.Error()]++
		case status != http.StatusOK:
			t.Failures[fmt.Sprintf("status %d", status)]++
		case json.Unmarshal(body, &a) != nil:
			t.Failures["an answer that is not of echo"]++
		default:
			t.Answers[a.Version]++
		}
	}
	return t
}

// forwarded are the headers that are copied to a call: what a tracer needs, and what routes match
// in demonstrations.
func forwarded() []string {
	return []string{"x-request-id", "traceparent", "tracestate", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled",
		"x-user", "x-version", "cookie"}
}

func (e *echo) ask(r *http.Request, url string) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	for _, name := range forwarded() {
		if v := r.Header.Values(name); len(v) > 0 {
			req.Header[http.CanonicalHeaderKey(name)] = v
		}
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return 0, nil, nil, fmt.Errorf("read the answer of %s: %w", url, err)
	}
	return resp.StatusCode, resp.Header, body, nil
}
