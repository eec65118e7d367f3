package ca

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
)

// DefaultMaxAccount is how many workloads of one service account may be told apart by their keys
// alone, unless something else is set: whoever has its token can make a new key at any time, and
// each is kept until its certificate is of no use.
const DefaultMaxAccount = 20_000

// accounts counts, for each service account, the workloads that it has. Safe for concurrent use.
type accounts struct {
	mu    sync.Mutex
	count map[string]int // guarded by mu: by what stands before accountSign in their names; nil: not counted yet
}

// accountSign stands in the name of a workload between a service account and what tells its
// machines apart. No workload that names itself has it.
const accountSign = "~"

// set replaces the counts by those of all workloads there are.
func (a *accounts) set(names []string) {
	count := map[string]int{}
	for _, n := range names {
		if account, _, ok := strings.Cut(n, accountSign); ok {
			count[account]++
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count = count
}

// add counts one more, and says whether that is within limit. known is false as long as nothing was
// counted.
func (a *accounts) add(account string, limit int) (ok, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == nil {
		return false, false
	}
	if a.count[account] >= limit {
		return false, true
	}
	a.count[account]++
	return true, true
}

// mayAdd says why a service account gets no further workload that its key alone tells from others.
// What has ended is forgotten by Sweep, and counts until then. Errors: *Refusal, or why it cannot
// be told now.
func (l *Ledger) mayAdd(ctx context.Context, account string) error {
	ok, known := l.accounts.add(account, l.maxAccount)
	if !known {
		records, err := l.records.List(ctx, workloadTable)
		if err != nil {
			return err
		}
		names := make([]string, len(records))
		for i, r := range records {
			names[i] = r.Name
		}
		l.accounts.set(names)
		ok, _ = l.accounts.add(account, l.maxAccount)
	}
	if ok {
		return nil
	}
	return &Refusal{Code: codes.ResourceExhausted,
		Public: "too many workloads of this service account hold certificates", Reason: "account full", Final: true,
		Err: fmt.Errorf("service account %s has %d workloads, and asks for one more", account, l.maxAccount)}
}
