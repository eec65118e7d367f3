package ads

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Make before break, second half: what is named is removed after what names it.

// waits returns what of a type has to wait.
func (o *Order) waits(t *Turn, now time.Time) Waits {
	switch t.Kind().TypeURL {
	case resource.ClusterType:
		return Waits{Removal: o.holdClusters(t, now)}
	case resource.EndpointType:
		return Waits{Removal: o.holdEndpoints()}
	case resource.RouteType:
		return Waits{Removal: o.holdRoutes(t, now)}
	case resource.ExtensionConfigType:
		return Waits{Change: o.lag(t, now)}
	}
	return Waits{}
}

// holdClusters keeps clusters until listeners, routes and extensions have moved on, those that a
// refused one of these uses for as long as it is refused, and those that an extension asked until
// they have answered. Each waits for itself: one that a refused route holds for long must not cost
// later ones their wait.
func (o *Order) holdClusters(cds *Turn, now time.Time) func(string) bool {
	var asked, waits bool
	return func(name string) bool {
		if !asked {
			asked, waits = true, !o.moved(cds)
		}
		switch {
		case waits && !cds.keeping.over(name, o.RemovalWait, now), o.left.running(name, o.RemovalWait, now):
			return true
		case o.usedByRefused(resource.ListenerType, resource.ClusterType, name), o.usedByRefused(resource.RouteType,
			resource.ClusterType, name):
			return true
		}
		return o.usedByRefused(resource.ExtensionConfigType, resource.ClusterType, name) || o.usedByKept(name)
	}
}

// holdRoutes keeps routes until listeners have moved on.
func (o *Order) holdRoutes(rds *Turn, now time.Time) func(string) bool {
	return func(name string) bool {
		lds := o.Find(resource.ListenerType)
		return lds != nil && !rds.keeping.over(name, o.RemovalWait, now) && !lds.Settled(lds.To) ||
			o.usedByRefused(resource.ListenerType, resource.RouteType, name)
	}
}

// holdEndpoints keeps the endpoints of clusters that are to be removed: they serve until that has
// happened, and then the client forgets them by itself.
func (o *Order) holdEndpoints() func(string) bool {
	cds := o.Find(resource.ClusterType)
	if cds == nil {
		return nil
	}
	var wanted map[string]struct{}
	return func(name string) bool {
		if cds.To.Get(name) != nil {
			return false
		}
		if wanted == nil {
			wanted = map[string]struct{}{}
			for c := range cds.To.All() {
				for _, n := range appendRefs(nil, c, resource.EndpointType) {
					wanted[n] = struct{}{}
				}
			}
		}
		_, ok := wanted[name]
		return !ok
	}
}

// moved says whether listeners, the routes and extensions that they name, and all others are what
// the client is to have.
func (o *Order) moved(cds *Turn) bool {
	for _, typeURL := range []string{resource.ListenerType, resource.RouteType, resource.ExtensionConfigType} {
		t := o.Find(typeURL)
		if t == nil && !cds.Fresh() && typeURL != resource.ExtensionConfigType {
			return false // an earlier stream gave it some, and it will ask
		}
		if t != nil && !t.Settled(t.To) {
			return false
		}
	}
	lds := o.Find(resource.ListenerType)
	if lds == nil {
		return true
	}
	for l := range lds.To.All() {
		for _, ref := range l.Refs {
			if (ref.TypeURL == resource.RouteType || ref.TypeURL == resource.ExtensionConfigType) && !o.has(ref) {
				return false
			}
		}
	}
	return true
}

// has says whether the client has what ref names.
func (o *Order) has(ref resource.Ref) bool {
	t := o.Find(ref.TypeURL)
	return t != nil && t.Has(ref.Name)
}

// usedByRefused says whether a resource of type user, which the client refused in its latest
// version, uses name of type used in the version that the client still has, or may do so.
func (o *Order) usedByRefused(user, used, name string) bool {
	t := o.Find(user)
	if t == nil {
		return false
	}
	for _, f := range t.Refusals() {
		if !f.HadKnown || f.Had != nil && slices.Contains(f.Had.Refs, resource.Ref{TypeURL: used, Name: name}) {
			return true
		}
	}
	return false
}

// usedByKept says whether a route that is still to be removed uses a cluster.
func (o *Order) usedByKept(name string) bool {
	rds := o.Find(resource.RouteType)
	if rds == nil {
		return false
	}
	for r := range rds.KeptResources() {
		if slices.Contains(r.Refs, resource.Ref{TypeURL: resource.ClusterType, Name: name}) {
			return true
		}
	}
	return false
}
