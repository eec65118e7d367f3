package ads_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// manyNames are as long, and as many, as those of a mesh's endpoints.
func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("outbound|8080||service-%d.namespace-%d.svc.cluster.local", i, i%10)
	}
	return names
}

// What a client says is the same however often its reader saw the names, in whatever order and
// company they come.
func TestReaderRecognisesNames(t *testing.T) {
	t.Parallel()
	names := manyNames(400)
	names = append(names, fmt.Sprintf("long-%0300d", 1), fmt.Sprintf("very-long-%07000d", 1))
	turned := slices.Clone(names)
	slices.Reverse(turned)
	other := slices.Clone(names)
	other[7] = "O" + other[7][1:]
	lists := map[string][]string{"all": names, "turned": turned, "fewer": names[:300], "of one length": other}
	cache, rd := ads.NewCache(), ads.NewReader(true, ads.Limits{})
	for round := range 3 {
		for what, list := range lists {
			sub := ads.NewSubscription(endpoints(), true, cache, "s-")
			raw, err := proto.Marshal(&discoveryv3.DiscoveryRequest{TypeUrl: sub.Kind().TypeURL, ResourceNames: list})
			if err != nil {
				t.Fatal(err)
			}
			r, err := rd.Read(raw)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := sub.Receive(r, resource.Set{}, ads.Limits{}, time.Time{}); err != nil {
				t.Fatal(err)
			}
			sorted := slices.Sorted(slices.Values(list))
			if got := sub.Names().List(); !slices.Equal(got, sorted) {
				t.Fatalf("round %d: %s: %d names, want %d", round, what, len(got), len(sorted))
			}
		}
	}
}

// A bad name among many is refused each time.
func TestReaderRefusesAgain(t *testing.T) {
	t.Parallel()
	rd := ads.NewReader(false, ads.Limits{NameBytes: 200})
	raw, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: endpointType,
		ResourceNamesSubscribe: append(manyNames(100), fmt.Sprintf("%0201d", 1))})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := rd.Read(raw); err == nil {
			t.Fatal("a name of 201 bytes was taken")
		}
	}
}

// BenchmarkReadAgain reads the acknowledgement of a client of state of the world, which repeats
// 2,400 names.
func BenchmarkReadAgain(b *testing.B) {
	raw, err := proto.Marshal(&discoveryv3.DiscoveryRequest{TypeUrl: endpointType, ResourceNames: manyNames(2400),
		ResponseNonce: "s-1"})
	if err != nil {
		b.Fatal(err)
	}
	rd := ads.NewReader(true, ads.Limits{})
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rd.Read(raw); err != nil {
			b.Fatal(err)
		}
	}
}
