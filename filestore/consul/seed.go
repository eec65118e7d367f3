package consul

import (
	"context"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/record"
)

// Contents are what another store has, for this one to begin with.
type Contents struct {
	// From is what the history says of where they are from.
	From    string
	Objects []*config.Object
	Records []record.Record
}

// Empty says that nothing was ever written to the store.
func (s *Store) Empty() bool {
	known := s.state.Load()
	return known.Sequence == 0 && !known.partial
}

// Seed writes contents as the first entry, and says whether it did: not when anything was ever
// written, by whomever. Objects get the first revision, and keep the time of their creation.
// Errors: ErrAway, ErrUnknown.
func (s *Store) Seed(ctx context.Context, from Contents) (bool, error) {
	c := &commit{}
	for _, r := range from.Records {
		c.Records = append(c.Records, recordWrite{Table: []byte(r.Table), Name: []byte(r.Name),
			Value: append([]byte{}, r.Value...)})
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
	if len(c.Records)+len(from.Objects) == 0 {
		return false, nil
	}
	seeded := false
	_, err := s.propose(ctx, true, c, func(known *state) (*commit, error) {
		if seeded = known.Sequence == 1; !seeded { // the entry that is being made would be another than the first
			return nil, nil
		}
		return c, c.check()
	})
	return seeded && err == nil, err
}
