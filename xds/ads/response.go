package ads

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Response is one encoded discovery response.
type Response struct {
	TypeURL, Nonce string
	// Parts are the message, to be sent one after another; a part may be shared with other streams
	// and must not be changed.
	Parts [][]byte
	// Resources and Removed count what it holds.
	Resources, Removed int

	plan   *plan
	spoilt bool // see flight
}

// Changed yields the resources that are new or different for the client.
func (r *Response) Changed() iter.Seq[*resource.Resource] { return r.plan.sent() }

// Size is the length of the message in bytes.
func (r *Response) Size() int {
	n := 0
	for _, p := range r.Parts {
		n += len(p)
	}
	return n
}

// Numbers of the fields that end a response; most are equal in both protocols.
const (
	fieldVersion = 1 // DiscoveryResponse.version_info
	fieldTypeURL = 4
	fieldNonce   = 5
)

// respond encodes a plan. group is p itself when it repeats a part of a rejected response.
func (s *Subscription) respond(to resource.Set, p, group *plan) *Response {
	s.count++
	r := &Response{TypeURL: s.kind.TypeURL, Nonce: s.nonce(s.count), plan: p}
	if s.states && s.kind.Whole {
		s.whole(r, to, group)
	} else {
		r.Resources, r.Removed = p.changes(), p.removals()
		if p.shared != nil {
			r.Parts = append(r.Parts, p.shared.encoded(s.cache, to.Shared, s.states)...)
		}
		removed := p.removed
		if s.states {
			removed, r.Removed = nil, 0
		}
		r.Parts = append(r.Parts, s.cache.encode(nil, p.changed, removed, s.states).parts...)
	}
	r.Parts = append(r.Parts, s.tail(r.Nonce, to))
	return r
}

// tail are the fields that differ from stream to stream.
func (s *Subscription) tail(nonce string, to resource.Set) []byte {
	b := make([]byte, 0, len(s.kind.TypeURL)+len(nonce)+48)
	if s.states {
		s.version = s.cache.version(to, s.names)
		version := *s.version
		if len(s.exceptions) > 0 {
			// not what the name of the content says: nobody may recognise it on a later stream
			version += "~" + nonce
			s.version = &version
		}
		b = protowire.AppendString(protowire.AppendTag(b, fieldVersion, protowire.BytesType), version)
	}
	b = protowire.AppendString(protowire.AppendTag(b, fieldTypeURL, protowire.BytesType), s.kind.TypeURL)
	return protowire.AppendString(protowire.AppendTag(b, fieldNonce, protowire.BytesType), nonce)
}

// whole makes r hold everything that the client is to have of to. What is refused, queued or kept
// stands in it as the client has it, because what is missing is removed; group, which may be nil,
// is exempt.
func (s *Subscription) whole(r *Response, to resource.Set, group *plan) {
	full := s.cache.diff(diffKey{nil, to.Shared, nil, s.names, s.kind})
	if len(s.exceptions) == 0 && !s.overlaps(full, to.Own) {
		if !full.empty() {
			r.Resources = len(full.changed)
			r.Parts = append(r.Parts, full.encoded(s.cache, to.Shared, true)...)
		}
		var own []*resource.Resource
		for _, o := range to.Own.Items() {
			if s.names.Covers(o.Name) {
				own = append(own, o)
			}
		}
		r.Resources += len(own)
		r.Parts = append(r.Parts, s.cache.encode(nil, own, nil, true).parts...)
		return
	}
	content, spoilt := s.content(to, group)
	r.spoilt = spoilt
	r.Resources = len(content)
	r.Parts = append(r.Parts, s.cache.encode(nil, content, nil, true).parts...)
}

// overlaps says whether a name of own stands in d too.
func (s *Subscription) overlaps(d *diff, own *resource.Layer) bool {
	for _, o := range own.Items() {
		if r, _ := d.find(o.Name); r != nil {
			return true
		}
	}
	return false
}

// content is a whole set with its exceptions. A group is sent beside what the client has; all else
// that is new waits, so that a rejection is about the group.
func (s *Subscription) content(to resource.Set, group *plan) (out []*resource.Resource, spoilt bool) {
	base, covered := to, s.names
	if group != nil {
		base, covered = s.have, s.known
	}
	for r := range base.All() {
		if covered.Covers(r.Name) && s.names.Covers(r.Name) && s.exceptions[r.Name] == nil {
			out = append(out, r)
		}
	}
	for _, name := range s.exceptional() {
		next := to.Get(name)
		stands := s.stands(name, next, group)
		if stands != nil {
			out = append(out, stands)
		}
		e := s.exceptions[name]
		spoilt = spoilt || stands != nil && stands != e.old && !group.speaks(name) &&
			(e.standing == queued || e.standing == tainted || e.standing == refused && next.Version() == e.version)
	}
	return out, spoilt
}

// stands is how an exceptional name stands in a whole set, nil when it is left out; next is how it
// is configured.
func (s *Subscription) stands(name string, next *resource.Resource, group *plan) *resource.Resource {
	e := s.exceptions[name]
	switch {
	case group.speaks(name):
		return next
	case e.standing == tainted, e.standing == unknown && group == nil:
		return next
	case e.standing == refused && group == nil && next != nil && next.Version() != e.version:
		return next
	case e.old == nil && !e.oldKnown:
		return next // to leave it out could remove what the client has
	case next == nil && e.standing != kept && e.standing != queued:
		return nil
	}
	return e.old
}

// speaks says whether a plan, which may be nil, speaks of name.
func (p *plan) speaks(name string) bool {
	if p == nil {
		return false
	}
	for n := range p.all() {
		if n == name {
			return true
		}
	}
	return false
}

// eachOf yields the resources of a flight.
func eachOf(f *flight) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) { eachSent(f.shared, f.changed, yield) }
}

// allRemoved are the names that a flight removes.
func (f *flight) allRemoved() []string {
	if f.shared == nil {
		return f.removed
	}
	return append(append([]string(nil), f.shared.removed...), f.removed...)
}
