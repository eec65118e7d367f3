package xds

import (
	"strconv"
	"testing"
	"time"
)

func rejecting(typeURL, name string) rejections { return rejections{typeURL: {{Name: name}}} }

// Streams of one client may end in another order than they began: a dead one, noticed late, does
// not replace what a newer one left.
func TestReconnectsOfSeveralStreams(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]rejections{"nothing": nil, "another type": rejecting("u", "y")} {
		h := &reconnects{}
		h.put("w", "p", rejecting("t", "x"), time.Now())
		h.put("w", "p", late, time.Now())
		if got := h.take("w", "p"); len(got["t"]) != 1 || len(got) != len(late)+1 {
			t.Errorf("%s left late: got %v, want x too", name, got)
		}
		if got := h.take("w", "p"); got != nil {
			t.Errorf("taken twice: %v", got)
		}
	}
}

// A workload that invents clients has only its own latest ones remembered, and none for long.
func TestReconnectsAreBounded(t *testing.T) {
	t.Parallel()
	h, begin := &reconnects{}, time.Now()
	h.put("good", "p", rejecting("t", "x"), begin)
	for i := range 10 * maxReconnects {
		h.put("bad", strconv.Itoa(i), rejecting("t", "x"), begin.Add(time.Minute))
	}
	if n := len(h.gone["bad"]); n != maxReconnects {
		t.Errorf("%d clients of one workload are remembered, want %d", n, maxReconnects)
	}
	if h.take("bad", "0") != nil || h.take("bad", strconv.Itoa(10*maxReconnects-1)) == nil {
		t.Error("not the latest clients are remembered")
	}
	h.expire(begin.Add(reconnectTime))
	if h.take("good", "p") != nil {
		t.Errorf("a client is remembered for %v", reconnectTime)
	}
	if n := len(h.gone["bad"]); n != maxReconnects-1 {
		t.Errorf("%d newer clients are remembered, want %d", n, maxReconnects-1)
	}
	h.expire(begin.Add(reconnectTime + time.Minute))
	if len(h.gone) != 0 {
		t.Errorf("left are %v", h.gone)
	}
}
