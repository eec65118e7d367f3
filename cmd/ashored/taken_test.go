package main

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// clonedNode is webNode at another address.
const clonedNode = "sidecar~10.0.0.10~web-1.shop~shop.svc.cluster.local"

// A machine that joins under the name of another one replaces it, and the other one receives who did.
// Two machines with one identity are warned of.
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
	if err := first.stream(t, clonedNode)(); err != nil {
		t.Fatal(err)
	}
	list, err := admin.Send(ctx, client, admin.CallWorkloads, admin.None{})
	if err != nil || len(list.Workloads) != 1 || !strings.Contains(list.Workloads[0].Warning,
		"10.0.0.9~web-1.shop~shop.svc.cluster.local and sidecar~10.0.0.10") &&
		!strings.Contains(list.Workloads[0].Warning,
			"10.0.0.10~web-1.shop~shop.svc.cluster.local and sidecar~10.0.0.9") {
		t.Errorf("two machines with one identity: %+v, %v", list, err)
	}
	warned := func() bool {
		problems, err := admin.Send(ctx, client, admin.CallProblems, admin.None{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(problems, func(p feed.Problem) bool { return p.Object == "shop/web-1" })
	}
	s.until(t, "a problem of two machines with one identity", warned)

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
	s.until(t, "their streams end", func() bool {
		list, err := admin.Send(ctx, client, admin.CallWorkloads, admin.None{})
		return err == nil && list.Workloads[0].Warning == ""
	})
	s.until(t, "the problem ends", func() bool { return !warned() })
	if err := first.ask(t, "", ""); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), words) {
		t.Errorf("renewal of who was replaced: %v", err)
	}
}
