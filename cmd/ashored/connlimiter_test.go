package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/xds"
)

// One workload has so many connections, whatever its keys and addresses; whoever closes one makes room.
func TestConnectionsOfOneWorkload(t *testing.T) {
	t.Parallel()
	l, connect := newTestLobby(t) // two of a workload
	id := spiffe.ID{TrustDomain: "mesh.example", Namespace: "shop", ServiceAccount: "web"}
	come := func(workload, from string) (net.Conn, error) {
		_, in := connect(from)
		v := in.(*visitor)
		_, err := v.admit(client{id, xds.QuotaKey(id, workload, v.from), v.from})
		return in, err
	}
	welcome := func(workload, from string) net.Conn {
		t.Helper()
		in, err := come(workload, from)
		if err != nil {
			t.Errorf("workload %q from %s: %v", workload, from, err)
		}
		return in
	}
	refused := func(workload, from string) {
		t.Helper()
		if _, err := come(workload, from); err == nil || !strings.Contains(err.Error(), "this workload has 2 connections, no more are served (setting xds.workloadConnections") {
			t.Errorf("workload %q from %s: %v", workload, from, err)
		}
	}
	first := welcome("shop/web-1", "127.0.0.8")
	welcome("shop/web-1", "127.0.0.9")
	refused("shop/web-1", "127.0.0.10")
	welcome("shop/web-2", "127.0.0.8")
	welcome("", "127.0.0.8") // without a name all of an identity at an address are one
	welcome("", "127.0.0.8")
	refused("", "127.0.0.8")
	welcome("", "127.0.0.9")
	for range 2 {
		if err := first.Close(); err != nil && !errors.Is(err, net.ErrClosed) { // twice is once
			t.Fatal(err)
		}
	}
	welcome("shop/web-1", "127.0.0.10")
	refused("shop/web-1", "127.0.0.10")
	r := prometheus.NewRegistry()
	if err := r.Register(l.limits.refused); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d metrics, error %v", len(families), err)
	}
	for _, m := range families[0].GetMetric() {
		if reason := m.GetLabel()[0].GetValue(); m.GetCounter().GetValue() != map[string]float64{tooManyConnections: 3}[reason] {
			t.Errorf("of %q the metric counts %v", reason, m.GetCounter().GetValue())
		}
	}
}

// What ends while it is greeted is not counted for ever, and nothing is left of who has gone.
func TestConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	l, connect := newTestLobby(t)
	_, in := connect("127.0.0.8")
	_, gone := connect("127.0.0.8")
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for _, v := range []*visitor{in.(*visitor), gone.(*visitor)} {
		if _, err := v.admit(client{key: "web"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.limits.workloads["web"].count; n != 1 {
		t.Errorf("%d connections are counted, want 1", n)
	}
	if err := in.Close(); err != nil || len(l.limits.workloads) != 0 {
		t.Errorf("closing: %v; left are %v, want none", err, l.limits.workloads)
	}
}

// What the settings say holds where ashored serves.
func TestConnectionLimitServed(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	web, _ := s.joined(t)
	node := func(n int) string { return fmt.Sprintf("sidecar~10.0.0.9~web-%d.shop~shop.svc.cluster.local", n) }
	most := defaults().XDS.WorkloadConnections
	for n := range most {
		if err := web.stream(t, node(n))(); err != nil {
			t.Fatalf("connection %d: %v", n+1, err)
		}
	}
	if err := web.stream(t, node(most))(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "xds.workloadConnections") {
		t.Errorf("one more: %v", err)
	}
	if err := web.ask(t, "", ""); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "xds.workloadConnections") {
		t.Errorf("a call for a certificate: %v", err)
	}
	if !strings.Contains(s.metricsText(t), `ashore_connections_refused_total{reason="connections"} 2`) {
		t.Error("no metric tells of the refusal")
	}
}

// selfSigned is a certificate of an identity.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A connection that is one too many is told so, in words, and then closed; those that are there are served on.
func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	book, err := newConnLimiter(1, r, testlog.New(t))
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLobby(inner, book, r)
	if err != nil {
		t.Fatal(err)
	}
	serving := selfSigned(t)
	workload, other := selfSigned(t), selfSigned(t)
	proves := func(chain []*x509.Certificate, _ time.Time) (spiffe.ID, error) {
		id := spiffe.ID{TrustDomain: "mesh.example", Namespace: "shop", ServiceAccount: "web"}
		if bytes.Equal(chain[0].Raw, other.Certificate[0]) {
			id.ServiceAccount = "api"
		}
		return id, nil
	}
	creds := limitedTLS{credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{serving}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}), proves}
	srv := grpc.NewServer(append(refusals(), grpc.Creds(creds))...)
	healthv1.RegisterHealthServer(srv, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	dial := func(cert tls.Certificate) healthv1.HealthClient {
		conn, err := grpc.NewClient(inner.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true}))) //nolint:gosec // whom it trusts is not what is tested
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return healthv1.NewHealthClient(conn)
	}
	first, second, third := dial(workload), dial(workload), dial(other)
	if _, err := first.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = second.Check(t.Context(), &healthv1.HealthCheckRequest{})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "this workload has 1 connections") {
		t.Errorf("the second connection of a workload: %v", err)
	}
	watch, err := second.Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream of the second connection: %v", err)
	}
	for name, c := range map[string]healthv1.HealthClient{"first": first, "another workload": third} {
		if _, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
