package consul

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/internal/writebehind"
)

// replicatedLog is one of the logs of a Store, and its state on this replica. Safe for concurrent
// use.
type replicatedLog struct {
	name   string              // immutable; also the folder of its keys
	cfg    *Config             // immutable
	client *client             // immutable
	health *health             // immutable
	decode decoder             // immutable
	copy   *writebehind.Writer // immutable

	state    atomic.Pointer[state] // replaced by swap only
	watchers record.Watchers

	writing chan struct{} // capacity 1; held by a commit
	long    chan struct{} // capacity 1; receives when a snapshot should be written

	started atomic.Uint64 // refreshes that were started
	reading chan struct{} // capacity 1; held by a refresh
	result  struct {      // of the last refresh; guarded by reading
		number uint64
		err    error
	}

	mu sync.Mutex // held while state is replaced
}

// The keys of a log.
func (l *replicatedLog) key(name string) string { return l.name + "/" + name }
func (l *replicatedLog) keyOfHead() string      { return l.key("head") }
func (l *replicatedLog) keyOfEntry(revision uint64) string {
	return l.key(fmt.Sprintf("log/%016d", revision))
}

// blobName is the name of a folder for parts. It begins with a revision: when the log is past that,
// parts that nothing refers to can be deleted.
func blobName(kind string, revision uint64, id string) string {
	return fmt.Sprintf("%s/%016d-%s", kind, revision, id)
}
func (l *replicatedLog) keyOfPart(blob string, n int) string {
	return l.key(fmt.Sprintf("%s/%04d", blob, n))
}

const (
	// minPause and maxPause bound the time between two tries to read a log.
	minPause, maxPause = 250 * time.Millisecond, 4 * time.Second
	// touchEvery is how often the age of an unchanged copy is saved.
	touchEvery = time.Minute
)

// follow waits for changes of the log and reads them, until ctx ends.
func (l *replicatedLog) follow(ctx context.Context) {
	var index uint64
	var touched time.Time
	for pause := minPause; ctx.Err() == nil; {
		waiting, cancel := l.health.wait(ctx, l.name)
		next, waitErr := l.client.wait(waiting, l.keyOfHead(), index)
		interrupted := waiting.Err() != nil
		cancel()
		if err := l.refresh(ctx); err != nil || waitErr != nil && !interrupted {
			index = 0
			task.Sleep(ctx, pause)
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minPause
		if time.Since(touched) > touchEvery {
			touched = time.Now()
			l.touchCopy()
		}
		// Without a change, or when the index went backwards, Consul may have been restored: ask
		// again without waiting.
		// https://developer.hashicorp.com/consul/api-docs/features/blocking#implementation-details
		if next <= index {
			next = 0
		}
		index = next
	}
}

// latest returns what Consul has, for a read; while the store cannot be read, what is in memory.
// Errors: that of ctx.
func (l *replicatedLog) latest(ctx context.Context) (*state, error) {
	if ctx.Err() == nil && l.health.outage() == nil {
		_ = l.refresh(ctx) // health has the error
	}
	return l.state.Load(), ctx.Err()
}

// refresh reads what is new in the log. Calls that wait for each other share the result of one that
// began after them.
func (l *replicatedLog) refresh(ctx context.Context) error {
	before := l.started.Load()
	select {
	case l.reading <- struct{}{}:
		defer func() { <-l.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.result.number > before {
		return l.result.err
	}
	number := l.started.Add(1)
	err := l.read(ctx, l.advance)
	if ctx.Err() != nil {
		return ctx.Err() // this says nothing about Consul
	}
	l.result.number, l.result.err = number, err
	l.health.setRead(l.name, err, time.Now())
	return err
}

// reload reads the whole log, whatever this replica knows.
func (l *replicatedLog) reload(ctx context.Context) error {
	return l.read(ctx, l.load)
}

// errMissing means that a key is missing.
var errMissing = errors.New("it is missing")

// read reads the head and has next make the state at it. It begins anew with a newer head if a key is
// missing: it may have become part of a snapshot.
func (l *replicatedLog) read(ctx context.Context, next func(context.Context, *state, head) (*state, error)) error {
	var missing string
	for {
		known := l.state.Load()
		pair, err := l.client.get(ctx, l.keyOfHead())
		if err != nil {
			return err
		}
		if pair == nil {
			if known.Revision > 0 {
				return fmt.Errorf("%w: the key %s is gone from Consul: restore a snapshot of Consul; "+
					"or name another store.prefix to begin with an empty store", ErrDamaged, l.client.key(l.keyOfHead()))
			}
			return nil
		}
		h, err := parseHead(pair.Value)
		if err != nil {
			return l.damaged(l.keyOfHead(), err)
		}
		s, err := next(ctx, known, h)
		if errors.Is(err, errMissing) && missing != string(pair.Value) {
			missing = string(pair.Value)
			continue
		}
		if err != nil {
			return err
		}
		if s == known && s.index == pair.ModifyIndex {
			return nil // nothing is new
		}
		changed := *s
		changed.head, changed.index = h, pair.ModifyIndex
		if l.swap(known, &changed) {
			return nil
		} // else a write of this replica has changed the state
	}
}

// errChain means that an entry does not follow the one before.
var errChain = errors.New("it does not follow the entry before")

// advance returns the state at h. It reads the entries after known, or the whole log if these are
// not there any more.
func (l *replicatedLog) advance(ctx context.Context, known *state, h head) (*state, error) {
	switch {
	case known.Log != "" && h.Log != known.Log:
		return nil, fmt.Errorf("%w: Consul has another store below %s than the one that this replica knows: "+
			"restore a snapshot of Consul, or restart ashored to use that store", ErrDamaged, l.client.key(l.name))
	case h.ID == known.ID && h.Revision == known.Revision:
		return known, nil
	}
	restored := h.Revision <= known.Revision
	if !restored && h.snapshotRevision() <= known.Revision+keepEntries {
		next, err := l.replay(ctx, known, h, func(key string) ([]byte, error) {
			pair, err := l.client.get(ctx, key)
			if err != nil || pair == nil {
				return nil, err
			}
			return pair.Value, nil
		})
		restored = errors.Is(err, errChain)
		if !restored && !errors.Is(err, errMissing) {
			return next, err
		}
	}
	next, err := l.load(ctx, known, h)
	if err == nil && restored {
		l.cfg.Log.Error("Consul was restored from a snapshot: the store is as it was then, and later writes are lost",
			"log", l.name, "known", known.Revision, "found", h.Revision)
	}
	return next, err
}

// load returns the state at h, from the snapshot and the entries after it.
func (l *replicatedLog) load(ctx context.Context, known *state, h head) (*state, error) {
	next := &state{generation: known.generation + 1}
	if r := h.Snapshot; r != nil {
		items, err := l.items(ctx, r.content, nil)
		if err != nil {
			return nil, l.damaged(l.key(r.Blob), err)
		}
		next = next.with(items, "", l.decode)
		next.Revision, next.ID = r.Revision, r.ID
	}
	entries, err := l.client.list(ctx, l.key("log/"))
	if err != nil {
		return nil, err
	}
	next, err = l.replay(ctx, next, h, func(key string) ([]byte, error) { return entries[key], nil })
	if err != nil {
		return nil, err
	}
	return next.sharing(known), nil
}

// replay applies the entries from a state to h.
func (l *replicatedLog) replay(ctx context.Context, s *state, h head, get func(key string) ([]byte, error)) (*state,
	error) {
	for s.Revision < h.Revision {
		key := l.keyOfEntry(s.Revision + 1)
		value, err := get(key)
		if err != nil {
			return nil, err
		}
		if value == nil {
			return nil, l.damaged(key, errMissing)
		}
		e, body, err := parseEntry(value)
		if err != nil {
			return nil, l.damaged(key, err)
		}
		if e.Revision != s.Revision+1 || e.Previous != s.ID || e.Revision == h.Revision && e.ID != h.ID {
			return nil, l.damaged(key, errChain)
		}
		items, err := l.items(ctx, e.content, body)
		if err != nil {
			return nil, l.damaged(key, err)
		}
		s = s.with(items, e.ID, l.decode)
		s.Revision, s.ID = e.Revision, e.ID
	}
	return s, nil
}

// items reads the body of an entry or a snapshot; inline is what follows the entry.
func (l *replicatedLog) items(ctx context.Context, c content, inline []byte) ([]item, error) {
	body := inline
	for n := range c.Parts {
		key := l.keyOfPart(c.Blob, n)
		pair, err := l.client.get(ctx, key)
		if err != nil {
			return nil, err
		}
		if pair == nil {
			return nil, fmt.Errorf("its part %s: %w", l.client.key(key), errMissing)
		}
		body = append(body, pair.Value...)
	}
	return c.decodeItems(body)
}

// damaged is the error for a key that cannot be used, unless err is an error of Consul.
func (l *replicatedLog) damaged(key string, err error) error {
	if outage, ok := errors.AsType[consulError](err); ok {
		return outage
	}
	if errors.Is(err, errFormat) {
		return fmt.Errorf("the key %s of Consul: %w", l.client.key(key), err)
	}
	return fmt.Errorf("%w: the key %s of Consul: %w: its last known content stays active; restore a snapshot of Consul",
		ErrDamaged, l.client.key(key), err)
}

// swap replaces a state, unless it is not the current one any more, and reports the changes.
func (l *replicatedLog) swap(old, next *state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.state.CompareAndSwap(old, next) {
		return false
	}
	l.saveCopy(old, next)
	var changed []record.Write
	for c := range next.records.Diff(old.records) {
		changed = append(changed, record.Write{Key: c.Key})
	}
	l.watchers.Notify(changed)
	return true
}
