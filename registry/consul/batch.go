package consul

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// batch is what there is to send; false: nothing.
func (k *keeper) batch() (feed.Batch[registry.Instances], bool) {
	b := feed.Batch[registry.Instances]{Source: k.source, Since: k.since}
	switch {
	case k.told:
		for _, group := range slices.Sorted(maps.Keys(k.changed)) {
			b.Updates = append(b.Updates, k.changed[group].update())
		}
	case k.complete():
		b.Full, b.Updates = true, k.everything()
	}
	b.Standing = k.stands.untold(b.Full || len(b.Updates) > 0)
	return b, b.Full || len(b.Updates) > 0 || b.Standing != nil
}

// everything is all that there is to tell: services in the order of their groups, and what is wrong.
func (k *keeper) everything() []feed.Update[registry.Instances] {
	var out []feed.Update[registry.Instances]
	add := func(t told) {
		if u := t.update(); len(u.Items) > 0 || len(u.Problems) > 0 {
			out = append(out, u)
		}
	}
	for _, s := range k.all() {
		add(s)
	}
	add(k.datacentersNotice)
	add(k.turnsNotice)
	for _, sc := range k.ordered() {
		for _, n := range []*notice{sc.awayNotice, sc.lostNotice, sc.hiddenNotice, sc.restoredNotice, sc.chosenNotice} {
			add(n)
		}
	}
	return out
}

// sent notes that a batch was taken.
func (k *keeper) sent(b feed.Batch[registry.Instances]) {
	if b.Standing != nil {
		k.stands.told = b.Standing
	}
	if b.Full {
		k.told, k.kept, k.dirty = true, nil, true
		k.log.Info("Consul's services are known", "services", len(k.all()), "places", len(k.scopes))
	}
	if k.told {
		clear(k.changed)
		k.since = time.Time{}
	}
}

// complete says that everything is known, or what was said before the start stands in for what is not. Where that would be all
// of it, there is nothing to say.
func (k *keeper) complete() bool {
	any := false
	for _, sc := range k.scopes {
		if any = any || sc.listed; !sc.listed && !sc.stoodIn {
			return false
		}
		for _, s := range sc.services {
			if !s.known {
				return false
			}
		}
	}
	return k.placed && any
}

// all are the services of all places, in the order of their groups.
func (k *keeper) all() []*service {
	var out []*service
	for _, sc := range k.scopes {
		out = slices.AppendSeq(slices.AppendSeq(out, maps.Values(sc.services)), maps.Values(sc.lost))
	}
	slices.SortFunc(out, func(a, b *service) int { return strings.Compare(a.group, b.group) })
	return out
}

// note says that the content of a service is another than what was sent.
func (k *keeper) note(s *service, at time.Time) {
	k.post(s.group, s)
	if k.since.IsZero() || at.Before(k.since) {
		k.since = at
	}
}
