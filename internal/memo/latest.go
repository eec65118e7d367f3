package memo

import "sync"

// Latest has a map that is safe for concurrent use. The zero value is empty.
type Latest[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V // guarded by mu
}

// Update calls f with the map.
func (l *Latest[K, V]) Update(f func(values map[K]V)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.values == nil {
		l.values = map[K]V{}
	}
	f(l.values)
}
