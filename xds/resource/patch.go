package resource

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// Patch is a patch of an EnvoyFilter, or a TrafficExtension. Immutable; of one patch
// that is in use there is one pointer.
type Patch struct {
	// Object is the EnvoyFilter or the TrafficExtension.
	Object *config.Object
	// Field is the path of the patch within it.
	Field string
	// Spec is what the patch says.
	Spec proto.Message
}

// String names the patch to people.
func (p *Patch) String() string { return p.Object.Key.String() + " " + p.Field }

// PatchesSince returns the patches of a resource. Those come first that an earlier version of it,
// which may be nil, does not have, and changed is how many these are. The newer object is before the
// older one.
func (r *Resource) PatchesSince(had *Resource) (patches []*Patch, changed int) {
	isNew := func(p *Patch) bool {
		return had != nil && !slices.ContainsFunc(had.Patches, func(q *Patch) bool {
			return q.Object.Key == p.Object.Key && proto.Equal(q.Spec, p.Spec)
		})
	}
	var others []*Patch
	for _, p := range r.Patches {
		if isNew(p) {
			patches = append(patches, p)
		} else {
			others = append(others, p)
		}
	}
	newest := func(a, b *Patch) int { return b.Object.Created.Compare(a.Object.Created) }
	slices.SortStableFunc(patches, newest)
	slices.SortStableFunc(others, newest)
	return append(patches, others...), len(patches)
}

// withoutEffect returns a problem for each patch that changed nothing in any of the layers. Those of
// one TrafficExtension, which has one for clients and one for servers, count as one.
func withoutEffect(layers map[*Layer]bool) (out []feed.Problem) {
	type key struct {
		object *config.Object
		field  string
	}
	effects := map[key]bool{}
	for l := range layers {
		if l != nil {
			for p, effect := range l.Effects {
				k := key{p.Object, p.Field}
				effects[k] = effects[k] || effect
			}
		}
	}
	for k, effect := range effects {
		if !effect {
			out = append(out, feed.Problem{Severity: feed.Warning, Object: k.object.Key.String(), Field: k.field,
				File: k.object.Origin.File, Line: k.object.Origin.Line,
				Text: "the patch changes nothing on the connected proxies that it is for: compare its match and " +
					"value with \"ashorectl proxy-config\""})
		}
	}
	return out
}
