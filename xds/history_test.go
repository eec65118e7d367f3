package xds

import (
	"strconv"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
)

func doubtful(name string) map[string]ads.Doubt {
	return map[string]ads.Doubt{"t": {Names: []string{name}}}
}

// Streams of one client may end in another order than they began: a dead one, noticed late, does
// not end the doubt that a newer one left.
func TestHistoryKeepsWhatNewerStreamsLeft(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]map[string]ads.Doubt{"nothing": nil,
		"another type": {"u": {Names: []string{"y"}}}} {
		h := newHistory()
		h.put("w", "p", doubtful("x"), time.Now())
		h.put("w", "p", late, time.Now())
		if got := h.take("w", "p"); got["t"].None() || len(got) != len(late)+1 {
			t.Errorf("%s left late: got %v, want the doubt about x too", name, got)
		}
		if got := h.take("w", "p"); got != nil {
			t.Errorf("taken twice: %v", got)
		}
	}
}

// A workload that invents clients has only its own latest ones remembered, and none for long.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h, begin := newHistory(), time.Now()
	h.put("good", "p", doubtful("x"), begin)
	for i := range 10 * maxHistory {
		h.put("bad", strconv.Itoa(i), doubtful("x"), begin.Add(time.Minute))
	}
	if n := len(h.past["bad"]); n != maxHistory {
		t.Errorf("%d clients of one workload are remembered, want %d", n, maxHistory)
	}
	if h.take("bad", "0") != nil || h.take("bad", strconv.Itoa(10*maxHistory-1)) == nil {
		t.Error("not the latest clients are remembered")
	}
	h.forget(begin.Add(historyTime))
	if h.take("good", "p") != nil {
		t.Errorf("a client is remembered for %v", historyTime)
	}
	if n := len(h.past["bad"]); n != maxHistory-1 {
		t.Errorf("%d newer clients are remembered, want %d", n, maxHistory-1)
	}
	h.forget(begin.Add(historyTime + time.Minute))
	if len(h.past) != 0 {
		t.Errorf("left are %v", h.past)
	}
}
