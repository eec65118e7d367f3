package ads

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/xds/resource"
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
func (a *Ask) Encode() []byte {
	return a.withNode(deltaFields.node, resource.Encode(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: a.TypeURL, ResourceNamesSubscribe: a.Subscribe, ResourceNamesUnsubscribe: a.Unsubscribe,
		InitialResourceVersions: a.Claims, ResponseNonce: a.Nonce, ErrorDetail: a.Rejected.status()}))
}

// EncodeState returns the DiscoveryRequest of state of the world. Equal ones give equal bytes.
func (a *Ask) EncodeState() []byte {
	return a.withNode(stateFields.node, resource.Encode(&discoveryv3.DiscoveryRequest{
		TypeUrl: a.TypeURL, ResourceNames: a.Subscribe, VersionInfo: a.Version, ResponseNonce: a.Nonce,
		ErrorDetail: a.Rejected.status()}))
}

// withNode adds the node to an encoded request.
func (a *Ask) withNode(field protowire.Number, request []byte) []byte {
	if a.Node == nil {
		return request
	}
	return protowire.AppendBytes(protowire.AppendTag(request, field, protowire.BytesType), a.Node)
}

func (r *Rejection) status() *rpcstatus.Status {
	if r == nil {
		return nil
	}
	return &rpcstatus.Status{Code: r.Code, Message: r.Message}
}
