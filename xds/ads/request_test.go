package ads_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// encode encodes a message that can be encoded.
func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// manyNames are as long, and as many, as those of a mesh's endpoints.
func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("outbound|8080||service-%d.namespace-%d.svc.cluster.local", i, i%10)
	}
	return names
}

// Subscriptions with equal names are one pointer, in any order and with repetitions.
func TestNamesShared(t *testing.T) {
	t.Parallel()
	cache := ads.NewCache()
	names := func(list ...string) *ads.Names {
		r, err := ads.ReadRequest(encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeType,
			ResourceNamesSubscribe: list}), false)
		if err != nil {
			t.Fatal(err)
		}
		s := ads.NewSubscription(routes(), false, cache, "s-")
		if _, err := s.Receive(r, time.Time{}); err != nil {
			t.Fatal(err)
		}
		return s.Names()
	}
	list := append(manyNames(400), fmt.Sprintf("long-%0300d", 1), fmt.Sprintf("very-long-%07000d", 1))
	a := names(list...)
	if want := slices.Sorted(slices.Values(list)); !slices.Equal(a.List(), want) {
		t.Fatalf("got %d names, want %d", len(a.List()), len(want))
	}
	turned := slices.Clone(list)
	slices.Reverse(turned)
	for _, same := range [][]string{turned, append(slices.Clone(list), list[0])} {
		if names(same...) != a {
			t.Error("equal names are two subscriptions")
		}
	}
	other := slices.Clone(list)
	other[7] = "O" + other[7][1:]
	for what, list := range map[string][]string{"fewer": list[1:], "other": other, "all": append(turned, "*")} {
		if names(list...) == a {
			t.Errorf("%s: different names are one subscription", what)
		}
	}
	if a.Has("w") || !a.Has(list[5]) || a.All() {
		t.Error("it has other names than it was made of")
	}
}

// Requests that are malformed or too large are answered with what is wrong.
func TestRequestErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 8<<10+1)
	for name, tc := range map[string]struct {
		m    *discoveryv3.DeltaDiscoveryRequest
		want string
	}{
		"no type":    {&discoveryv3.DeltaDiscoveryRequest{}, "no type_url"},
		"many names": {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResourceNamesSubscribe: make([]string, 200_001)}, "more than 200000 resource names"},
		"long name":  {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResourceNamesSubscribe: []string{long}}, "has 8193 bytes, at most 8192"},
		"long claim": {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", InitialResourceVersions: map[string]string{long: ""}}, "has 8193 bytes, at most 8192"},
		"locators":   {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResourceLocatorsSubscribe: []*discoveryv3.ResourceLocator{{Name: "a"}}}, "locators are not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ads.ReadRequest(encode(t, tc.m), false)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// The limit of names holds for all requests together.
func TestSubscriptionLimit(t *testing.T) {
	t.Parallel()
	s := ads.NewSubscription(routes(), false, ads.NewCache(), "s-")
	for i, first := range []int{0, 150_000} {
		names := make([]string, 150_000)
		for n := range names {
			names[n] = fmt.Sprint(first + n)
		}
		r, err := ads.ReadRequest(encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeType,
			ResourceNamesSubscribe: names}), false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Receive(r, time.Time{})
		if i == 0 && err != nil || i == 1 && (err == nil || !strings.Contains(err.Error(), "300000 resource names")) {
			t.Errorf("after request %d: %v", i+1, err)
		}
	}
}

// BenchmarkAcknowledge reads the acknowledgement of a client of state of the world, which repeats
// 2,400 names.
func BenchmarkAcknowledge(b *testing.B) {
	raw := encode(b, &discoveryv3.DiscoveryRequest{TypeUrl: endpointType, ResourceNames: manyNames(2400),
		ResponseNonce: "s-1"})
	s := ads.NewSubscription(endpoints(), true, ads.NewCache(), "s-")
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := ads.ReadRequest(raw, true)
		if err == nil {
			_, err = s.Receive(r, time.Time{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// A rejection has Envoy's text about the resource alone, and the patches that changed since the last
// accepted version first, also after a second rejection.
func TestRejectedPatches(t *testing.T) {
	t.Parallel()
	patch := func(name, stat string, created int64) *resource.Patch {
		o := &config.Object{Key: config.Key{Kind: config.EnvoyFilter, Name: name}, Created: time.Unix(created, 0)}
		return &resource.Patch{Object: o, Field: "spec", Spec: wrapperspb.String(stat)}
	}
	listener := func(name, text string, patches ...*resource.Patch) *resource.Resource {
		r := body(listenerType, name, text)
		r.Patches = patches
		return r
	}
	old, other := patch("old", "1", 2), patch("other", "1", 3)
	var s *ads.Subscription
	now := time.Unix(0, 0)
	receive := func(r *discoveryv3.DeltaDiscoveryRequest) {
		t.Helper()
		request, err := ads.ReadRequest(encode(t, r), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Receive(request, now); err != nil {
			t.Fatal(err)
		}
	}
	resources := func(text string, patches []*resource.Patch) resource.Set {
		return resource.Set{Shared: resource.NewLayer([]*resource.Resource{
			listener("a", text, patches...), listener("b", text)})}
	}
	connect := func(claims map[string]string) {
		s = ads.NewSubscription(listeners(), false, ads.NewCache(), "x-")
		s.To = resources("1", []*resource.Patch{other, old})
		receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: listenerType, InitialResourceVersions: claims})
	}
	connect(nil)
	for i, step := range []struct {
		text, message, want string
		patches             []*resource.Patch
	}{
		{"1", "", "", []*resource.Patch{other, old}},
		{"2", "Error adding/updating listener(s) a: no Lua\nb: no port\n", "a: no Lua [bad other old] 1",
			[]*resource.Patch{other, old, patch("bad", "1", 1)}},
		{"3", "Error adding/updating listener(s) b: no port\na: no Lua\n", "a: no Lua [bad old other] 2",
			[]*resource.Patch{other, patch("old", "2", 0), patch("bad", "2", 1)}},
	} {
		s.To = resources(step.text, step.patches)
		if r, _ := s.Next(now); r == nil {
			t.Fatal("no response")
		}
		ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: listenerType, ResponseNonce: "x-" + strconv.Itoa(i+1)}
		if step.message != "" {
			ack.ErrorDetail = rejection(step.message)
		}
		receive(ack)
		got := ""
		if all := s.Rejected(); len(all) > 0 {
			var names []string
			for _, p := range all[0].Patches {
				names = append(names, p.Object.Name)
			}
			got = fmt.Sprint(all[0].Message, " ", names, " ", all[0].Changed)
		}
		if got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
	// What a client has from an earlier stream counts as accepted.
	had := resources("1", nil)
	connect(map[string]string{"a": had.Get("a").Version(), "b": had.Get("b").Version()})
	if r, _ := s.Next(now); r != nil {
		t.Fatalf("a client that has everything gets %v", r)
	}
	s.To = resources("2", []*resource.Patch{other, old, patch("bad", "1", 1)})
	if r, _ := s.Next(now); r == nil {
		t.Fatal("no response")
	}
	receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: listenerType, ResponseNonce: "x-1", ErrorDetail: rejection("a: no Lua")})
	if got := s.Rejected()[0]; got.Patches[0].Object.Name != "bad" || got.Changed != 1 {
		t.Errorf("after a resumed stream: got %+v", got)
	}
}
