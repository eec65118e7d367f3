package ads

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Ask is one discovery request as a client makes it, of the incremental protocol.
type Ask struct {
	TypeURL string
	// Node is the encoded envoy.config.core.v3.Node, for the first request of a stream.
	Node []byte
	// Subscribe and Unsubscribe are names; "*" is everything.
	Subscribe, Unsubscribe []string
	// Claims are the versions that the client has, by name: for the first request of a type.
	Claims map[string]string
	// Nonce is that of the response which is answered, "" for none, and Rejected why it is refused.
	Nonce    string
	Rejected *Rejection
}

// Encode lays it out as a DeltaDiscoveryRequest; equal ones give equal bytes.
func (a *Ask) Encode() []byte {
	var b []byte
	field := func(num protowire.Number, value []byte) {
		b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), value)
	}
	if a.Node != nil {
		field(1, a.Node)
	}
	field(2, []byte(a.TypeURL))
	for _, name := range a.Subscribe {
		field(3, []byte(name))
	}
	for _, name := range a.Unsubscribe {
		field(4, []byte(name))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Claims)) {
		var pair []byte
		pair = protowire.AppendString(protowire.AppendTag(pair, 1, protowire.BytesType), name)
		pair = protowire.AppendString(protowire.AppendTag(pair, 2, protowire.BytesType), a.Claims[name])
		field(5, pair)
	}
	if a.Nonce != "" {
		field(6, []byte(a.Nonce))
	}
	if a.Rejected != nil {
		field(7, a.Rejected.encode())
	}
	return b
}

// Interest is one resource type on one stream of the incremental protocol, from the client's end: what it asks for and
// what it says of the responses. It holds no resources. Not safe for concurrent use.
//
// Everything that is to be said waits until Next is called. Responses are answered in the order in which they came.
type Interest struct {
	typeURL string // set once

	started          bool
	changed          bool                // the server may not know yet what is wanted
	all, toldAll     bool                // everything is wanted; the server knows
	names, toldNames map[string]struct{} // wanted by name; what the server knows of that
	again            map[string]struct{} // names to ask for once more
	claims           map[string]string   // for the first request

	open    []string // nonces that are not answered yet, oldest first
	answers []Ask    // to be said, oldest first
}

// NewInterest makes one for a new stream; claims are the versions that the client has from an earlier one, by name.
func NewInterest(typeURL string, claims map[string]string) *Interest {
	return &Interest{typeURL: typeURL, claims: claims, toldNames: map[string]struct{}{}}
}

// TypeURL is the type that it is about.
func (i *Interest) TypeURL() string { return i.typeURL }

// Want says what the client wants from now on: everything or not, and these names. What is wanted already is not asked
// for again. The map is kept, and may be changed until the next call if that follows.
func (i *Interest) Want(all bool, names map[string]struct{}) {
	i.all, i.names, i.changed = all, names, true
}

// Again asks for a name once more although it was answered: the server sends what there is of it. The name counts as
// wanted by name, beside everything, until the stream ends or Want says otherwise.
func (i *Interest) Again(name string) {
	if i.again == nil {
		i.again = map[string]struct{}{}
	}
	i.again[name] = struct{}{}
}

// Take notes that a response came; Answer has to follow.
func (i *Interest) Take(r *Reply) { i.open = append(i.open, r.Nonce) }

// Answer accepts the oldest response that is not answered yet, or refuses it with words.
func (i *Interest) Answer(rejected *Rejection) {
	if len(i.open) == 0 {
		return
	}
	i.answers = append(i.answers, Ask{TypeURL: i.typeURL, Nonce: i.open[0], Rejected: rejected})
	i.open = i.open[1:]
}

// Next returns the next request, or nil: there is nothing to say.
func (i *Interest) Next() *Ask {
	if i.started && len(i.answers) > 0 {
		a := i.answers[0]
		i.answers = i.answers[1:]
		return &a
	}
	if !i.changed && len(i.again) == 0 {
		return nil
	}
	a := &Ask{TypeURL: i.typeURL}
	a.Subscribe, a.Unsubscribe = i.difference()
	i.changed, i.again = false, nil
	if len(a.Subscribe)+len(a.Unsubscribe) == 0 {
		return nil
	}
	if !i.started {
		a.Claims, i.claims, i.started = i.claims, nil, true
	}
	return a
}

// difference is what the server does not know of what is wanted; then it does.
func (i *Interest) difference() (add, drop []string) {
	for name := range i.names {
		if _, ok := i.toldNames[name]; !ok {
			add = append(add, name)
		}
	}
	for name := range i.toldNames {
		if _, ok := i.names[name]; !ok {
			drop = append(drop, name)
		}
	}
	for name := range i.again {
		if !slices.Contains(add, name) {
			add = append(add, name)
		}
	}
	for _, name := range add {
		i.toldNames[name] = struct{}{}
	}
	for _, name := range drop {
		delete(i.toldNames, name)
	}
	slices.Sort(add)
	slices.Sort(drop)
	switch {
	case i.all && !i.toldAll:
		add = append([]string{star}, add...)
	case !i.all && i.toldAll:
		drop = append([]string{star}, drop...)
	}
	i.toldAll = i.all
	return add, drop
}

// EncodeState lays out a DiscoveryRequest of state of the world that subscribes to names.
func EncodeState(typeURL string, names []string, nonce, version string) []byte {
	var b []byte
	field := func(num protowire.Number, value string) {
		b = protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), value)
	}
	field(1, version)
	for _, name := range names {
		field(3, name)
	}
	field(4, typeURL)
	field(5, nonce)
	return b
}
