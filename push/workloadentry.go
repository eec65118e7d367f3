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

// workloadEntries indexes WorkloadEntry objects by IP address.
type workloadEntries struct {
	byAddress pmap.Map[entryKey, *config.Object]
}

// with returns a copy of the index with current instead of previous. Either may be nil.
func (x workloadEntries) with(previous, current *config.Object) workloadEntries {
	if k, ok := entryKeyOf(previous); ok {
		x.byAddress = x.byAddress.Without(k)
	}
	if k, ok := entryKeyOf(current); ok {
		x.byAddress = x.byAddress.With(k, current)
	}
	return x
}

// entryKeyOf returns the key of a WorkloadEntry. It returns false if o is nil or has no IP address.
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
