package ads

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// StateAsk is one discovery request as a client makes it, of state of the world.
type StateAsk struct {
	TypeURL string
	// Node is the encoded envoy.config.core.v3.Node, for the first request of a stream.
	Node []byte
	// Version is the version_info of the last response that was accepted, "" for none.
	Version string
	// Names are asked for; none: everything.
	Names []string
	// Nonce is that of the response which is answered, "" for none, and Rejected why it is refused.
	Nonce    string
	Rejected *Rejection
}

// Encode lays it out as a DiscoveryRequest; equal ones give equal bytes.
func (a *StateAsk) Encode() []byte {
	var b []byte
	field := func(num protowire.Number, value []byte) {
		b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), value)
	}
	if a.Version != "" {
		field(1, []byte(a.Version))
	}
	if a.Node != nil {
		field(2, a.Node)
	}
	for _, name := range a.Names {
		field(3, []byte(name))
	}
	field(4, []byte(a.TypeURL))
	if a.Nonce != "" {
		field(5, []byte(a.Nonce))
	}
	if a.Rejected != nil {
		field(6, a.Rejected.encode())
	}
	return b
}

// encode lays it out as a google.rpc.Status.
func (r *Rejection) encode() []byte {
	var b []byte
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(int64(r.Code)))
	return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), r.Message)
}

// StateReply is one discovery response of state of the world as a client reads it. Its items have
// no names or versions of their own, and their bodies lie in the bytes that it was read from.
type StateReply struct {
	TypeURL, Nonce, Version string
	Items                   []Item
}

// Numbers of the fields of a DiscoveryResponse that a client reads.
const stateVersion, stateItems, stateTypeURL, stateNonce = 1, 2, 4, 5

// ReadStateReply reads an encoded DiscoveryResponse. Errors: ErrNotResponse, or what exceeds a
// limit; nothing of such a response may be used.
func ReadStateReply(raw []byte, limits Limits) (*StateReply, error) {
	limits = limits.withDefaults()
	r := &StateReply{}
	err := eachField(raw, func(num protowire.Number, value []byte) error {
		var err error
		switch num {
		case stateVersion:
			r.Version, err = text("version_info", value, limits)
		case stateTypeURL:
			r.TypeURL, err = text("type_url", value, limits)
		case stateNonce:
			r.Nonce, err = text("nonce", value, limits)
		case stateItems:
			if len(r.Items) == limits.Names {
				return fmt.Errorf("a response holds more than %d resources", limits.Names)
			}
			var it Item
			if err = it.body(value, limits); err == nil {
				r.Items = append(r.Items, it)
			}
		}
		return err
	})
	switch {
	case errors.Is(err, ErrMalformed):
		return nil, fmt.Errorf("%w: %w", ErrNotResponse, err)
	case err != nil:
		return nil, err
	case r.TypeURL == "":
		return nil, fmt.Errorf("%w: it has no type_url", ErrNotResponse)
	}
	return r, nil
}

// body reads an Any.
func (it *Item) body(raw []byte, limits Limits) error {
	return eachField(raw, func(num protowire.Number, value []byte) error {
		var err error
		switch num {
		case anyTypeURL:
			it.TypeURL, err = text("type_url of a resource", value, limits)
		case anyValue:
			it.Body = value
		}
		return err
	})
}
