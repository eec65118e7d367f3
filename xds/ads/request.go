package ads

import (
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed is the reason why bytes are not a discovery request.
var ErrMalformed = errors.New("not a discovery request")

// Rejection is why a client refused a response, in its own words.
type Rejection struct {
	Code    int32
	Message string
}

// Request is one discovery request, read in place: it is valid as long as the bytes that it was
// parsed from. Node is the encoded envoy.config.core.v3.Node, nil when there is none.
type Request struct {
	TypeURL string
	Node    []byte
	// Version is the version_info of state of the world.
	Version string
	// Nonce is the response_nonce.
	Nonce string
	// Rejected is the error_detail, nil in an acknowledgement.
	Rejected *Rejection

	raw                               []byte
	subscribe, unsubscribe, claims    protowire.Number // numbers of the fields, 0: the protocol has none
	subscribes, unsubscribes, claimed int              // how many of each there are
	sum                               checksum         // of the names that it subscribes to
}

// fields are the numbers of a request's fields in one of the two protocols.
type fields struct {
	node, typeURL, version, subscribe, unsubscribe, claims, nonce, rejected, locators,
	unlocators protowire.Number
}

// Reader reads the requests of one stream. Not safe for concurrent use.
//
// A client of state of the world repeats thousands of names with every acknowledgement, mostly in
// the same bytes. The reader recognises them, and looks at each name only once.
type Reader struct {
	fields fields // set once
	limits Limits // set once

	lists [8]nameList // the last long ones
	next  int         // where the next one goes
}

// nameList is what a run of bytes that hold names said.
type nameList struct {
	bytes, count int
	end, hash    uint64 // of its last minList bytes, of all
	sum          checksum
}

// begins says whether b begins with it.
func (l *nameList) begins(b []byte) bool {
	return l.bytes > 0 && l.bytes <= len(b) && maphash.Bytes(seed, b[l.bytes-minList:l.bytes]) == l.end &&
		maphash.Bytes(seed, b[:l.bytes]) == l.hash
}

// minList is how many bytes of names are worth remembering.
const minList = 512

// NewReader makes one for a stream. states says whether it speaks state of the world.
func NewReader(states bool, limits Limits) *Reader {
	rd := &Reader{limits: limits.withDefaults()}
	if states {
		rd.fields = fields{version: 1, node: 2, subscribe: 3, typeURL: 4, nonce: 5, rejected: 6, locators: 7}
	} else {
		rd.fields = fields{node: 1, typeURL: 2, subscribe: 3, unsubscribe: 4, claims: 5, nonce: 6, rejected: 7,
			locators: 8, unlocators: 9}
	}
	return rd
}

// Read reads an encoded DeltaDiscoveryRequest or DiscoveryRequest. Errors: ErrMalformed, or what
// exceeds a limit.
func (rd *Reader) Read(raw []byte) (*Request, error) {
	f := &rd.fields
	r := &Request{raw: raw, subscribe: f.subscribe, unsubscribe: f.unsubscribe, claims: f.claims}
	for rest := raw; len(rest) > 0; {
		if rest[0] == shortTag(f.subscribe) {
			read, err := rd.subscribes(r, rest)
			if err != nil {
				return nil, err
			}
			if read > 0 {
				rest = rest[read:]
				continue
			}
		}
		num, typ, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		}
		rest = rest[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, rest); n < 0 {
				return nil, fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
			}
			rest = rest[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(rest)
		if n < 0 {
			return nil, fmt.Errorf("%w: field %d: %w", ErrMalformed, num, protowire.ParseError(n))
		}
		rest = rest[n:]
		if err := r.field(num, value, rd.limits, f); err != nil {
			return nil, err
		}
	}
	if r.TypeURL == "" {
		return nil, fmt.Errorf("%w: it has no type_url", ErrMalformed)
	}
	if n := max(r.subscribes, r.unsubscribes, r.claimed); n > rd.limits.Names {
		return nil, fmt.Errorf("a request for %s holds %d resource names, at most %d are allowed", r.TypeURL, n,
			rd.limits.Names)
	}
	return r, nil
}

// subscribes takes in the names that the client subscribes to at the beginning of b, and returns
// how many bytes hold them. Only the first ones of a request are recognised: more than one list is
// nobody's habit, and looking for them everywhere would cost what a client likes.
func (rd *Reader) subscribes(r *Request, b []byte) (read int, err error) {
	for i := range rd.lists {
		if l := &rd.lists[i]; r.subscribes == 0 && l.begins(b) {
			r.subscribes += l.count
			r.sum.join(l.sum)
			return l.bytes, nil
		}
	}
	run := b[:runOf(b, rd.fields.subscribe)]
	var alone Request
	if err := alone.subscribing(run, rd.limits); err != nil {
		return 0, err
	}
	r.subscribes += alone.subscribes
	r.sum.join(alone.sum)
	if len(run) >= minList {
		rd.lists[rd.next] = nameList{bytes: len(run), count: alone.subscribes,
			end: maphash.Bytes(seed, run[len(run)-minList:]), hash: maphash.Bytes(seed, run), sum: alone.sum}
		rd.next = (rd.next + 1) % len(rd.lists)
	}
	return len(run), nil
}

// field takes in one field that holds bytes.
func (r *Request) field(num protowire.Number, value []byte, limits Limits, f *fields) error {
	var err error
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
		err = r.subscribeTo(value, limits)
	case f.unsubscribe:
		r.unsubscribes++
		err = checkName(value, limits)
	case f.claims:
		r.claimed++
		name, _, cerr := claim(value)
		if err = cerr; err == nil {
			err = checkName(name, limits)
		}
	case f.rejected:
		r.Rejected, err = rejection(value)
	case f.locators, f.unlocators:
		err = errors.New("resource locators are not supported: subscribe by resource names")
	}
	return err
}

// shortTag begins the values of a field of bytes with a number below 16.
func shortTag(field protowire.Number) byte { return byte(field)<<3 | byte(protowire.BytesType) }

// runOf is how many bytes at the beginning of b are values of that one field, with a number below
// 16 and values below 16 KiB, as names are; zero when the first field is another one.
func runOf(b []byte, field protowire.Number) int {
	tag, at := shortTag(field), 0
	for at+1 < len(b) && b[at] == tag {
		size, head := int(b[at+1]), 2
		if size >= 0x80 {
			if at+2 >= len(b) || b[at+2] >= 0x80 {
				break
			}
			size, head = size&0x7f|int(b[at+2])<<7, 3
		}
		if len(b)-at-head < size {
			break
		}
		at += head + size
	}
	return at
}

// subscribing takes in names that the client subscribes to; run is what runOf found.
func (r *Request) subscribing(run []byte, limits Limits) error {
	for len(run) > 0 {
		name, n := protowire.ConsumeBytes(run[1:])
		run = run[1+n:]
		if err := r.subscribeTo(name, limits); err != nil {
			return err
		}
	}
	return nil
}

// subscribeTo takes in one name that the client subscribes to.
func (r *Request) subscribeTo(name []byte, limits Limits) error {
	r.subscribes++
	if string(name) == star {
		r.sum.all = true
		return nil
	}
	r.sum.add(maphash.Bytes(seed, name))
	return checkName(name, limits)
}

// subscribed returns what the request subscribes to, nil for nothing.
func (r *Request) subscribed(in *interner) *Names {
	if n := in.lookup(r.sum); n != nil {
		return n
	}
	names, all := r.named(r.subscribe)
	return in.of(all, names)
}

// text reads a string field.
func text(what string, value []byte, limits Limits) (string, error) {
	if len(value) > limits.NameBytes {
		return "", fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(value), limits.NameBytes)
	}
	if !utf8.Valid(value) {
		return "", fmt.Errorf("%w: %s is not valid UTF-8", ErrMalformed, what)
	}
	return string(value), nil
}

// checkName says what is wrong with a resource name.
func checkName(name []byte, limits Limits) error {
	switch {
	case len(name) > limits.NameBytes:
		return fmt.Errorf("a resource name has %d bytes, at most %d are allowed", len(name), limits.NameBytes)
	case !utf8.Valid(name):
		return fmt.Errorf("%w: resource name %q is not valid UTF-8", ErrMalformed, name)
	}
	return nil
}

// claim reads one entry of initial_resource_versions.
func claim(value []byte) (name, version []byte, err error) {
	for len(value) > 0 {
		num, typ, n := protowire.ConsumeTag(value)
		if n < 0 {
			return nil, nil, fmt.Errorf("%w: initial_resource_versions: %w", ErrMalformed, protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, value[n:])
		if m < 0 {
			return nil, nil, fmt.Errorf("%w: initial_resource_versions: %w", ErrMalformed, protowire.ParseError(m))
		}
		if typ == protowire.BytesType {
			b, _ := protowire.ConsumeBytes(value[n:])
			switch num {
			case 1:
				name = b
			case 2:
				version = b
			}
		}
		value = value[n+m:]
	}
	return name, version, nil
}

// maxWords bounds what is kept of a client's error text, in bytes.
const maxWords = 4 << 10

// rejection reads a google.rpc.Status.
func rejection(value []byte) (*Rejection, error) {
	r := &Rejection{}
	for len(value) > 0 {
		num, typ, n := protowire.ConsumeTag(value)
		if n < 0 {
			return nil, fmt.Errorf("%w: error_detail: %w", ErrMalformed, protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, value[n:])
		if m < 0 {
			return nil, fmt.Errorf("%w: error_detail: %w", ErrMalformed, protowire.ParseError(m))
		}
		switch {
		case num == 1 && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value[n:])
			r.Code = int32(v)
		case num == 2 && typ == protowire.BytesType:
			b, _ := protowire.ConsumeBytes(value[n:])
			r.Message = toValid(b[:min(len(b), maxWords)])
		}
		value = value[n+m:]
	}
	return r, nil
}

// toValid is b as text, what is not text replaced.
func toValid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// names yields the values of one repeated field of the request, which parse has checked.
func (r *Request) names(field protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if field == 0 {
			return
		}
		for rest := r.raw; len(rest) > 0; {
			num, typ, n := protowire.ConsumeTag(rest)
			m := protowire.ConsumeFieldValue(num, typ, rest[n:])
			if num == field && typ == protowire.BytesType {
				b, _ := protowire.ConsumeBytes(rest[n:])
				if !yield(b) {
					return
				}
			}
			rest = rest[n+m:]
		}
	}
}

// Names are those that the request subscribes to. It is for requests that no Sub takes.
func (r *Request) Names() []string {
	var out []string
	for b := range r.names(r.subscribe) {
		out = append(out, string(b))
	}
	return out
}

// star is the name that stands for everything.
const star = "*"

// named yields the values of a repeated field without "*", and everything says whether "*" is
// there.
func (r *Request) named(field protowire.Number) (names iter.Seq[[]byte], everything bool) {
	for b := range r.names(field) {
		if string(b) == star {
			everything = true
			break
		}
	}
	if !everything {
		return r.names(field), false
	}
	return func(yield func([]byte) bool) {
		for b := range r.names(field) {
			if string(b) != star && !yield(b) {
				return
			}
		}
	}, true
}

// Claims yields the names and versions that the client says it has from an earlier stream.
func (r *Request) Claims() iter.Seq2[string, string] {
	return func(yield func(name, version string) bool) {
		for name, version := range r.versions() {
			if !yield(string(name), string(version)) {
				return
			}
		}
	}
}

// versions yields what the client says it has from an earlier stream.
func (r *Request) versions() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, version []byte) bool) {
		for b := range r.names(r.claims) {
			name, version, err := claim(b)
			if err == nil && !yield(name, version) {
				return
			}
		}
	}
}
