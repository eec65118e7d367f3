package ads_test

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// What a client has from an earlier stream, and what is gone since, is removed when removals need
// not wait any more: what uses it may not have been told yet.
func TestClaimedAndGoneWaits(t *testing.T) {
	t.Parallel()
	s, rd := ads.NewSubscription(clusters(), false, ads.NewCache(), "s-"), ads.NewReader(false, ads.Limits{})
	to := set(clusterType, "new=1")
	raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType,
		InitialResourceVersions: map[string]string{"old": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := rd.Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(r, to, ads.Limits{}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	waits := func(name string) bool { return name == "old" }
	first := s.Next(to, ads.Waits{Removal: waits}, time.Time{})
	if first == nil || first.Resources != 1 || first.Removed != 0 {
		t.Fatalf("first %+v, want the new one alone", first)
	}
	if got := s.Next(to, ads.Waits{Removal: waits}, time.Time{}); got != nil {
		t.Errorf("while it waits: %+v, want nothing", got)
	}
	if d := s.Doubt(); d.None() {
		t.Error("what is under way is not doubted")
	}
	last := s.Next(to, ads.Waits{}, time.Time{})
	if last == nil || last.Resources != 0 || last.Removed != 1 {
		t.Errorf("afterwards %+v, want one removal", last)
	}
}

// A name that the client asks for, and that it may have but does not say so, is answered at once:
// it may wait for that.
func TestDoubtedAndGoneIsAnswered(t *testing.T) {
	t.Parallel()
	s, rd := ads.NewSubscription(endpoints(), false, ads.NewCache(), "s-"), ads.NewReader(false, ads.Limits{})
	s.Distrust(ads.Doubt{Names: []string{"old"}})
	a := ads.Ask{TypeURL: endpointType, Subscribe: []string{"old"}}
	r, err := rd.Read(a.Encode())
	if err != nil {
		t.Fatal(err)
	}
	to := set(endpointType, "new=1")
	if _, err := s.Receive(r, to, ads.Limits{}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := s.Next(to, ads.Waits{Removal: func(string) bool { return true }}, time.Time{}); got == nil ||
		got.Resources != 1 {
		t.Errorf("got %+v, want an empty assignment", got)
	}
}
