package push

import (
	"fmt"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// peerPlace are the PeerAuthentications of a namespace that are for all of it, or those that are for some workloads.
type peerPlace struct {
	namespace string
	workloads bool
}

// place is where what is found there is kept.
func (p peerPlace) place() place {
	group := p.namespace
	if p.workloads {
		group += "/workloads"
	}
	return place{config.Key{Kind: config.PeerAuthentication}, group}
}

func peerPlaceOf(o *config.Object) peerPlace {
	return peerPlace{o.Namespace, len(selectorLabels(o)) > 0}
}

// changePeers brings a changed PeerAuthentication among those of its place. It tells at once of one that no workload
// gets, because of where it stands.
func (c *crossings) changePeers(ch objectChange, root string, tell func(at place, found []finding)) {
	if ch.Old != nil {
		c.peers.remove(peerPlaceOf(ch.Old), ch.Key)
	}
	if ch.Key.Namespace == root {
		tell(place{config.Key{Kind: config.PeerAuthentication}, "root/" + ch.Key.Name}, ignoredPeers(ch.New))
	}
	if ch.New != nil {
		c.peers.put(peerPlaceOf(ch.New), ch.Key, ch.New)
	}
}

// ignoredPeers finds that a PeerAuthentication of the root namespace is for some workloads, which is without effect;
// nil: there is none. See decide.
func ignoredPeers(o *config.Object) []finding {
	if o == nil || len(selectorLabels(o)) == 0 {
		return nil
	}
	text := fmt.Sprintf("has no effect, because %s is the root namespace, whose policies are for the whole mesh and not for some workloads: "+
		"write it into the namespace of the workloads, or remove the selector", o.Namespace)
	return []finding{complaint(o, feed.Error, "spec.selector", text, "root")}
}

// peerClashes finds PeerAuthentications that are for workloads which an older one is for too: only the oldest of
// a level counts. See decide.
func peerClashes(at peerPlace, members []*config.Object, root string) []finding {
	if at.workloads && at.namespace == root {
		return nil // told of each by itself
	}
	slices.SortFunc(members, olderFirst)
	var out []finding
	for i, o := range members {
		first := slices.IndexFunc(members[:i], func(older *config.Object) bool { return selectsAll(selectorLabels(older), selectorLabels(o)) })
		if first < 0 {
			continue
		}
		other, field := members[first], "spec"
		if at.workloads {
			field = "spec.selector"
		}
		text := fmt.Sprintf("has no effect, because %s (%s), which is for the same workloads, comes first, by age or by name: put what both say into one object",
			other.Key, placeIn(other))
		out = append(out, complaint(o, feed.Error, field, text, other.Key.String()))
	}
	return out
}
