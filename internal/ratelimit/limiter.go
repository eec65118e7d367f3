package ratelimit

import (
	"cmp"
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	defaultBurst = 50
	defaultEvery = 10 * time.Second
)

// maxKeys is how many keys a Limiter remembers. For one more, the least recently used is evicted:
// its next event finds a full burst.
const maxKeys = 10_000

// Limiter limits each key by itself. The zero value is ready for use. Safe for concurrent use.
type Limiter struct {
	// Burst is how many events of one key are allowed at once. Zero means 50. Set before use.
	Burst int
	// Every is how long it takes until one more event is allowed. Zero means 10s. Set before use.
	Every time.Duration

	mu     sync.Mutex
	byKey  map[string]*list.Element // guarded by mu: the elements of recent
	recent list.List                // guarded by mu: of *bucket, the most recently used first
}

// bucket is the state of one key.
type bucket struct {
	key     string
	tokens  *rate.Limiter
	dropped int // events that were not allowed since the last one that was
}

// Allow counts an event of a key and says whether it is allowed. If it is, dropped is how many
// were not since the last one that was.
func (l *Limiter) Allow(key string, now time.Time) (ok bool, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(key, now)
	if !b.tokens.AllowN(now, 1) {
		b.dropped++
		return false, 0
	}
	dropped, b.dropped = b.dropped, 0
	return true, dropped
}

// Exhausted says that a key has no event left. It changes nothing.
func (l *Limiter) Exhausted(key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byKey[key]
	return ok && e.Value.(*bucket).tokens.TokensAt(now) < 1 //nolint:forcetypeassert // the list holds nothing else
}

// bucket returns the bucket of a key, a full one if the key is new. The caller holds mu.
func (l *Limiter) bucket(key string, now time.Time) *bucket {
	if e, ok := l.byKey[key]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket) //nolint:forcetypeassert // the list holds nothing else
	}
	if l.byKey == nil {
		l.byKey = map[string]*list.Element{}
	}
	if l.recent.Len() >= maxKeys {
		oldest := l.recent.Remove(l.recent.Back()).(*bucket) //nolint:forcetypeassert // the list holds nothing else
		delete(l.byKey, oldest.key)
	}
	every := rate.Every(cmp.Or(l.Every, defaultEvery))
	b := &bucket{key: key, tokens: rate.NewLimiter(every, cmp.Or(l.Burst, defaultBurst))}
	l.byKey[key] = l.recent.PushFront(b)
	return b
}
