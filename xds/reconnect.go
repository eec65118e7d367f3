package xds

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
)

const (
	// reconnectTime is how long a client that is gone is remembered. Clients reconnect within
	// seconds. After that, all claims of the client are accepted.
	reconnectTime = 5 * time.Minute
	// maxReconnects is how many clients are remembered for one workload, and maxAnonymous for all
	// clients without an identity together.
	maxReconnects, maxAnonymous = 16, 10_000
)

// unsettled is what a client's stream left, by type.
type unsettled map[string]ads.Unsettled

// reconnects remembers what streams left that have ended. Safe for concurrent use.
type reconnects struct {
	mu sync.Mutex
	// guarded by mu: by QuotaKey, which is empty for clients without an identity; oldest first
	gone map[string][]goneClient
}

type goneClient struct {
	client string
	at     time.Time
	left   unsettled
}

// put remembers what a stream of a client of a workload left. It forgets the workload's oldest client when
// there are too many.
func (x *reconnects) put(workload, client string, left unsettled, now time.Time) {
	if len(left) == 0 {
		return
	}
	if before := x.take(workload, client); before != nil { // of a stream that ended earlier
		maps.Copy(before, left)
		left = before
	}
	most := maxReconnects
	if workload == "" {
		most = maxAnonymous
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone == nil {
		x.gone = map[string][]goneClient{}
	}
	all := x.gone[workload]
	if len(all) >= most {
		all = all[1:]
	}
	x.gone[workload] = append(all, goneClient{client, now, left})
}

// take returns what the streams of a client of a workload left, and forgets it.
func (x *reconnects) take(workload, client string) (left unsettled) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(workload, func(g goneClient) bool {
		if g.client != client {
			return false
		}
		left = g.left
		return true
	})
	return left
}

// expire forgets what is too old.
func (x *reconnects) expire(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for workload := range x.gone {
		x.drop(workload, func(g goneClient) bool { return now.Sub(g.at) >= reconnectTime })
	}
}

// drop forgets clients of a workload. Called with mu held.
func (x *reconnects) drop(workload string, which func(goneClient) bool) {
	kept := slices.DeleteFunc(x.gone[workload], which)
	if len(kept) == 0 {
		delete(x.gone, workload)
		return
	}
	x.gone[workload] = kept
}
