package xdstest

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// transport is one stream of either protocol.
type transport struct {
	stream grpc.ClientStream
	delta  bool
	node   []byte // for the first request
}

// rawCodec sends and receives messages as they are.
type rawCodec struct{}

func (rawCodec) Name() string                    { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }

// dial opens a stream.
func dial(ctx context.Context, conn *grpc.ClientConn, cfg Config) (*transport, error) {
	meta := map[string]*structpb.Value{"NAMESPACE": structpb.NewStringValue("shop")}
	node := resource.Encode(&corev3.Node{Id: cfg.ID, UserAgentName: "fake", Metadata: &structpb.Struct{Fields: meta},
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: cfg.Version}})
	method := "StreamAggregatedResources"
	if cfg.Delta {
		method = "DeltaAggregatedResources"
	}
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/envoy.service.discovery.v3.AggregatedDiscoveryService/"+method, grpc.ForceCodec(rawCodec{}))
	return &transport{st, cfg.Delta, node}, err
}

func (t *transport) send(a *ads.Ask) error {
	a.Node, t.node = t.node, nil
	b := a.EncodeState()
	if t.delta {
		b = a.Encode()
	}
	return t.stream.SendMsg(&b)
}

func (t *transport) receive() (*ads.Reply, error) {
	var b []byte
	if err := t.stream.RecvMsg(&b); err != nil {
		return nil, err
	}
	r, err := ads.ReadReply(b, !t.delta)
	if err != nil || t.delta {
		return r, err
	}
	for i := range r.Items { // the name is field 1 of all types that are served here
		var name wrapperspb.StringValue
		decode(r.Items[i].Body, &name)
		r.Items[i].Name, r.Items[i].Version = name.Value, r.Version
	}
	return r, nil
}
