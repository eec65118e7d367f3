package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// doubtPause is how often it is looked whether a store is in doubt still.
const doubtPause = 2 * time.Second

// begunAnew doubts a store that was begun anew beside an authority that is older: what it lacks may be at work everywhere, as when
// its prefix is mistyped or its file was lost. An operator's first write to it is his word that it is the right one.
type begunAnew struct {
	lost    func() bool // by the ledger of workloads
	sources func() []feed.SourceStatus
	store   interface {
		Name() string
		History(ctx context.Context, q config.Query) (config.Past, error)
	}
}

// doubted says that what others are told may lack what the store had.
func (b *begunAnew) doubted() bool {
	if !b.lost() || !slices.ContainsFunc(b.sources(), func(s feed.SourceStatus) bool { return s.Name == b.store.Name() }) {
		return false
	}
	past, err := b.store.History(context.Background(), config.Query{Limit: 1, Bare: true})
	return err != nil || past.Latest == "0" // in doubt it is
}

// mind has readers not be answered while the store is in doubt; id may be nil: then nobody can tell.
func (in *informants) mind(id *identity, store meshStore, back *backend) {
	if in == nil || id == nil {
		return
	}
	b := &begunAnew{lost: id.ledger.BegunAnew, sources: back.sources, store: store}
	in.doubt = b.doubted
	back.more = append(back.more, func() []feed.Problem { return in.unanswered(store.Name()) })
}

// await has readers be answered once the store is in doubt no more.
func (in *informants) await(ctx context.Context) error {
	for !in.answers() {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(doubtPause):
			in.tell(false)
		}
	}
	return nil
}

// answers says that readers are answered.
func (in *informants) answers() bool {
	in.publishing.Lock()
	defer in.publishing.Unlock()
	return in.open
}

// unanswered tells that readers are not answered; store is the name of what is in doubt.
func (in *informants) unanswered(store string) []feed.Problem {
	in.publishing.Lock()
	defer in.publishing.Unlock()
	if in.open || in.told.Load() == nil {
		return nil
	}
	return []feed.Problem{{Severity: feed.Error, Source: store, Field: "mcp.readers", Text: fmt.Sprintf("who reads the configuration over MCP is not answered and goes on with what it has: %s was begun anew beside an authority that is older, and nothing was written to it yet. "+
		"Where that is a mistake (store.prefix, store.address, state), mend it and start ashored again; where all is lost, \"ashorectl apply\" what was in it: with the first object that is written readers are answered. Where nothing was ever in it, take it out of the setting sources", store)}}
}
