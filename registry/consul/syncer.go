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
	"golang.org/x/sync/semaphore"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

type (
	batch  = feed.Batch[registry.Instances]
	update = feed.Update[registry.Instances]
)

// syncer keeps the state of one Consul cluster and turns changes into feed batches. The goroutine
// of loop owns the state. Watches run in their own goroutines and change the state through do.
type syncer struct {
	// Immutable.
	source string
	o      *Options
	client *client
	log    hclog.Logger

	running sync.WaitGroup // the goroutines of all watches
	changes chan func()    // see do
	// blocking limits blocking service queries over plain HTTP, where each takes a connection.
	blocking *semaphore.Weighted

	// The rest is owned by loop.

	catalogs          map[place]*catalog
	datacentersListed bool   // the datacenters were listed at least once
	listErr           string // why the datacenters cannot be listed; empty if they can

	pending    map[string]update // changed groups that are not sent yet
	since      time.Time         // when the first of them changed
	fullSent   bool              // a Full batch was sent
	outageSent string            // the error of the last batch; empty if it had none
}

// do runs change on the loop goroutine. It does nothing if ctx is done first.
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
func (s *syncer) loop(ctx context.Context, out chan<- batch) {
	for {
		for _, c := range s.catalogs {
			s.updateProblems(c)
		}
		b, ok := s.next()
		to := out
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
		}
	}
}

// next returns the batch to send now, if there is one.
func (s *syncer) next() (b batch, ok bool) {
	b.Source = s.source
	outage := s.outage()
	if outage != "" {
		b.Down = errors.New(outage)
		return b, outage != s.outageSent
	}
	delivered, settled := s.progress()
	if !s.fullSent && !settled {
		return b, false
	}
	b.Full = delivered && !s.fullSent
	b.Since = s.since
	if b.Full {
		b.Updates = s.everything()
	} else {
		b.Updates = slices.Collect(maps.Values(s.pending))
	}
	slices.SortFunc(b.Updates, func(a, b update) int { return cmp.Compare(a.Group, b.Group) })
	return b, b.Full || len(b.Updates) > 0 || s.outageSent != ""
}

// sent records that a batch was sent.
func (s *syncer) sent(b batch) {
	if b.Down != nil {
		s.outageSent = b.Down.Error()
		return
	}
	if b.Full {
		s.fullSent = true
		s.log.Info("loaded the services of Consul", "groups", len(b.Updates))
	}
	s.outageSent = ""
	s.since = time.Time{}
	clear(s.pending)
}

// outage returns an error text if every datacenter is unreachable, else "". It uses the error of
// the first datacenter by name.
func (s *syncer) outage() string {
	if !s.datacentersListed {
		return s.listErr
	}
	var first *catalog
	for _, c := range s.catalogs {
		if c.err == "" {
			return ""
		}
		if first == nil || c.group < first.group {
			first = c
		}
	}
	if first == nil {
		return ""
	}
	return first.err
}

// progress reports whether all datacenters are loaded, and whether each is loaded or failed.
func (s *syncer) progress() (delivered, settled bool) {
	delivered, settled = s.datacentersListed, s.datacentersListed
	for _, c := range s.catalogs {
		delivered = delivered && c.delivered()
		settled = settled && (c.delivered() || c.err != "")
	}
	return delivered, settled
}

// everything returns all groups that are not empty.
func (s *syncer) everything() (out []update) {
	for _, c := range s.catalogs {
		for _, svc := range c.services {
			u := svc.update()
			if len(u.Items) > 0 || len(u.Problems) > 0 || u.Unreadable {
				out = append(out, u)
			}
		}
		if len(c.problems) > 0 {
			out = append(out, c.update())
		}
	}
	return out
}

// post queues u for the next batch.
func (s *syncer) post(u update) {
	s.pending[u.Group] = u
	if s.since.IsZero() {
		s.since = time.Now()
	}
}
