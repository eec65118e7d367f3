package ads_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/ads"
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
			ResourceNamesSubscribe: list}), false, ads.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		s := ads.NewSubscription(routes(), false, cache, "s-")
		if _, err := s.Receive(r, ads.Limits{}, time.Time{}); err != nil {
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
	for name, tc := range map[string]struct {
		m    *discoveryv3.DeltaDiscoveryRequest
		want string
	}{
		"no type":    {&discoveryv3.DeltaDiscoveryRequest{}, "no type_url"},
		"many names": {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResourceNamesSubscribe: []string{"a", "b", "c", "d"}}, "more than 3 resource names"},
		"long name":  {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResourceNamesSubscribe: []string{"123456789"}}, "has 9 bytes, at most 8"},
		"long claim": {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", InitialResourceVersions: map[string]string{"123456789": ""}}, "has 9 bytes, at most 8"},
		"locators":   {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResourceLocatorsSubscribe: []*discoveryv3.ResourceLocator{{Name: "a"}}}, "locators are not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ads.ReadRequest(encode(t, tc.m), false, ads.Limits{Names: 3, NameBytes: 8})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// The limits hold for the names of all requests together.
func TestSubscriptionLimits(t *testing.T) {
	t.Parallel()
	s, limits := ads.NewSubscription(routes(), false, ads.NewCache(), "s-"), ads.Limits{Bytes: 20}
	for i, name := range []string{"0123456789", "9876543210", "x"} {
		r, err := ads.ReadRequest(encode(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: routeType,
			ResourceNamesSubscribe: []string{name}}), false, limits)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Receive(r, limits, time.Time{})
		if i < 2 && err != nil || i == 2 && (err == nil ||
			!strings.Contains(err.Error(), "have 21 bytes, at most 20")) {
			t.Errorf("after name %d: %v", i+1, err)
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
		r, err := ads.ReadRequest(raw, true, ads.Limits{})
		if err == nil {
			_, err = s.Receive(r, ads.Limits{}, time.Time{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
