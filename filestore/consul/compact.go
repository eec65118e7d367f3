package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/task"
)

const (
	// compactBytes is the least size of entries after which a snapshot is written. They must also
	// have twice the size of the last snapshot.
	compactBytes = 4 << 20
	// keepEntries is how many entries before a snapshot stay, for replicas that are about to read
	// them.
	keepEntries = 10
	// compactPause is the time from a failure to the next try.
	compactPause = 10 * time.Second
)

// checkLength has a snapshot written if the log is long.
func (l *replicatedLog) checkLength(s *state) {
	limit := compactBytes
	if s.Snapshot != nil {
		limit = max(limit, 2*s.Snapshot.Parts*partSize)
	}
	if s.Revision-s.snapshotRevision() < l.cfg.CompactEntries && s.Bytes < limit {
		return
	}
	task.Poke(l.long)
}

// compact writes snapshots of a log that is long, until ctx ends.
func (l *replicatedLog) compact(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.long:
		}
		if err := l.snapshot(ctx); err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("no snapshot of the store was written to Consul; it is tried again", "log", l.name,
				"error", err)
			task.Sleep(ctx, compactPause)
		}
	}
}

// snapshot writes a snapshot of the state, and deletes the entries before it.
func (l *replicatedLog) snapshot(ctx context.Context) error {
	s := l.state.Load()
	ref := &snapshotRef{Revision: s.Revision, ID: s.ID}
	var body []byte
	var err error
	if ref.content, body, err = encodeItems(s.items()); err != nil {
		return err
	}
	if err := l.putBlob(ctx, &ref.content, blobName("snapshot", s.Revision, newID()), body); err != nil {
		return err
	}
	for {
		base := l.state.Load()
		if base.generation != s.generation || base.snapshotRevision() >= s.Revision {
			return nil // another replica did it, or Consul was restored
		}
		next := *base
		next.Snapshot, next.Bytes = ref, 0
		head, err := l.setHead(next.head, base.index)
		if err != nil {
			return err
		}
		next.index, _, err = l.client.transaction(ctx, api.TxnOps{head})
		if err == nil {
			l.swap(base, &next)
			return l.sweep(ctx, ref)
		}
		if !errors.Is(err, errConflict) {
			return l.client.explain(err)
		}
		if err := l.refresh(ctx); err != nil {
			return err
		}
	}
}

// sweep deletes what a snapshot replaces. Whatever nothing refers to, and has an older revision,
// was left by a write that failed: the head is past that revision, so nothing can come to refer to
// it.
func (l *replicatedLog) sweep(ctx context.Context, ref *snapshotRef) error {
	keys, err := l.client.keys(ctx, l.name+"/")
	if err != nil {
		return err
	}
	oldest := ref.Revision - min(ref.Revision, keepEntries)
	keys = slices.DeleteFunc(keys, func(key string) bool {
		kind, name, _ := strings.Cut(strings.TrimPrefix(key, l.name+"/"), "/")
		switch kind {
		case "log", "blob":
			return name > fmt.Sprintf("%016d~", oldest) // "~" is after everything that follows a revision
		case "snapshot":
			return name >= fmt.Sprintf("%016d", ref.Revision)
		}
		return true
	})
	return l.client.remove(ctx, keys)
}
