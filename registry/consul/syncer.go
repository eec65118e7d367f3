package consul

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

type update = feed.Update[registry.Instances]

// syncer holds what is known of one Consul, and makes batches of it. The goroutine of loop owns the state; watches
// run in goroutines of their own and change the state by do.
type syncer struct {
	source string // immutable, like the next three
	o      *Options
	client *client
	log    hclog.Logger

	running sync.WaitGroup // the goroutines of all watches
	changes chan func()    // see do
	// slots limits the blocking queries about services over plain HTTP, where each takes a connection.
	slots chan struct{}

	// The rest belongs to loop.

	catalogs map[place]*catalog
	listErr  string // why the datacenters are not known; empty once they are, or before the first failure
	placed   bool   // the datacenters are known

	pending  map[string]update // changed groups that were not sent
	since    time.Time         // when the first of them changed
	started  bool              // a batch with content was sent
	full     bool              // a Full batch was sent
	sentDown string            // the error of the last batch; empty: it had none
}

func newSyncer(source string, o *Options, c *client, log hclog.Logger) *syncer {
	return &syncer{
		source: source, o: o, client: c, log: log, changes: make(chan func()), slots: make(chan struct{}, maxBlocking),
		catalogs: map[place]*catalog{}, pending: map[string]update{},
	}
}

// do has loop call change, unless ctx has ended by then.
func (s *syncer) do(ctx context.Context, change func()) {
	f := func() {
		if ctx.Err() == nil {
			change()
		}
	}
	select {
	case <-ctx.Done():
	case s.changes <- f:
	}
}

// loop applies changes and sends batches until ctx ends.
func (s *syncer) loop(ctx context.Context, out chan<- feed.Batch[registry.Instances]) {
	for {
		to := out
		b, ok := s.batch()
		if !ok {
			to = nil
		}
		select {
		case <-ctx.Done():
			return
		case to <- b:
			s.sent(b)
		case change := <-s.changes:
			change()
			s.drain()
		}
	}
}

// drain applies the changes that are waiting, so that many at once make one batch.
func (s *syncer) drain() {
	for range 256 {
		select {
		case change := <-s.changes:
			change()
		default:
			return
		}
	}
}

// batch returns what is to be sent now, if anything.
func (s *syncer) batch() (feed.Batch[registry.Instances], bool) {
	b := feed.Batch[registry.Instances]{Source: s.source}
	if down := s.down(); down != "" {
		b.Down = errors.New(down)
		return b, down != s.sentDown
	}
	delivered, settled := s.progress()
	if !s.started && !settled {
		return b, false
	}
	for _, c := range s.catalogs {
		s.updateProblems(c)
	}
	b.Full, b.Since = delivered && !s.full, s.since
	if b.Full {
		b.Updates = s.everything()
	} else {
		b.Updates = slices.Collect(maps.Values(s.pending))
	}
	slices.SortFunc(b.Updates, func(a, b update) int { return cmp.Compare(a.Group, b.Group) })
	return b, b.Full || len(b.Updates) > 0 || s.sentDown != ""
}

// sent notes that a batch was sent.
func (s *syncer) sent(b feed.Batch[registry.Instances]) {
	if b.Down != nil {
		s.sentDown = b.Down.Error()
		return
	}
	if b.Full {
		s.log.Info("loaded the services of Consul", "groups", len(b.Updates))
	}
	s.sentDown, s.started, s.full, s.since = "", true, s.full || b.Full, time.Time{}
	clear(s.pending)
}

// down is why no datacenter can be reached; empty if one can, or if that is not known yet.
func (s *syncer) down() string {
	if !s.placed {
		return s.listErr
	}
	all := s.sorted()
	for _, c := range all {
		if c.err == "" {
			return ""
		}
	}
	return all[0].err
}

// progress returns whether all datacenters have delivered their services, and whether all others have failed.
func (s *syncer) progress() (delivered, settled bool) {
	delivered, settled = s.placed, s.placed
	for _, c := range s.catalogs {
		delivered = delivered && c.delivered()
		settled = settled && (c.delivered() || c.err != "")
	}
	return delivered, settled
}

// everything lists all groups. A service that could not be read keeps what it had before the start.
func (s *syncer) everything() (out []update) {
	for _, c := range s.catalogs {
		for _, svc := range c.services {
			if u := svc.update(); len(u.Items) > 0 || len(u.Problems) > 0 || u.Unreadable {
				out = append(out, u)
			}
		}
		if len(c.problems) > 0 {
			out = append(out, c.update())
		}
	}
	return out
}

// post has a group sent with the next batch.
func (s *syncer) post(u update) {
	s.pending[u.Group] = u
	if s.since.IsZero() {
		s.since = time.Now()
	}
}

// sorted lists the catalogs by name.
func (s *syncer) sorted() []*catalog {
	return slices.SortedFunc(maps.Values(s.catalogs), func(a, b *catalog) int { return cmp.Compare(a.group, b.group) })
}
