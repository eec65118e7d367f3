package ratelimit

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	defaultBurst = 50
	defaultEvery = 10 * time.Second
)

// maxKeys is how many keys a Limiter remembers. For one more, all are forgotten: the next event of
// each finds a full burst.
const maxKeys = 10_000

// Limiter limits each key by itself. The zero value is ready for use. Safe for concurrent use.
type Limiter struct {
	// Burst is how many events of one key are allowed at once. Zero means 50. Set before use.
	Burst int
	// Every is how long it takes until one more event is allowed. Zero means 10s. Set before use.
	Every time.Duration

	mu    sync.Mutex
	byKey map[string]*bucket // guarded by mu
}

// bucket is the state of one key.
type bucket struct {
	tokens  *rate.Limiter
	dropped int // events that were not allowed since the last one that was
}

// Allow counts an event of a key and says whether it is allowed. If it is, dropped is how many
// were not since the last one that was.
func (l *Limiter) Allow(key string, now time.Time) (ok bool, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(key)
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
	b := l.byKey[key]
	return b != nil && b.tokens.TokensAt(now) < 1
}

// bucket returns the bucket of a key, a full one if the key is new. The caller holds mu.
func (l *Limiter) bucket(key string) *bucket {
	b := l.byKey[key]
	if b == nil {
		if l.byKey == nil || len(l.byKey) >= maxKeys {
			l.byKey = map[string]*bucket{}
		}
		b = &bucket{tokens: rate.NewLimiter(rate.Every(cmp.Or(l.Every, defaultEvery)), cmp.Or(l.Burst, defaultBurst))}
		l.byKey[key] = b
	}
	return b
}
