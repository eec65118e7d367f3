package vip

import (
	"context"
	"net/netip"

	"github.com/ashore-mesh/ashore/registry"
)

// Holder is one user of addresses: a source of services, or who derives them. It says what it uses, so that nobody else is given
// that. Safe for concurrent use.
type Holder struct {
	book *Book // set once

	told map[registry.Key][]netip.Addr // guarded by book.mu: what it uses, and its addresses; nil: it has not been told any
	lost []registry.Key                // guarded by book.mu

	losing chan struct{} // cap 1; what Losing returns
}

var _ Addresses = (*Holder)(nil)

// Holder makes a user of the book's addresses.
func (b *Book) Holder() *Holder {
	return &Holder{book: b, told: map[registry.Key][]netip.Addr{}, losing: make(chan struct{}, 1)}
}

// Allocate implements Addresses. From now on keys are in use.
func (h *Holder) Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	looks := h.use(keys)
	got, err := h.book.allocate(ctx, keys)
	h.book.give(h, got, looks)
	return got, err
}

// use notes that keys are in use, and returns how often the book has compared.
func (h *Holder) use(keys []registry.Key) (looks int) {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	h.book.holders[h] = true
	for _, k := range keys {
		h.told[k] = nil
	}
	return h.book.looks
}

// Release implements Addresses.
func (h *Holder) Release(keys []registry.Key) {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	for _, k := range keys {
		told := h.told[k]
		delete(h.told, k)
		h.book.disown(k, told)
	}
	if len(h.told) == 0 {
		delete(h.book.holders, h)
	}
}

// Lost implements Addresses.
func (h *Holder) Lost() []registry.Key {
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	lost := h.lost
	h.lost = nil
	return lost
}

// Losing implements Addresses.
func (h *Holder) Losing() <-chan struct{} { return h.losing }

// lose notes that the addresses of a key are not its own any more. book.mu is held.
func (h *Holder) lose(k registry.Key) lostHost {
	told := h.told[k]
	h.told[k] = nil
	h.lost = append(h.lost, k)
	h.book.disown(k, told)
	select {
	case h.losing <- struct{}{}:
	default: // there is word already
	}
	return lostHost{key: k, told: told}
}
