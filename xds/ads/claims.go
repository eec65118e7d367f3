package ads

import (
	"slices"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// claims compares what a client says it has with what it should have.
type claims struct {
	names  *Names
	to     resource.Set
	wanted int                 // how many resources it should have
	shared []uint64            // bit i: it has resource i of the shared layer as it should
	others map[string]struct{} // names outside the shared layer that it has as it should, or that are stale
	stale  []string            // names that it has and should not
	empty  func(name string) *resource.Resource
}

func newClaims(kind *Kind, names *Names, to resource.Set) *claims {
	return &claims{names: names, to: to, empty: kind.Empty, shared: make([]uint64, len(to.Shared.Items())/64+1)}
}

// take takes in one name and its version.
func (c *claims) take(name, version string) {
	if !c.names.Covers(name) {
		return
	}
	r := c.to.Get(name)
	switch {
	case r != nil && r.Version() == version:
		c.mark(name, true)
	case r != nil:
	default:
		if _, twice := c.others[name]; twice {
			return
		}
		if c.empty == nil || c.empty(name).Version() != version {
			c.stale = append(c.stale, name)
		}
		c.other(name)
	}
}

// doubt takes back what was said about name. The client may have it even if it does not say so.
func (c *claims) doubt(name string) {
	if c.to.Get(name) != nil {
		c.mark(name, false)
		return
	}
	if c.names.Covers(name) && !slices.Contains(c.stale, name) {
		c.stale = append(c.stale, name)
		c.other(name)
	}
}

// mark notes whether the client has name as it should.
func (c *claims) mark(name string, has bool) {
	i, ok := search(c.to.Shared.Items(), name)
	switch {
	case ok && has:
		c.shared[i/64] |= 1 << (i % 64)
	case ok:
		c.shared[i/64] &^= 1 << (i % 64)
	case has:
		c.other(name)
	default:
		delete(c.others, name)
	}
}

// other notes a name outside the shared layer of which nothing is missing.
func (c *claims) other(name string) {
	if c.others == nil {
		c.others = map[string]struct{}{}
	}
	c.others[name] = struct{}{}
}

// missing are the names that the client does not have as it should, sorted.
func (c *claims) missing(names *Names, to resource.Set) []string {
	var out []string
	for i, r := range to.Shared.Items() {
		if !names.Covers(r.Name) {
			continue
		}
		c.wanted++
		if c.shared[i/64]&(1<<(i%64)) == 0 {
			out = append(out, r.Name)
		}
	}
	for _, r := range to.Own.Items() {
		if !names.Covers(r.Name) || to.Shared.Get(r.Name) != nil {
			continue
		}
		c.wanted++
		if _, ok := c.others[r.Name]; !ok {
			out = append(out, r.Name)
		}
	}
	// a name of which nothing is known is answered as such
	for _, name := range names.List() {
		if _, ok := c.others[name]; !ok && to.Get(name) == nil {
			out = append(out, name)
		}
	}
	return out
}
