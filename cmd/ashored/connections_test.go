package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A connection whose client does not authenticate is closed, and counts until then.
func TestUnauthenticatedConnections(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	web, made := s.joined(t)
	if err := web.stream(t, webNode)(); err != nil {
		t.Fatal(err)
	}
	unauthenticated := func(n int) func() bool {
		return func() bool {
			return strings.Contains(s.metricsText(t), fmt.Sprintf("ashore_unauthenticated_connections %d\n", n))
		}
	}
	s.until(t, "a workload's connection does not count", unauthenticated(0))
	stranger := s.newMember(t, made)
	if err := stranger.stream(t, webNode)(); status.Code(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	s.until(t, "one without a certificate counts", unauthenticated(1))
}

// One workload has 16 connections. More are closed and counted.
func TestConnectionLimitServed(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	web, _ := s.joined(t)
	node := func(n int) string { return fmt.Sprintf("sidecar~10.0.0.9~web-%d.shop~shop.svc.cluster.local", n) }
	const most = 16
	for n := range most {
		if err := web.stream(t, node(n))(); err != nil {
			t.Fatalf("connection %d: %v", n+1, err)
		}
	}
	if err := web.ask(t, "", ""); status.Code(err) != codes.Unavailable {
		t.Errorf("a call for a certificate: %v", err)
	}
	if text := s.metricsText(t); !strings.Contains(text, `ashore_connections_refused_total{reason="connections"} `) ||
		strings.Contains(text, `ashore_connections_refused_total{reason="connections"} 0`) {
		t.Error("no metric tells of the refusal")
	}
}

// metricsText returns the metrics of the running program.
func (s *site) metricsText(t *testing.T) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + s.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}
