package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/connlimit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// selfSigned is a certificate of an identity.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A connection that is one too many is closed; open ones are served.
func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := connlimit.New(inner, maxUnauthenticated, maxFromSource)
	serving := selfSigned(t)
	workload, other := selfSigned(t), selfSigned(t)
	verify := func(chain []*x509.Certificate, _ time.Time) (spiffe.ID, error) {
		id := spiffe.ID{TrustDomain: "mesh.example", Namespace: "shop", ServiceAccount: "web"}
		if bytes.Equal(chain[0].Raw, other.Certificate[0]) {
			id.ServiceAccount = "api"
		}
		return id, nil
	}
	creds := newLimitedTLS(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{serving},
		ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}), 1, verify, prometheus.NewRegistry(),
		testlog.New(t))
	srv := grpc.NewServer(grpc.Creds(creds))
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
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the second connection of a workload: %v", err)
	}
	for name, c := range map[string]healthv1.HealthClient{"first": first, "another workload": third} {
		if _, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
