package main

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/admin"
)

// A machine that joins under the name of another one replaces it, and the other one receives who did.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t)
	s.start(t)
	client, ctx := admin.NewClient(s.socket), t.Context()
	first, _ := s.joined(t)
	receive := first.stream(t, webNode)
	if err := receive(); err != nil {
		t.Fatal(err)
	}
	made, err := admin.Send(ctx, client, admin.CallCreateToken, admin.TokenRequest{Group: "shop/web"})
	if err != nil {
		t.Fatal(err)
	}
	second := s.newMember(t, made)
	if err := second.ask(t, made.Token, "web-1"); err != nil {
		t.Fatalf("join under the name of another machine: %v", err)
	}
	for err = nil; err == nil; { // what was sent before the cut
		err = receive()
	}
	const words = "another machine joined under the name shop/web-1"
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), words) {
		t.Errorf("the stream of who was replaced ended with %v", err)
	}
	if err := first.ask(t, "", ""); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), words) {
		t.Errorf("renewal of who was replaced: %v", err)
	}
}
