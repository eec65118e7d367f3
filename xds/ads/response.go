package ads

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Response is one encoded discovery response.
type Response struct {
	TypeURL, Nonce string
	// Parts are the message, to be sent one after another. A part may be shared with other streams
	// and must not be changed.
	Parts  [][]byte
	change *change
}

// Size is the length of the message in bytes.
func (r *Response) Size() int {
	n := 0
	for _, p := range r.Parts {
		n += len(p)
	}
	return n
}

// Numbers of the fields of a DiscoveryResponse and a DeltaDiscoveryResponse.
const (
	fieldVersionInfo = 1
	fieldTypeURL     = 4
	fieldNonce       = 5
)

// encode makes a response of f.
func (s *Subscription) encode(f *pending) *Response {
	r := &Response{TypeURL: s.kind.TypeURL, Nonce: s.nonce(f.number), change: &f.change}
	if s.sotw && s.kind.Whole {
		s.encodeWhole(r)
	} else {
		s.encodeChange(r, &f.change)
	}
	b := make([]byte, 0, len(r.TypeURL)+len(r.Nonce)+48)
	if s.sotw { // the version says nothing: a later stream is sent everything
		b = protowire.AppendString(protowire.AppendTag(b, fieldVersionInfo, protowire.BytesType), r.Nonce)
	}
	b = protowire.AppendString(protowire.AppendTag(b, fieldTypeURL, protowire.BytesType), r.TypeURL)
	b = protowire.AppendString(protowire.AppendTag(b, fieldNonce, protowire.BytesType), r.Nonce)
	r.Parts = append(r.Parts, b)
	return r
}

// encodeChange adds a change to r. Over state of the world it has no removals.
func (s *Subscription) encodeChange(r *Response, c *change) {
	for _, d := range c {
		switch {
		case d == nil:
		case s.sotw:
			for _, it := range d.changed {
				r.Parts = append(r.Parts, it.StateEntry())
			}
		default:
			r.Parts = append(r.Parts, d.encoded(s.cache, s.To.Shared)...)
		}
	}
}
