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

// A long response consists of what its resources have encoded already: it says the same as if it
// were copied, and no client can have the server copy many of them.
func TestLongResponsesAreShared(t *testing.T) {
	t.Parallel()
	var items []*resource.Resource
	for i := range 1000 {
		items = append(items, resource.New("t", fmt.Sprintf("%04d", i), nil,
			func() []byte { return []byte(strings.Repeat("x", 500)) }))
	}
	known := map[*byte]bool{}
	for _, r := range items {
		known[unsafe.SliceData(entry(r, false))] = true
	}
	for name, tc := range map[string]struct {
		changed []*resource.Resource
		removed []string
		copied  int
	}{
		"many":             {items, nil, 0},
		"with one removed": {items, []string{"gone"}, 6},
		"one":              {items[:1], nil, 0},
		"few":              {items[:3], nil, sizeOf(items[:3], nil, false)},
		"none":             {nil, nil, 0},
	} {
		parts := encode(tc.changed, tc.removed, false)
		if want := join(tc.changed, tc.removed, false, 0); !bytes.Equal(slices.Concat(parts...), want) {
			t.Errorf("%s: it says something else than %d bytes in one piece", name, len(want))
		}
		copied := 0
		for _, p := range parts {
			if !known[unsafe.SliceData(p)] {
				copied += len(p)
			}
		}
		if copied != tc.copied {
			t.Errorf("%s: %d bytes are copied, want %d", name, copied, tc.copied)
		}
	}
}
