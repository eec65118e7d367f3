package ads

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/excerpt"
)

// ErrMalformed means that bytes are not a discovery request.
var ErrMalformed = errors.New("not a discovery request")

// eachField calls f for each field of an encoded message that holds bytes.
func eachField(raw []byte, f func(num protowire.Number, value []byte) error) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		}
		raw = raw[n:]
		var value []byte
		if typ == protowire.BytesType {
			value, n = protowire.ConsumeBytes(raw)
		} else {
			n = protowire.ConsumeFieldValue(num, typ, raw)
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
		}
		raw = raw[n:]
		if typ == protowire.BytesType {
			if err := f(num, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// text reads a string field.
func text(what string, value []byte) (string, error) {
	if err := checkText(what, value); err != nil {
		return "", err
	}
	return string(value), nil
}

// checkText returns an error if a string field is too long or not UTF-8.
func checkText(what string, value []byte) error {
	switch {
	case len(value) > maxText:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(value), maxText)
	case !utf8.Valid(value):
		return fmt.Errorf("%w: %s %q is not valid UTF-8", ErrMalformed, what, value)
	}
	return nil
}

// Rejection is a client's reason for rejecting a response, a google.rpc.Status.
type Rejection struct{ Message string }

// maxMessage is how much of a client's message is kept, in bytes.
const maxMessage = 4 << 10

// readRejection reads a google.rpc.Status.
func readRejection(value []byte) (*Rejection, error) {
	r := &Rejection{}
	err := eachField(value, func(num protowire.Number, b []byte) error {
		if num == 2 { // message
			r.Message = excerpt.Of(string(b), maxMessage)
		}
		return nil
	})
	return r, err
}
