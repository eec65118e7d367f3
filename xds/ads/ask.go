package ads

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Ask is one discovery request as a client makes it.
type Ask struct {
	TypeURL string
	// Node is the encoded envoy.config.core.v3.Node, for the first request of a stream.
	Node []byte
	// Subscribe and Unsubscribe are names; "*" is everything.
	Subscribe, Unsubscribe []string
	// Claims are the versions that the client has, by name: for the first request of a type.
	Claims map[string]string
	// Version is the version_info of the last accepted response: for state of the world.
	Version string
	// Nonce is that of the response which is answered, "" for none, and Rejected why it is rejected.
	Nonce    string
	Rejected *Rejection
}

// Encode returns the DeltaDiscoveryRequest. Equal ones give equal bytes.
func (a *Ask) Encode() []byte { return a.encode(&deltaFields) }

// EncodeState returns the DiscoveryRequest of state of the world. Equal ones give equal bytes.
func (a *Ask) EncodeState() []byte { return a.encode(&stateFields) }

func (a *Ask) encode(f *fields) []byte {
	var b []byte
	field := func(num protowire.Number, value []byte) {
		if num != 0 && value != nil {
			b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), value)
		}
	}
	texts := func(num protowire.Number, values ...string) {
		for _, v := range values {
			field(num, []byte(v))
		}
	}
	field(f.node, a.Node)
	texts(f.typeURL, a.TypeURL)
	texts(f.subscribe, a.Subscribe...)
	texts(f.unsubscribe, a.Unsubscribe...)
	for _, name := range slices.Sorted(maps.Keys(a.Claims)) {
		pair := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		pair = protowire.AppendString(protowire.AppendTag(pair, 2, protowire.BytesType), a.Claims[name])
		field(f.claims, pair)
	}
	if a.Version != "" {
		texts(f.version, a.Version)
	}
	if a.Nonce != "" {
		texts(f.nonce, a.Nonce)
	}
	if a.Rejected != nil {
		field(f.rejected, a.Rejected.encode())
	}
	return b
}
