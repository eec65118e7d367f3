package crd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// syncer turns what is read of a cluster into batches. The goroutine of loop owns the state. Watches
// run in goroutines of their own and send changes.
type syncer struct {
	src     *Source       // immutable
	cluster *kube.Cluster // immutable
	log     hclog.Logger  // immutable

	running sync.WaitGroup // the watches, and the lookup of kinds
	changes kube.Changes   // received by loop

	// The rest is owned by loop.

	kinds     []*kind
	lookupErr error // why the kinds cannot be looked up

	pending    map[string]update // changed groups, and groups that a user deleted
	lost       map[string]update // groups that were missing in a later list
	dataLost   bool              // the API server has lost data, and with it groups of lost
	since      time.Time         // when the first of them changed
	fullSent   bool
	outageSent string // Batch.Down of the last batch
}

// read is what is used of an object, with its group.
type read struct {
	object *object
	update update
	// absent means that there is no such object for us: it was deleted, or is for another control
	// plane.
	absent bool
}

// loop applies changes and sends batches until ctx ends.
func (s *syncer) loop(ctx context.Context, out chan<- batch) {
	for {
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

// next returns the batch to send now, if there is one. Removals that users requested and others go
// in batches of their own.
func (s *syncer) next() (b batch, ok bool) {
	b = batch{Source: s.src.Name(), Since: s.since}
	switch down := s.outage(); {
	case !s.fullSent && down == nil && s.complete():
		b.Full, b.Updates = true, sorted(s.pending)
	case s.fullSent && len(s.pending) > 0:
		b.Explicit, b.Updates = true, sorted(s.pending)
	case s.fullSent && len(s.lost) > 0:
		b.DataLost, b.Updates = s.dataLost, sorted(s.lost)
	case down != nil:
		b.Down, b.Since = down, time.Time{}
		return b, down.Error() != s.outageSent
	default:
		return b, s.outageSent != "" && s.fullSent
	}
	return b, true
}

func sorted(groups map[string]update) []update {
	return slices.SortedFunc(maps.Values(groups), func(a, b update) int { return cmp.Compare(a.Group, b.Group) })
}

// sent records that a batch was sent.
func (s *syncer) sent(b batch) {
	s.outageSent = ""
	switch {
	case b.Down != nil:
		s.outageSent = b.Down.Error()
		return
	case b.Full:
		s.log.Info("loaded Istio's objects", "objects", len(b.Updates))
		s.fullSent = true
		clear(s.pending)
		clear(s.lost)
		// Only now: the merger keeps objects of a group that became unreadable after they were missing.
		for _, k := range s.kinds {
			s.postStatus(k)
		}
	case b.Explicit:
		clear(s.pending)
	default:
		clear(s.lost)
		s.dataLost = false
	}
	if len(s.pending)+len(s.lost) == 0 {
		s.since = time.Time{}
	}
}

// outage returns why the cluster cannot be read; nil if it can. That one kind is unreadable is no
// outage, unless no other kind can be read. Before the Full batch, a kind that protects has to be
// readable: without it, proxies that have no saved policies would accept any request.
func (s *syncer) outage() error {
	if s.lookupErr != nil {
		return s.lookupErr
	}
	var unreadable error
	readable := false
	for _, k := range s.kinds {
		switch {
		case k.unreadable() && (s.fullSent || !k.Protects):
			unreadable = cmp.Or(unreadable, k.err)
		case k.err != nil:
			return k.err
		case k.version != "":
			readable = true
		}
	}
	if !readable {
		return unreadable
	}
	return nil
}

// complete reports whether each kind was listed, is not installed, or is unreadable.
func (s *syncer) complete() bool {
	return !slices.ContainsFunc(s.kinds, func(k *kind) bool { return !k.known && !k.unreadable() })
}

// reported records whether a kind can be read. If its version is no longer served, the next lookup
// finds that. In an outage its problem stays, which may retain objects.
func (s *syncer) reported(k *kind, err error) {
	if apierrors.IsNotFound(err) {
		return
	}
	if k.err = err; err == nil || k.unreadable() {
		s.postStatus(k)
	}
}

// postStatus queues the group with the problem of a kind, or its removal, if that is new. There is none
// before the Full batch.
func (s *syncer) postStatus(k *kind) {
	u, text := k.status(s.cluster.Name), ""
	for _, p := range u.Problems {
		text = p.Text
	}
	if s.fullSent && text != k.problem {
		s.post(s.pending, u)
		k.problem = text
	}
}

// listed replaces all objects of a kind.
func (s *syncer) listed(k *kind, list []read) {
	k.known = true
	there := make(map[config.Key]bool, len(list))
	for _, r := range list {
		there[r.object.key] = true
		s.changed(r)
	}
	for key := range s.src.all() {
		if key.Kind == k.Kind && !there[key] {
			s.src.set(key, nil)
			s.post(s.lost, update{Group: key.String()})
		}
	}
}

// changed replaces one object. Its group is sent unless only its status changed.
func (s *syncer) changed(r read) {
	o := r.object
	old := s.src.get(o.key)
	if r.absent {
		if old != nil {
			s.src.set(o.key, nil)
			s.post(s.pending, update{Group: o.key.String()})
		}
		return
	}
	s.src.set(o.key, o)
	if old == nil || old.hash != o.hash || !slices.Equal(old.problems, o.problems) {
		s.post(s.pending, r.update)
	}
}

// post queues u for the next batch.
func (s *syncer) post(to map[string]update, u update) {
	delete(s.pending, u.Group)
	delete(s.lost, u.Group)
	to[u.Group] = u
	if s.since.IsZero() {
		s.since = time.Now()
	}
}
