package ads

import (
	"cmp"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Request is one discovery request of either protocol. It is valid as long as the bytes that it was
// read from. A name is "*" for everything.
type Request struct {
	TypeURL string
	// Node is the encoded envoy.config.core.v3.Node, a part of these bytes; nil: none.
	Node []byte
	// Version is the version_info of state of the world.
	Version string
	// Nonce is the response_nonce.
	Nonce string
	// Rejected is the error_detail, nil in an acknowledgement.
	Rejected *Rejection
	// Unsubscribe are the names to drop.
	Unsubscribe []string
	// Claims are the versions that the client has from an earlier stream, by name.
	Claims map[string]string

	raw        []byte
	fields     *fields
	subscribed namesKey // of the names to subscribe to
	count      int      // of these names
}

// Subscribe returns the names to subscribe to; in state of the world, all names. They are read only
// when they are needed: each acknowledgement of state of the world repeats thousands.
func (r *Request) Subscribe() []string {
	names := make([]string, 0, r.count)
	_ = eachField(r.raw, func(num protowire.Number, value []byte) error { // it was read before
		if num == r.fields.subscribe {
			names = append(names, string(value))
		}
		return nil
	})
	return names
}

// Cost is about how much memory the request takes while it is handled, in bytes.
func (r *Request) Cost() int {
	return len(r.raw) + (r.count+len(r.Unsubscribe)+len(r.Claims))*nameCost
}

// fields are the numbers of a request's fields in one of the two protocols; zero: it has none.
type fields struct {
	node, typeURL, version, subscribe, unsubscribe, claims, nonce, rejected, locators, unlocators protowire.Number
}

var (
	deltaFields = fields{node: 1, typeURL: 2, subscribe: 3, unsubscribe: 4, claims: 5, nonce: 6, rejected: 7,
		locators: 8, unlocators: 9}
	stateFields = fields{version: 1, node: 2, subscribe: 3, typeURL: 4, nonce: 5, rejected: 6, locators: 7}
)

// ReadRequest reads an encoded DeltaDiscoveryRequest, or a DiscoveryRequest for state of the world.
// Errors: ErrMalformed, or the limit that it exceeds.
func ReadRequest(raw []byte, sotw bool) (*Request, error) {
	f := &deltaFields
	if sotw {
		f = &stateFields
	}
	r := &Request{raw: raw, fields: f}
	tooMany := func(n int) error {
		if n < maxNames {
			return nil
		}
		return fmt.Errorf("a request for %s has more than %d resource names", r.TypeURL, maxNames)
	}
	err := eachField(raw, func(num protowire.Number, value []byte) (err error) {
		switch num {
		case f.node:
			r.Node = value
		case f.typeURL:
			r.TypeURL, err = text("type_url", value)
		case f.version:
			r.Version, err = text("version_info", value)
		case f.nonce:
			r.Nonce, err = text("response_nonce", value)
		case f.subscribe:
			r.subscribed.add(value)
			err = cmp.Or(tooMany(r.count), checkText("a resource name", value))
			r.count++
		case f.unsubscribe:
			r.Unsubscribe = append(r.Unsubscribe, string(value))
			err = cmp.Or(tooMany(len(r.Unsubscribe)-1), checkText("a resource name", value))
		case f.claims:
			err = r.claim(value)
		case f.rejected:
			r.Rejected, err = readRejection(value)
		case f.locators, f.unlocators:
			err = errors.New("resource locators are not supported: subscribe by resource names")
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case r.TypeURL == "":
		return nil, fmt.Errorf("%w: it has no type_url", ErrMalformed)
	}
	return r, nil
}

// claim reads one entry of initial_resource_versions.
func (r *Request) claim(value []byte) error {
	if len(r.Claims) == maxNames {
		return fmt.Errorf("a request for %s has more than %d resource versions", r.TypeURL, maxNames)
	}
	var pair [2]string
	err := eachField(value, func(num protowire.Number, b []byte) (err error) {
		if num == 1 || num == 2 {
			pair[num-1], err = text("a resource name or version", b)
		}
		return err
	})
	if r.Claims == nil {
		r.Claims = map[string]string{}
	}
	r.Claims[pair[0]] = pair[1]
	return err
}
