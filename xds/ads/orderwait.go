package ads

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Make before break, first half: what names a cluster waits for it.

// open says whether a type may be sent now: listeners and routes not while they newly name a
// cluster that the client does not have yet.
func (o *Order) open(t *Turn, now time.Time) bool {
	if url := t.Kind().TypeURL; url != resource.ListenerType && url != resource.RouteType {
		return true
	}
	if cds := o.underWay(); cds == nil || !o.namesArriving(t, cds) {
		t.waiting = time.Time{}
		return true
	}
	if t.waiting.IsZero() {
		t.waiting = now
	}
	return now.Sub(t.waiting) >= o.RouteWait
}

// underWay are the clusters, while some of them are not acknowledged; else nil.
func (o *Order) underWay() *Turn {
	if cds := o.Find(resource.ClusterType); cds != nil && cds.InFlight() > 0 {
		return cds
	}
	return nil
}

// namesArriving says whether what t would send names a cluster that is on its way and not usable
// yet.
func (o *Order) namesArriving(t, cds *Turn) bool {
	found := false
	t.Pending(t.To, func(_, next *resource.Resource) bool {
		found = o.awaits(next, cds)
		return !found
	})
	return found
}

// awaits says whether r names a cluster that is on its way and not usable yet.
func (o *Order) awaits(r *resource.Resource, cds *Turn) bool {
	for _, ref := range r.Refs {
		if ref.TypeURL == resource.ClusterType && cds.Arriving(ref.Name) && !o.hasEndpoints(cds.To.Get(ref.Name)) {
			return true
		}
	}
	return false
}

// hasEndpoints says whether a cluster that is on its way has endpoints to fetch, and the client
// acknowledged them.
func (o *Order) hasEndpoints(cluster *resource.Resource) bool {
	eds := o.Find(resource.EndpointType)
	if cluster == nil || eds == nil {
		return false
	}
	names := appendRefs(nil, cluster, resource.EndpointType)
	for _, name := range names {
		if !eds.Has(name) {
			return false
		}
	}
	return len(names) > 0
}

// lag says which extensions wait, each for itself: one that asks a cluster for that; one that would
// let through more than before for those that it names, as long as they are to let through less:
// what one gives up another may take over. A policy that only refuses more holds at once.
func (o *Order) lag(t *Turn, now time.Time) func(had, next *resource.Resource) bool {
	cds := o.underWay()
	var takers map[string]bool
	return func(had, next *resource.Resource) bool {
		if cds != nil && o.awaits(next, cds) && !t.lagging.over(next.Name, o.RouteWait, now) {
			return true
		}
		named := appendRefs(nil, next, resource.ExtensionConfigType)
		if len(named) == 0 || !loosens(had, next) {
			return false
		}
		if takers == nil {
			takers = t.takers()
		}
		return slices.ContainsFunc(named, func(name string) bool { return takers[name] })
	}
}

// takers are the extensions that are to change, and to let through no more than before.
func (t *Turn) takers() map[string]bool {
	out := map[string]bool{}
	t.Pending(t.To, func(had, next *resource.Resource) bool {
		if !loosens(had, next) {
			out[next.Name] = true
		}
		return true
	})
	return out
}
