package ads

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// A long response consists of what its resources have encoded already: no client can have the server
// copy many of them. Each says what it was made of.
func TestLongResponsesAreShared(t *testing.T) {
	t.Parallel()
	var items []*resource.Resource
	for i := range 1000 {
		items = append(items, resource.New("t", fmt.Sprintf("%04d", i), nil,
			func() []byte { return []byte(strings.Repeat("x", 500)) }))
	}
	c, layer := NewCache(), resource.NewLayer(slices.Clone(items))
	known := map[*byte]bool{}
	var kept []*chunk
	for i := range len(items) / chunkSize {
		kept = append(kept, c.chunks.Get(chunkKey{layer, i}))
		known[unsafe.SliceData(kept[i].bytes)] = true
	}
	for _, r := range items {
		known[unsafe.SliceData(r.Entry())] = true
	}
	three := len(items[0].Entry()) * 3
	for name, tc := range map[string]struct {
		changed []*resource.Resource
		removed []string
		copied  int
	}{
		"many":              {items, nil, 0},
		"without the first": {items[1:], nil, 0},
		"with one removed":  {items, []string{"gone"}, 6},
		"one":               {items[:1], nil, 0},
		"one and removed":   {items[:1], []string{"gone"}, 6},
		"few":               {items[:3], nil, three},
		"few and removed":   {items[:3], []string{"gone"}, three + 6},
		"removed":           {nil, []string{"a", "b"}, 6},
		"none":              {nil, nil, 0},
	} {
		parts, _ := c.encode(layer, tc.changed, tc.removed)
		copied := 0
		for _, p := range parts {
			if !known[unsafe.SliceData(p)] {
				copied += len(p)
			}
		}
		if copied != tc.copied {
			t.Errorf("%s: %d bytes are copied, want %d", name, copied, tc.copied)
		}
		var got discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(bytes.Join(parts, nil), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Resources) != len(tc.changed) || !slices.Equal(got.RemovedResources, tc.removed) {
			t.Errorf("%s: it has %d resources and removes %q", name, len(got.Resources), got.RemovedResources)
		}
	}
	runtime.KeepAlive(kept)
}
