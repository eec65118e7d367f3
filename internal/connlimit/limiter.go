package connlimit

import "sync"

// Limiter limits how many connections are open, in all and of each key. The connections of a key
// share a value. Safe for concurrent use.
type Limiter[V any] struct {
	total, perKey int      // immutable
	value         func() V // immutable

	mu      sync.Mutex // guards the following
	open    int
	keys    map[string]*connections[V]
	refused int
}

// connections are the open ones of a key.
type connections[V any] struct {
	count int
	value V
}

// NewLimiter returns a limiter of total connections, and perKey of each key. value makes what the
// connections of a key share.
func NewLimiter[V any](total, perKey int, value func() V) *Limiter[V] {
	return &Limiter[V]{total: total, perKey: perKey, value: value, keys: map[string]*connections[V]{}}
}

// Enter counts a connection until leave is called; a second call of leave does nothing. If there are
// too many connections, ok is false and the connection does not count.
func (l *Limiter[V]) Enter(key string) (shared V, leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[key]
	if l.open >= l.total || k != nil && k.count >= l.perKey {
		l.refused++
		return shared, nil, false
	}
	if k == nil {
		k = &connections[V]{value: l.value()}
		l.keys[key] = k
	}
	l.open++
	k.count++
	return k.value, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if k.count--; k.count == 0 {
			delete(l.keys, key)
		}
	}), true
}

// Numbers returns how many connections are open, and how many were refused.
func (l *Limiter[V]) Numbers() (open, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.refused
}
