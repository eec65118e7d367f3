package ads

import (
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// Item is one resource of a Reply.
type Item struct {
	// Name and Version are empty in state of the world.
	Name, Version string
	// TypeURL is that of the resource itself, and Body its encoded message.
	TypeURL string
	Body    []byte
	// Raw is the whole encoded Resource, the fields above included; nil in state of the world.
	Raw []byte
}

// Reply is one discovery response as a client reads it.
type Reply struct {
	TypeURL, Nonce string
	// Version is the version_info of state of the world.
	Version string
	Items   []Item
	// Removed are the names that do not exist, or no longer exist.
	Removed []string
}

// fieldResources is DeltaDiscoveryResponse.resources.
const fieldResources = 2

// Encode returns the DeltaDiscoveryResponse. Of an item only Raw counts.
func (r *Reply) Encode() []byte {
	b := resource.Encode(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.TypeURL, Nonce: r.Nonce,
		RemovedResources: r.Removed})
	for i := range r.Items {
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldResources, protowire.BytesType), r.Items[i].Raw)
	}
	return b
}

// ReadReply reads an encoded DeltaDiscoveryResponse, or a DiscoveryResponse for state of the world.
// Errors: ErrMalformed; nothing of such a response may be used.
func ReadReply(raw []byte, sotw bool) (*Reply, error) {
	read := readReply
	if sotw {
		read = readStateReply
	}
	r, err := read(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	case r.TypeURL == "":
		return nil, fmt.Errorf("%w: it has no type_url", ErrMalformed)
	case r.Nonce == "" && !sotw:
		return nil, fmt.Errorf("%w: it has no nonce (type %s)", ErrMalformed, r.TypeURL)
	}
	return r, nil
}

func readReply(raw []byte) (*Reply, error) {
	var m discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	r := &Reply{TypeURL: m.TypeUrl, Nonce: m.Nonce, Removed: m.RemovedResources}
	for _, it := range m.Resources {
		r.Items = append(r.Items, Item{Name: it.Name, Version: it.Version, TypeURL: it.Resource.GetTypeUrl(),
			Body: it.Resource.GetValue(), Raw: resource.Encode(it)})
	}
	return r, nil
}

func readStateReply(raw []byte) (*Reply, error) {
	var m discoveryv3.DiscoveryResponse
	if err := proto.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	r := &Reply{TypeURL: m.TypeUrl, Version: m.VersionInfo, Nonce: m.Nonce}
	for _, it := range m.Resources {
		r.Items = append(r.Items, Item{TypeURL: it.TypeUrl, Body: it.Value})
	}
	return r, nil
}
