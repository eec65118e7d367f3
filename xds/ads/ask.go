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
