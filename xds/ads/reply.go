package ads

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrNotResponse is the reason why bytes are not a discovery response.
var ErrNotResponse = errors.New("not a discovery response")

// Item is one resource of a Reply. Body and Raw lie in the bytes that the reply was read from.
type Item struct {
	Name, Version string
	// TypeURL is that of the resource itself, and Body its encoded message.
	TypeURL string
	Body    []byte
	// Raw is the whole encoded Resource, the fields above included.
	Raw []byte
}

// Reply is one discovery response as a client reads it.
type Reply struct {
	TypeURL, Nonce string
	Items          []Item
	// Removed are the names that do not exist, or no more.
	Removed []string
}

// Encode lays it out as a DeltaDiscoveryResponse. Of an item only Raw counts.
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

// Numbers of the fields of a DeltaDiscoveryResponse, of its Resource and of an Any that a client
// reads.
const (
	replyItems, replyTypeURL, replyNonce, replyRemoved = 2, 4, 5, 6
	itemVersion, itemBody, itemName                    = 1, 2, 3
	anyTypeURL, anyValue                               = 1, 2
)

// ReadReply reads an encoded DeltaDiscoveryResponse. The names are copied, the bodies are not.
// Errors: ErrNotResponse, or what exceeds a limit; nothing of such a response may be used.
func ReadReply(raw []byte, limits Limits) (*Reply, error) {
	limits = limits.withDefaults()
	r := &Reply{}
	err := eachField(raw, func(num protowire.Number, value []byte) error {
		var err error
		switch num {
		case replyTypeURL:
			r.TypeURL, err = text("type_url", value, limits)
		case replyNonce:
			r.Nonce, err = text("nonce", value, limits)
		case replyRemoved, replyItems:
			return r.resource(num, value, limits)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case r.TypeURL == "":
		return nil, fmt.Errorf("%w: it has no type_url", ErrNotResponse)
	case r.Nonce == "":
		return nil, fmt.Errorf("%w: it has no nonce (type %s)", ErrNotResponse, r.TypeURL)
	}
	return r, nil
}

// resource takes in a resource that there is, or one that is gone. The limit holds before there is
// room for too many.
func (r *Reply) resource(num protowire.Number, value []byte, limits Limits) error {
	if len(r.Items)+len(r.Removed) == limits.Names {
		return fmt.Errorf("a response holds more than %d resources", limits.Names)
	}
	if num == replyItems {
		it, err := readItem(value, limits)
		r.Items = append(r.Items, it)
		return err
	}
	if err := checkName(value, limits); err != nil {
		return err
	}
	r.Removed = append(r.Removed, string(value))
	return nil
}

// readItem reads one Resource of a response.
func readItem(raw []byte, limits Limits) (Item, error) {
	it := Item{Raw: raw}
	err := eachField(raw, func(num protowire.Number, value []byte) error {
		switch num {
		case itemName:
			if err := checkName(value, limits); err != nil {
				return err
			}
			it.Name = string(value)
		case itemVersion:
			var err error
			it.Version, err = text("version", value, limits)
			return err
		case itemBody:
			return it.body(value, limits)
		}
		return nil
	})
	if err == nil && !utf8.ValidString(it.TypeURL) {
		err = fmt.Errorf("%w: the type of resource %q is not valid UTF-8", ErrNotResponse, it.Name)
	}
	return it, err
}

// eachField calls f for each field of a message that holds bytes.
func eachField(raw []byte, f func(num protowire.Number, value []byte) error) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrNotResponse, protowire.ParseError(n))
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(num, typ, raw); n < 0 {
			return fmt.Errorf("%w: field %d: %w", ErrNotResponse, num, protowire.ParseError(n))
		}
		if typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(raw)
			if err := f(num, value); err != nil {
				return err
			}
		}
		raw = raw[n:]
	}
	return nil
}
