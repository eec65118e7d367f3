package push

import (
	"cmp"
	"iter"
	"net/netip"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/pmap"
)

// entryKey is one WorkloadEntry at its address.
type entryKey struct {
	address netip.Addr
	entry   config.Key
}

// Compare orders by address, then entry.
func (k entryKey) Compare(o entryKey) int {
	return cmp.Or(k.address.Compare(o.address), k.entry.Compare(o.entry))
}

// workloadEntries is the index of WorkloadEntry objects by IP address.
type workloadEntries struct {
	byAddress pmap.Map[entryKey, *config.Object]
}

// with returns the index with a changed WorkloadEntry; old or now is nil when there is none.
func (x workloadEntries) with(old, now *config.Object) workloadEntries {
	if k, ok := entryKeyOf(old); ok {
		x.byAddress = x.byAddress.Without(k)
	}
	if k, ok := entryKeyOf(now); ok {
		x.byAddress = x.byAddress.With(k, now)
	}
	return x
}

// entryKeyOf is the key of a WorkloadEntry; false: it has no IP address, or is nil.
func entryKeyOf(o *config.Object) (entryKey, bool) {
	if o == nil {
		return entryKey{}, false
	}
	address, err := netip.ParseAddr(o.Spec.(*networking.WorkloadEntry).Address)
	return entryKey{address.Unmap(), o.Key}, err == nil
}

// WorkloadEntriesAt returns the WorkloadEntry objects with that IP address, in all namespaces.
func (c *Context) WorkloadEntriesAt(address netip.Addr) iter.Seq[*config.Object] {
	return func(yield func(*config.Object) bool) {
		for k, o := range c.entries.byAddress.From(entryKey{address: address}) {
			if k.address != address || !yield(o) {
				return
			}
		}
	}
}
