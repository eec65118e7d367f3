package ads

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// A long response consists of what resources and chunks of the layer have encoded already: it says
// the same as if it were copied, and neither one name more nor one less has the server make a copy
// for a client.
func TestLongResponsesAreShared(t *testing.T) {
	t.Parallel()
	var items []*resource.Resource
	for i := range 1000 {
		items = append(items, resource.New("t", fmt.Sprintf("%04d", i), nil,
			func() []byte { return []byte(strings.Repeat("x", 500)) }))
	}
	layer, c := resource.NewLayer(items), NewCache()
	whole := c.encode(layer, items, nil, false)
	copied := func(e encoding) int {
		known := map[*byte]bool{}
		for _, r := range items {
			known[unsafe.SliceData(entry(r, false))] = true
		}
		for _, p := range whole.parts {
			known[unsafe.SliceData(p)] = true
		}
		n := 0
		for _, p := range e.parts {
			if !known[unsafe.SliceData(p)] {
				n += len(p)
			}
		}
		return n
	}
	if n := len(whole.parts); n > 1000/chunkSize+chunkSize {
		t.Errorf("the whole layer has %d parts", n)
	}
	for name, tc := range map[string]struct {
		changed []*resource.Resource
		removed []string
		copied  int
	}{
		"the same":         {items, nil, 0},
		"without one":      {slices.Delete(slices.Clone(items), 70, 71), nil, 0},
		"the second half":  {items[500:], nil, 0},
		"each second":      {slices.DeleteFunc(slices.Clone(items), func(r *resource.Resource) bool { return r.Name[3]%2 == 0 }), nil, 0},
		"with one removed": {items, []string{"gone"}, 6},
		"one":              {items[:1], nil, 0},
		"few":              {items[:3], nil, sizeOf(items[:3], nil, false)},
		"none":             {nil, nil, 0},
	} {
		e := c.encode(layer, tc.changed, tc.removed, false)
		if want := join(tc.changed, tc.removed, false, 0); !bytes.Equal(slices.Concat(e.parts...), want) {
			t.Errorf("%s: it says something else than %d bytes in one piece", name, len(want))
		}
		if n := copied(e); n != tc.copied {
			t.Errorf("%s: %d bytes are copied, want %d", name, n, tc.copied)
		}
	}
}
