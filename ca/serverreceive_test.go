package ca

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	securityv1 "istio.io/api/security/v1alpha1"
)

// A request is not taken into memory before it is proven who it is from, however large it is.
func TestStrangersAreNotReceived(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.serve()
	_, _, err := l.ask(client{csr: []byte(strings.Repeat("x", 8<<20))}) // more than the lab's server receives
	if err := wantRefused(err, codes.Unauthenticated, publicNobody); err != nil {
		t.Error(err)
	}
	token := l.token("shop/web")
	_, _, err = l.ask(client{token: token, name: "a", csr: []byte(strings.Repeat("x", 1<<20))})
	if err := wantRefused(err, codes.InvalidArgument, "at most 65536 are allowed"); err != nil {
		t.Error(err)
	}
	if _, _, err := l.ask(client{token: token, name: "a"}); err != nil {
		t.Errorf("the token after that: %v", err)
	}
}

// silent opens a call with a token and sends nothing.
func (l *lab) silent(ctx context.Context) grpc.ClientStream {
	l.t.Helper()
	conn, err := grpc.NewClient(l.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}))) //nolint:gosec // the server is not what is tested
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { conn.Close() }) //nolint:errcheck // nothing more is sent
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+l.token("shop/web"))
	out, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true},
		securityv1.IstioCertificateService_CreateCertificate_FullMethodName)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// Callers that are authenticated and then send nothing keep nobody else out.
func TestSilentCallers(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.server.bodyTimeout = time.Hour
	l.serve()
	for range maxCalls - 1 {
		l.silent(t.Context())
	}
	l.join("shop/web", "a")
}

func TestSilentCallerIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.server.bodyTimeout = 100 * time.Millisecond
	l.serve()
	err := l.silent(t.Context()).RecvMsg(&securityv1.IstioCertificateResponse{})
	if err := wantRefused(err, codes.InvalidArgument, "did not come within"); err != nil {
		t.Error(err)
	}
}
