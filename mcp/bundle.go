package mcp

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// bundle is a Resources message as it came. What it holds is not decoded: one that is known by its bytes need not be,
// and of one that is made for it the decoding costs a hundred times its size.
type bundle struct {
	version, collection, nonce string
	items                      [][]byte
	removed                    []string
	incremental                bool
}

// The fields of Resources. Source: istio.mcp.v1alpha1, legacypb/mcp.proto.
const (
	fieldVersion     = 1
	fieldCollection  = 2
	fieldResources   = 3
	fieldRemoved     = 4
	fieldNonce       = 5
	fieldIncremental = 6
)

// maxText bounds the name of a collection or of a resource, a version and a nonce, in bytes.
const maxText = 8 << 10

// errNotResources says that bytes are no Resources.
var errNotResources = errors.New("it is no message of the protocol")

// readBundle reads a message that may name most resources. The items are parts of raw.
func readBundle(raw []byte, most int) (*bundle, error) {
	r := &bundle{}
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, fmt.Errorf("%w: %w", errNotResources, protowire.ParseError(n))
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(number, kind, raw); n < 0 {
			return nil, fmt.Errorf("%w: %w", errNotResources, protowire.ParseError(n))
		}
		if err := r.field(number, kind, raw[:n]); err != nil {
			return nil, err
		}
		if len(r.items)+len(r.removed) > most {
			return nil, fmt.Errorf("it names more than %d resources (maxObjects)", most)
		}
		raw = raw[n:]
	}
	return r, nil
}

// field takes in the value of one field; one that is not known is left out.
func (r *bundle) field(number protowire.Number, kind protowire.Type, value []byte) error {
	if number == fieldIncremental && kind == protowire.VarintType {
		v, _ := protowire.ConsumeVarint(value)
		r.incremental = protowire.DecodeBool(v)
	}
	if kind != protowire.BytesType {
		return nil
	}
	value, _ = protowire.ConsumeBytes(value)
	switch number {
	case fieldResources:
		r.items = append(r.items, value)
		return nil
	case fieldVersion:
		r.version = string(value)
	case fieldCollection:
		r.collection = string(value)
	case fieldRemoved:
		r.removed = append(r.removed, string(value))
	case fieldNonce:
		r.nonce = string(value)
	default:
		return nil
	}
	switch {
	case len(value) > maxText:
		return fmt.Errorf("%w: field %d has %d bytes, more than %d", errNotResources, number, len(value), maxText)
	case !utf8.Valid(value):
		return fmt.Errorf("%w: field %d is not valid UTF-8", errNotResources, number)
	}
	return nil
}
