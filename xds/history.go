package xds

import (
	"container/list"
	"sync"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// maxHistory is how many clients' doubts are remembered.
const maxHistory = 10_000

// history remembers, beyond the end of a stream, what its client's claims cannot be believed for: a
// response was on its way or had been rejected, and the client may have applied parts of it under their
// old version names.
type history struct {
	mu     sync.Mutex
	byID   map[string]*list.Element // guarded by mu; of *past
	oldest *list.List               // guarded by mu; front is the oldest
}

type past struct {
	id     string
	doubts map[string]ads.Doubt // by type
}

func newHistory() *history {
	return &history{byID: map[string]*list.Element{}, oldest: list.New()}
}

// put adds to the doubts about a client, forgetting the oldest client when there are too many. Streams of one
// client may end in another order than they began: what a newer one left stays.
func (h *history) put(id string, doubts map[string]ads.Doubt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(doubts) == 0 {
		return
	}
	if e := h.byID[id]; e != nil {
		all := h.oldest.Remove(e).(*past).doubts
		for typeURL, d := range doubts {
			all[typeURL] = all[typeURL].Or(d)
		}
		doubts = all
	}
	h.byID[id] = h.oldest.PushBack(&past{id, doubts})
	if h.oldest.Len() > maxHistory {
		p := h.oldest.Remove(h.oldest.Front()).(*past)
		delete(h.byID, p.id)
	}
}

// take returns the doubts about a client and forgets them.
func (h *history) take(id string) map[string]ads.Doubt {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[id]
	if e == nil {
		return nil
	}
	delete(h.byID, id)
	return h.oldest.Remove(e).(*past).doubts
}
