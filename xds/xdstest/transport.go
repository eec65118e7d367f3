package xdstest

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/xds"
)

// transport is one stream of either protocol.
type transport interface {
	receive() (*message, error)
	first(typeURL string, names []string, claims map[string]string, version string) error
	change(typeURL string, names, added, dropped []string, nonce, version string) error
	answer(e *Envoy, a answer) error
}

// dial opens a stream.
func dial(ctx context.Context, conn *grpc.ClientConn, cfg Config) (transport, error) {
	meta, err := structpb.NewStruct(map[string]any{"NAMESPACE": "shop"})
	if err != nil {
		return nil, err
	}
	node := &corev3.Node{Id: cfg.ID, Metadata: meta, UserAgentName: "fake",
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: cfg.Version}}
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if cfg.Delta {
		st, err := client.DeltaAggregatedResources(ctx)
		return &delta{st, node}, err
	}
	st, err := client.StreamAggregatedResources(ctx)
	return &states{st, node}, err
}

func detail(words string) *status.Status {
	if words == "" {
		return nil
	}
	return &status.Status{Code: int32(codes.Internal), Message: words}
}

// delta is the incremental protocol.
type delta struct {
	st   discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node *corev3.Node // for the first request
}

func (d *delta) receive() (*message, error) {
	r, err := d.st.Recv()
	if err != nil {
		return nil, err
	}
	m := &message{answer: answer{typeURL: r.TypeUrl, nonce: r.Nonce}, removed: r.RemovedResources}
	for _, it := range r.Resources {
		m.items = append(m.items, item{it.Name, it.Version, it.Resource.GetValue()})
	}
	return m, nil
}

func (d *delta) send(r *discoveryv3.DeltaDiscoveryRequest) error {
	r.Node, d.node = d.node, nil
	return d.st.Send(r)
}

func (d *delta) first(typeURL string, names []string, claims map[string]string, _ string) error {
	return d.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names,
		InitialResourceVersions: claims})
}

func (d *delta) change(typeURL string, _, added, dropped []string, _, _ string) error {
	return d.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: added,
		ResourceNamesUnsubscribe: dropped})
}

func (d *delta) answer(_ *Envoy, a answer) error {
	return d.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: a.typeURL, ResponseNonce: a.nonce,
		ErrorDetail: detail(a.words)})
}

// states is state of the world.
type states struct {
	st   discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node *corev3.Node // for the first request
}

func (s *states) receive() (*message, error) {
	r, err := s.st.Recv()
	if err != nil {
		return nil, err
	}
	m := &message{answer: answer{typeURL: r.TypeUrl, nonce: r.Nonce, version: r.VersionInfo}}
	for _, it := range r.Resources {
		m.items = append(m.items, item{nameOf(it.Value), r.VersionInfo, it.Value})
	}
	return m, nil
}

func (s *states) send(r *discoveryv3.DiscoveryRequest) error {
	r.Node, s.node = s.node, nil
	return s.st.Send(r)
}

func (s *states) first(typeURL string, names []string, _ map[string]string, version string) error {
	return s.send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, VersionInfo: version})
}

func (s *states) change(typeURL string, names, _, _ []string, nonce, version string) error {
	return s.send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, VersionInfo: version,
		ResponseNonce: nonce})
}

func (s *states) answer(e *Envoy, a answer) error {
	e.mu.Lock()
	names, version := e.wanted()[a.typeURL], e.version[a.typeURL]
	e.mu.Unlock()
	if a.typeURL == xds.ClusterType || a.typeURL == xds.ListenerType {
		names = nil
	}
	return s.send(&discoveryv3.DiscoveryRequest{TypeUrl: a.typeURL, ResourceNames: names, VersionInfo: version,
		ResponseNonce: a.nonce, ErrorDetail: detail(a.words)})
}

// nameOf is the name in a resource's body: field 1 of all types that are served here.
func nameOf(body []byte) string {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return ""
		}
		if num == 1 && typ == protowire.BytesType {
			name, _ := protowire.ConsumeString(body[n:])
			return name
		}
		m := protowire.ConsumeFieldValue(num, typ, body[n:])
		if m < 0 {
			return ""
		}
		body = body[n+m:]
	}
	return ""
}
