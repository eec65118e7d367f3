package policy

import (
	"context"
	"net"
	"net/http"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// judgeRequest lets requests through that have the header x-pass: yes, and fails for x-pass: fail.
func judgeRequest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-user", "judged")
	switch r.Header.Get("x-pass") {
	case "yes":
	case "fail":
		w.WriteHeader(http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// judge does the same by gRPC; of connections it lets those through that have a certificate.
type judge struct {
	authv3.UnimplementedAuthorizationServer
}

func (judge) Check(_ context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	a := r.GetAttributes()
	pass := a.GetRequest().GetHttp().GetHeaders()["x-pass"] == "yes"
	if a.GetRequest().GetHttp().GetMethod() == "" {
		pass = a.GetSource().GetPrincipal() != ""
	}
	if !pass {
		return &authv3.CheckResponse{Status: &status.Status{Code: int32(codes.PermissionDenied)}}, nil
	}
	return &authv3.CheckResponse{
		Status: &status.Status{Code: int32(codes.OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			Headers: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-user", Value: "judged"}}},
		}},
	}, nil
}

// grpcJudge runs a judge.
func grpcJudge(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	authv3.RegisterAuthorizationServer(s, judge{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}
