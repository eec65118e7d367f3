package ads

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Item is one resource of a Reply. Body and Raw are parts of the bytes that the reply was read
// from.
type Item struct {
	// Name and Version are empty in state of the world.
	Name, Version string
	// TypeURL is that of the resource itself, and Body its encoded message.
	TypeURL string
	Body    []byte
	// Raw is the whole encoded Resource, the fields above included; nil in state of the world.
	Raw []byte
}

// Reply is one discovery response as a client reads it.
type Reply struct {
	TypeURL, Nonce string
	// Version is the version_info of state of the world.
	Version string
	Items   []Item
	// Removed are the names that do not exist, or no longer exist.
	Removed []string
}

// Encode returns the DeltaDiscoveryResponse. Of an item only Raw counts.
func (r *Reply) Encode() []byte {
	size := len(r.TypeURL) + len(r.Nonce) + 16
	for i := range r.Items {
		size += len(r.Items[i].Raw) + 8
	}
	b := make([]byte, 0, size)
	for i := range r.Items {
		b = protowire.AppendBytes(protowire.AppendTag(b, replyItems, protowire.BytesType), r.Items[i].Raw)
	}
	b = protowire.AppendString(protowire.AppendTag(b, replyTypeURL, protowire.BytesType), r.TypeURL)
	b = protowire.AppendString(protowire.AppendTag(b, replyNonce, protowire.BytesType), r.Nonce)
	for _, name := range r.Removed {
		b = protowire.AppendString(protowire.AppendTag(b, replyRemoved, protowire.BytesType), name)
	}
	return b
}

// Numbers of the fields of a DeltaDiscoveryResponse, which a DiscoveryResponse shares but for the
// removals, and of a Resource and an Any.
const (
	replyVersion, replyItems, replyTypeURL, replyNonce, replyRemoved = 1, 2, 4, 5, 6

	itemVersion, itemBody, itemName = 1, 2, 3
	anyTypeURL, anyValue            = 1, 2
)

// ReadReply reads an encoded DeltaDiscoveryResponse, or a DiscoveryResponse for state of the world.
// It copies the names, not the bodies. Errors: ErrMalformed, or the limit that it exceeds; nothing
// of such a response may be used.
func ReadReply(raw []byte, sotw bool) (*Reply, error) {
	r := &Reply{}
	err := eachField(raw, func(num protowire.Number, value []byte) (err error) {
		removed := num == replyRemoved && !sotw // control_plane in state of the world
		if (num == replyItems || removed) && len(r.Items)+len(r.Removed) == maxNames {
			return fmt.Errorf("a response has more than %d resources", maxNames)
		}
		switch num {
		case replyTypeURL:
			r.TypeURL, err = text("type_url", value)
		case replyNonce:
			r.Nonce, err = text("nonce", value)
		case replyVersion: // system_version_info, for people, in the incremental protocol
			if sotw {
				r.Version, err = text("version_info", value)
			}
		case replyRemoved:
			var name string
			if removed {
				name, err = text("a resource name", value)
				r.Removed = append(r.Removed, name)
			}
		case replyItems:
			var it Item
			if sotw {
				err = it.body(value)
			} else {
				err = it.read(value)
			}
			r.Items = append(r.Items, it)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case r.TypeURL == "":
		return nil, fmt.Errorf("%w: it has no type_url", ErrMalformed)
	case r.Nonce == "" && !sotw:
		return nil, fmt.Errorf("%w: it has no nonce (type %s)", ErrMalformed, r.TypeURL)
	}
	return r, nil
}

// read reads one Resource of a response.
func (it *Item) read(raw []byte) error {
	it.Raw = raw
	return eachField(raw, func(num protowire.Number, value []byte) (err error) {
		switch num {
		case itemName:
			it.Name, err = text("a resource name", value)
		case itemVersion:
			it.Version, err = text("version", value)
		case itemBody:
			err = it.body(value)
		}
		return err
	})
}

// body reads an Any.
func (it *Item) body(raw []byte) error {
	return eachField(raw, func(num protowire.Number, value []byte) (err error) {
		switch num {
		case anyTypeURL:
			it.TypeURL, err = text("type_url of a resource", value)
		case anyValue:
			it.Body = value
		}
		return err
	})
}
