package mcp

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// wire is a discovery stream of either protocol. Responses of state of the world become those of
// delta discovery whose resources have no names.
type wire struct {
	grpc.ClientStream
	stateOfTheWorld bool
}

// request is a request of either protocol.
type request struct {
	typeURL   string
	node      *corev3.Node      // nil: not the first request
	version   string            // the last accepted version; only for state of the world
	nonce     string            // of the response that it answers
	rejection *rpcstatus.Status // nil: the response is accepted
}

func (w wire) send(r request) error {
	if w.stateOfTheWorld {
		return w.SendMsg(&discoveryv3.DiscoveryRequest{TypeUrl: r.typeURL, Node: r.node, VersionInfo: r.version,
			ResponseNonce: r.nonce, ErrorDetail: r.rejection})
	}
	return w.SendMsg(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.typeURL, Node: r.node, ResponseNonce: r.nonce,
		ErrorDetail: r.rejection})
}

func (w wire) receive() (*discoveryv3.DeltaDiscoveryResponse, error) {
	if !w.stateOfTheWorld {
		m := &discoveryv3.DeltaDiscoveryResponse{}
		return m, w.RecvMsg(m)
	}
	var m discoveryv3.DiscoveryResponse
	if err := w.RecvMsg(&m); err != nil {
		return nil, err
	}
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: m.TypeUrl, Nonce: m.Nonce, SystemVersionInfo: m.VersionInfo}
	for _, r := range m.Resources {
		out.Resources = append(out.Resources, &discoveryv3.Resource{Resource: r})
	}
	return out, nil
}

// newNode returns the node of this client. The ID has Istio's format for sidecars. GENERATOR=api
// requests Istio objects instead of Envoy resources. Source: Istio, pkg/adsc and pilot/pkg/xds.
func newNode(name, namespace, revision string) (*corev3.Node, error) {
	metadata := map[string]any{
		"GENERATOR": "api", "NAMESPACE": namespace,
		"ISTIO_VERSION": "65536.65536.65536", // Istio's latest version: nothing is converted for old clients
	}
	if revision != "" {
		metadata["ISTIO_REVISION"] = revision
	}
	fields, err := structpb.NewStruct(metadata)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("sidecar~127.0.0.1~%s.%s~%s.svc.cluster.local", name, namespace, namespace)
	return &corev3.Node{Id: id, Metadata: fields}, nil
}
