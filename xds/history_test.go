package xds

import (
	"testing"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// Streams of one client may end in another order than they began: a dead one, noticed late, does not end the doubt
// that a newer one left.
func TestHistoryKeepsWhatNewerStreamsLeft(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]map[string]ads.Doubt{"nothing": nil, "another type": {"u": {Names: []string{"y"}}}} {
		h := newHistory()
		h.put("p", map[string]ads.Doubt{"t": {Names: []string{"x"}}})
		h.put("p", late)
		if got := h.take("p"); got["t"].None() || len(got) != len(late)+1 {
			t.Errorf("%s left late: got %v, want the doubt about x too", name, got)
		}
		if got := h.take("p"); got != nil {
			t.Errorf("taken twice: %v", got)
		}
	}
}
