package consul

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry"
)

// Contents are what another store has, for this one to begin with.
type Contents struct {
	// From is what the history says of where they are from.
	From      string
	Objects   []*config.Object
	Records   []record.Record
	Addresses map[registry.Key][]netip.Addr
}

// Empty says that nothing was ever written to the store.
func (s *Store) Empty() bool {
	known := s.state.Load()
	return known.Sequence == 0 && !known.partial
}

// Seed writes contents as the first entry, and says whether it did: not when anything was ever written, by whomever. Objects get the
// first revision, and keep the time of their creation. Errors: ErrAway, ErrUnknown.
func (s *Store) Seed(ctx context.Context, from Contents) (bool, error) {
	c := &commit{}
	for _, r := range from.Records {
		c.Records = append(c.Records, recordWrite{Table: []byte(r.Table), Name: []byte(r.Name), Value: append([]byte{}, r.Value...)})
	}
	for _, k := range slices.SortedFunc(maps.Keys(from.Addresses), registry.Key.Compare) {
		list := from.Addresses[k]
		if len(list) != 2 {
			return false, fmt.Errorf("move %v: it has %d addresses", k, len(list))
		}
		c.Addresses = append(c.Addresses, addressWrite{Host: k.Host, Namespace: k.Namespace, IPv4: list[0], IPv6: list[1]})
	}
	if len(from.Objects) > 0 {
		c.Objects = &objectsWrite{Who: from.From, When: time.Now().UTC()}
	}
	for _, o := range from.Objects {
		kept, err := keep(o)
		if err != nil {
			return false, err
		}
		c.Objects.Writes = append(c.Objects.Writes, objectWrite{objectName: nameOf(o.Key), Object: kept})
	}
	if len(c.Records)+len(c.Addresses)+len(from.Objects) == 0 {
		return false, nil
	}
	seeded := false
	_, err := s.proposeAhead(ctx, true, c, func(known *state) (*commit, error) {
		if seeded = known.Sequence == 1; !seeded { // the entry that is being made would be another than the first
			return nil, nil
		}
		return c, c.check()
	})
	return seeded && err == nil, err
}
