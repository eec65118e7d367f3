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
	// seconds. After that, the claims of a client are accepted also for what it rejected.
	reconnectTime = 5 * time.Minute
	// maxReconnects is how many clients are remembered for one workload, and maxAnonymous for all
	// clients without an identity together.
	maxReconnects, maxAnonymous = 16, 10_000
	// maxRejected is how many resources are remembered for a client and type, and
	// maxRejectedMessage how much of each message.
	maxRejected, maxRejectedMessage = 64, 512
)

// rejections are what a client rejected, by type.
type rejections map[string][]ads.Rejected

// reconnects remembers what clients rejected whose streams have ended. Safe for concurrent use.
type reconnects struct {
	mu sync.Mutex
	// guarded by mu: by QuotaKey, which is empty for clients without an identity; oldest first
	gone map[string][]goneClient
}

type goneClient struct {
	client   string
	at       time.Time
	rejected rejections
}

// put remembers what a client of a workload rejected. It forgets the workload's oldest client when
// there are too many.
func (x *reconnects) put(workload, client string, rejected rejections, now time.Time) {
	if len(rejected) == 0 {
		return
	}
	if before := x.take(workload, client); before != nil { // of a stream that ended earlier
		maps.Copy(before, rejected)
		rejected = before
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
	x.gone[workload] = append(all, goneClient{client, now, rejected})
}

// take returns what a client of a workload rejected, and forgets it.
func (x *reconnects) take(workload, client string) (rejected rejections) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(workload, func(g goneClient) bool {
		if g.client != client {
			return false
		}
		rejected = g.rejected
		return true
	})
	return rejected
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
	left := slices.DeleteFunc(x.gone[workload], which)
	if len(left) == 0 {
		delete(x.gone, workload)
		return
	}
	x.gone[workload] = left
}
