package xds

import (
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
)

const (
	// maxHistory is how many clients' doubts are remembered for one workload, and for all clients
	// that have proven nothing together anonymousHistory.
	maxHistory, anonymousHistory = 16, 10_000
	// historyTime is how long they are: a client that reconnects does so within seconds. After
	// that, the server accepts a client's claim about resources that it rejected or never
	// acknowledged.
	historyTime = 5 * time.Minute
)

// history remembers for a while, beyond the end of a stream, what its client's claims cannot be
// believed for: a response was on its way or had been rejected, and the client may have applied
// parts of it under their old version names.
type history struct {
	mu sync.Mutex
	// guarded by mu: by QuotaKey, which is empty for clients that have proven nothing; oldest first
	past map[string][]past
}

type past struct {
	client string
	at     time.Time
	doubts map[string]ads.Doubt // by type
}

func newHistory() *history { return &history{past: map[string][]past{}} }

// put adds to the doubts about a client of a workload, forgetting the workload's oldest client when
// there are too many. Streams of one client may end in another order than they began: what a newer
// one left stays.
func (h *history) put(workload, client string, doubts map[string]ads.Doubt, now time.Time) {
	if len(doubts) == 0 {
		return
	}
	if before := h.take(workload, client); before != nil {
		for typeURL, d := range doubts {
			before[typeURL] = before[typeURL].Or(d)
		}
		doubts = before
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	most := maxHistory
	if workload == "" {
		most = anonymousHistory
	}
	all := h.past[workload]
	if len(all) >= most {
		all = all[1:]
	}
	h.past[workload] = append(all, past{client, now, doubts})
}

// take returns the doubts about a client of a workload and forgets them.
func (h *history) take(workload, client string) map[string]ads.Doubt {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.past[workload]
	i := slices.IndexFunc(all, func(p past) bool { return p.client == client })
	if i < 0 {
		return nil
	}
	doubts := all[i].doubts
	h.keep(workload, slices.Delete(all, i, i+1))
	return doubts
}

// forget drops what is too old.
func (h *history) forget(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for workload, all := range h.past {
		h.keep(workload, slices.DeleteFunc(all, func(p past) bool { return now.Sub(p.at) >= historyTime }))
	}
}

// keep replaces what is remembered for a workload. Called with mu held.
func (h *history) keep(workload string, all []past) {
	if len(all) == 0 {
		delete(h.past, workload)
		return
	}
	h.past[workload] = all
}
