package vip

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/registry"
)

// lostHost is a host in use here that has lost the address which a holder was told.
type lostHost struct {
	key  registry.Key
	told []netip.Addr
}

// lose notes for each holder what it was told and is not so any more: this replica was cut off from the store for longer than a
// rest, or the store was restored to an older state.
func (b *Book) lose(all map[*Holder]map[registry.Key][]netip.Addr, kept map[registry.Key][]netip.Addr) {
	var lost []lostHost
	b.mu.Lock()
	for h, keys := range all {
		for k, told := range keys {
			if told == nil || slices.Equal(told, kept[k]) || !slices.Equal(told, h.told[k]) { // the last: it was told something else meanwhile, or let go of it
				continue
			}
			lost = append(lost, h.lose(k))
		}
	}
	b.mu.Unlock()
	b.tellLost(lost)
}

// give notes what a holder is told. Whoever was told one of these addresses for another host, or others for one of these hosts, has
// lost it before this returns, however soon what is kept is compared: no two hosts here go on with one address.
// looks is how often it was compared before the store was asked: an answer from before the last time is compared too.
func (b *Book) give(h *Holder, got map[registry.Key][]netip.Addr, looks int) {
	var lost []lostHost
	b.mu.Lock()
	for k, addresses := range got {
		if _, used := h.told[k]; !used {
			continue
		}
		for o := range b.holders {
			if told := o.told[k]; o != h && told != nil && !slices.Equal(told, addresses) {
				lost = append(lost, o.lose(k))
			}
		}
		for _, a := range addresses {
			if owner, had := b.owners[a]; had && owner != k {
				lost = append(lost, b.evict(owner, a)...)
			}
			b.owners[a] = k
		}
		h.told[k] = addresses
	}
	if len(got) > 0 && b.looks != looks {
		select {
		case b.again <- struct{}{}:
		default: // there is word already
		}
	}
	b.mu.Unlock()
	b.tellLost(lost)
}

// evict has all holders lose an address that a host had. mu is held.
func (b *Book) evict(owner registry.Key, address netip.Addr) (lost []lostHost) {
	for h := range b.holders {
		if slices.Contains(h.told[owner], address) {
			lost = append(lost, h.lose(owner))
		}
	}
	return lost
}

// disown forgets that a host was told addresses, unless a holder has it so still. mu is held.
func (b *Book) disown(k registry.Key, addresses []netip.Addr) {
	for h := range b.holders {
		if slices.Equal(h.told[k], addresses) {
			return
		}
	}
	for _, a := range addresses {
		if b.owners[a] == k {
			delete(b.owners, a)
		}
	}
}

// tellLost tells which hosts have lost their addresses, in few lines.
func (b *Book) tellLost(lost []lostHost) {
	for _, l := range lost[:min(len(lost), mostTold)] {
		v4 := l.told[0].String()
		b.cfg.Log.Warn("a host in use here is not the one any more that its virtual address is of, since this replica was away from the store for long, or the store was restored; it is asked for anew",
			"host", l.key.Host, "namespace", l.key.Namespace, "address", v4)
		b.cfg.Audit(audit.Event{Action: audit.AddressLose, Actor: "ashored", Target: v4, Reason: "the store has it for another host, or not at all: this replica was away from it for long, or it was restored",
			Details: map[string]string{"host": l.key.Host, "namespace": l.key.Namespace}})
	}
	if more := len(lost) - mostTold; more > 0 {
		b.cfg.Log.Warn("so are more hosts in use here", "hosts", more)
		b.cfg.Audit(audit.Event{Action: audit.AddressLose, Actor: "ashored", Target: "addresses", Reason: fmt.Sprintf("%d more at once", more)})
	}
}
