package push

import (
	"github.com/ashore-mesh/ashore/registry"
)

// Supplied is a service as it is made of what sources say of it, and of what they say.
type Supplied struct {
	registry.Instances
	// Parts are what each source says, the deciding one first; never empty.
	Parts []Part
}

// Part is what one source says of a service.
type Part struct {
	registry.Instances
	// Source is its name: that of the Deriver for what is made of configuration.
	Source string
	// Used counts those of its endpoints that are in use. Among those of the service they stand in the order of parts.
	Used int
}

// Supplied tells of whom the service of a key is made; false: no source has it. It is what the sources said last, which
// the next context will be built from. Safe for concurrent use.
func (a *Assembler) Supplied(k registry.Key) (Supplied, bool) {
	a.mu.Lock()
	supplies := a.instances.Supplies(k)
	for i := range supplies {
		supplies[i].Source = a.moves.source(supplies[i].Source)
	}
	a.mu.Unlock()
	if len(supplies) == 0 {
		return Supplied{}, false
	}
	items := make([]registry.Instances, len(supplies))
	for i, s := range supplies {
		items[i] = s.Item
	}
	merged, _ := a.cfg.Merging.Merge(items)
	out := Supplied{Instances: merged, Parts: make([]Part, len(supplies))}
	for i, used := range a.cfg.Merging.Used(items) {
		out.Parts[i] = Part{Instances: items[i], Source: supplies[i].Source, Used: used}
		if a.cfg.derives(out.Parts[i].Source) {
			out.Parts[i].Source = a.cfg.Derive.Name()
		}
	}
	return out, true
}
