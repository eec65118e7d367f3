package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// share is how many requests each version of the backend answered. The frontend returns it.
type share struct {
	Answers  map[string]int `json:"answers"`
	Failures map[string]int `json:"failures"`
}

// failed is how many requests failed.
func (s share) failed() int { return sum(s.Failures) }

// total is how many requests were made.
func (s share) total() int { return s.failed() + sum(s.Answers) }

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (s share) String() string {
	text := fmt.Sprintf("%d requests: v1 answered %d, v2 answered %d, %d failed", s.total(), s.Answers["v1"],
		s.Answers["v2"], s.failed())
	if len(s.Failures) > 0 {
		text += fmt.Sprintf(" %v", s.Failures)
	}
	return text
}

// askURL makes the frontend call the backend once, and answer with what the backend was sent.
func (m *mesh) askURL() string {
	return fmt.Sprintf("http://%s/call?url=http://backend.internal:8000/", m.at(workloads()[0], portIngress))
}

// callURL makes the frontend call the backend, through both Envoys, so many times.
func (m *mesh) callURL(times int) string {
	return fmt.Sprintf("http://%s/call?times=%d&url=http://backend.internal:8000/", m.at(workloads()[0], portIngress),
		times)
}

// measure makes requests and returns who answered them.
func (m *mesh) measure(ctx context.Context, times int) (share, error) {
	var s share
	body, err := m.get(ctx, m.callURL(times))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		return s, fmt.Errorf("the frontend's answer %q: %w", body, err)
	}
	return s, nil
}
