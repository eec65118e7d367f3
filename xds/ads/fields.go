package ads

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed means that bytes are not a discovery request or response.
var ErrMalformed = errors.New("not a discovery message")

// eachField calls f for each field of an encoded message that holds bytes. at is where value
// begins in raw.
func eachField(raw []byte, f func(num protowire.Number, value []byte, at int) error) error {
	for at := 0; at < len(raw); {
		num, typ, n := protowire.ConsumeTag(raw[at:])
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		}
		at += n
		if n = protowire.ConsumeFieldValue(num, typ, raw[at:]); n < 0 {
			return fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
		}
		end := at + n
		if typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(raw[at:])
			if err := f(num, value, end-len(value)); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}

// text reads a string field.
func text(what string, value []byte, limits Limits) (string, error) {
	if err := checkText(what, value, limits); err != nil {
		return "", err
	}
	return string(value), nil
}

// checkText returns an error if a string field is too long or not UTF-8.
func checkText(what string, value []byte, limits Limits) error {
	switch {
	case len(value) > limits.NameBytes:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(value), limits.NameBytes)
	case !utf8.Valid(value):
		return fmt.Errorf("%w: %s %q is not valid UTF-8", ErrMalformed, what, value)
	}
	return nil
}

// Rejection is a client's reason for rejecting a response, a google.rpc.Status.
type Rejection struct {
	// Code is a google.rpc.Code. It is not read, only written.
	Code    int32
	Message string
}

// maxMessage is how much of a client's message is kept, in bytes.
const maxMessage = 4 << 10

// readRejection reads a google.rpc.Status.
func readRejection(value []byte) (*Rejection, error) {
	r := &Rejection{}
	err := eachField(value, func(num protowire.Number, b []byte, _ int) error {
		if num == statusMessage {
			r.Message = strings.ToValidUTF8(string(b[:min(len(b), maxMessage)]), "\uFFFD")
		}
		return nil
	})
	return r, err
}

// encode returns the google.rpc.Status.
func (r *Rejection) encode() []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, statusCode, protowire.VarintType), uint64(int64(r.Code)))
	return protowire.AppendString(protowire.AppendTag(b, statusMessage, protowire.BytesType), r.Message)
}

const statusCode, statusMessage = 1, 2
