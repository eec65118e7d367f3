package ca

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1alpha1"
)

// What was issued and refused can be counted, by how and why.
func TestServerMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	l := newLab(t, func(c *ServerConfig) { c.Registerer = r })
	l.serve()
	cert := l.join("shop/web", "a")
	for _, c := range []client{{cert: cert, lives: time.Second}, {}} {
		if _, _, err := l.ask(c); err == nil {
			t.Error("a bad call gets a certificate")
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += fmt.Sprintf("{%s}", label.GetValue())
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"citadel_server_csr_count": 2, "citadel_server_success_cert_issuance_count": 1, "citadel_server_authentication_failure_count": 1,
		"ashore_ca_issued_total{token}": 1, "ashore_ca_refused_total{bad request}": 1, "ashore_ca_refused_total{no proof}": 1,
		"ashore_ca_seconds": 3, "ashore_ca_in_flight": 0,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := NewServer(ServerConfig{Registerer: r}); err == nil {
		t.Error("metrics are registered twice")
	}
}

// A server's interceptors see the calls of proven callers, and can end them.
func TestInterceptors(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	wire, err := proto.Marshal(l.request(client{key: testKey(t, ECDSAP256)}))
	if err != nil {
		t.Fatal(err)
	}
	cert := l.enroll("a")
	for name, tc := range map[string]struct {
		intercept grpc.UnaryServerInterceptor
		code      codes.Code
	}{
		"passes on": {func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if _, ok := r.(*securityv1.IstioCertificateRequest); !ok || info.FullMethod != "/istio.v1.auth.IstioCertificateService/CreateCertificate" {
				t.Errorf("it sees %T of %s", r, info.FullMethod)
			}
			return next(ctx, r)
		}, codes.OK},
		"ends": {func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return nil, errors.New("no")
		}, codes.Unknown},
		"replaces": {func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return next(ctx, "x")
		}, codes.Internal},
	} {
		var asked atomic.Bool
		_, err := l.server.createCertificate(nil, from(t, cert), decoder(wire, &asked), tc.intercept)
		if err := wantRefused(err, tc.code, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(l.server.turns.work); n != 0 {
		t.Errorf("%d calls never ended", n)
	}
}
