package ads

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Request is one discovery request of either protocol. A name is "*" for everything.
type Request struct {
	TypeURL string
	// Node is the encoded envoy.config.core.v3.Node, a part of the bytes that were read; nil: none.
	Node []byte
	// Version is the version_info of state of the world.
	Version string
	// Nonce is the response_nonce.
	Nonce string
	// Rejected is the error_detail, nil in an acknowledgement.
	Rejected *Rejection
	// Subscribe are the names to subscribe to; in state of the world, all names.
	Subscribe []string
	// Unsubscribe are the names to drop.
	Unsubscribe []string
	// Claims are the versions that the client has from an earlier stream, by name.
	Claims map[string]string

	size int // of the encoded request
}

// Renames reports whether the request subscribes to names, or drops some.
func (r *Request) Renames() bool { return len(r.Subscribe)+len(r.Unsubscribe) > 0 }

// Cost is about how much memory the request takes while it is handled, in bytes.
func (r *Request) Cost() int {
	return r.size + (len(r.Subscribe)+len(r.Unsubscribe)+len(r.Claims))*nameCost
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
func ReadRequest(raw []byte, sotw bool, limits Limits) (*Request, error) {
	limits = limits.withDefaults()
	f := &deltaFields
	if sotw {
		f = &stateFields
	}
	r := &Request{size: len(raw)}
	var tail string // raw from the first name on, as text: one copy for all names
	name := func(list *[]string, value []byte, at int) error {
		if len(*list) == limits.Names {
			return fmt.Errorf("a request for %s has more than %d resource names", r.TypeURL, limits.Names)
		}
		if tail == "" {
			tail = string(raw[at:])
		}
		at -= len(raw) - len(tail)
		*list = append(*list, tail[at:at+len(value)])
		return checkText("a resource name", value, limits)
	}
	err := eachField(raw, func(num protowire.Number, value []byte, at int) (err error) {
		switch num {
		case f.node:
			r.Node = value
		case f.typeURL:
			r.TypeURL, err = text("type_url", value, limits)
		case f.version:
			r.Version, err = text("version_info", value, limits)
		case f.nonce:
			r.Nonce, err = text("response_nonce", value, limits)
		case f.subscribe:
			err = name(&r.Subscribe, value, at)
		case f.unsubscribe:
			err = name(&r.Unsubscribe, value, at)
		case f.claims:
			err = r.claim(value, limits)
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
func (r *Request) claim(value []byte, limits Limits) error {
	if len(r.Claims) == limits.Names {
		return fmt.Errorf("a request for %s has more than %d resource versions", r.TypeURL, limits.Names)
	}
	var pair [2]string
	err := eachField(value, func(num protowire.Number, b []byte, _ int) (err error) {
		if num == 1 || num == 2 {
			pair[num-1], err = text("a resource name or version", b, limits)
		}
		return err
	})
	if r.Claims == nil {
		r.Claims = map[string]string{}
	}
	r.Claims[pair[0]] = pair[1]
	return err
}
