package agent

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// controlPlane is a small one that answers every type once, with fixed resources, and keeps the
// node.
type controlPlane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	address   string
	resources map[string][]*discoveryv3.Resource // by type URL; set before serving

	mu   sync.Mutex
	node *corev3.Node // guarded by mu
}

const (
	typeCluster  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	typeListener = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// startControlPlane serves clusters and listeners until the test ends.
func startControlPlane(t *testing.T, clusters []*clusterv3.Cluster, listeners []*listenerv3.Listener) *controlPlane {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &controlPlane{address: l.Addr().String(), resources: map[string][]*discoveryv3.Resource{}}
	for _, m := range clusters {
		c.add(t, typeCluster, m.GetName(), m)
	}
	for _, m := range listeners {
		c.add(t, typeListener, m.GetName(), m)
	}
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, c)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *controlPlane) add(t *testing.T, typ, name string, m proto.Message) {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	c.resources[typ] = append(c.resources[typ], &discoveryv3.Resource{Name: name, Version: "1", Resource: a})
}

func (c *controlPlane) DeltaAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest,
	discoveryv3.DeltaDiscoveryResponse]) error {
	for n := 0; ; n++ {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if req.GetNode() != nil {
			c.mu.Lock()
			c.node = req.GetNode()
			c.mu.Unlock()
		}
		if req.GetResponseNonce() != "" || c.resources[req.GetTypeUrl()] == nil &&
			!slices.Contains([]string{typeCluster, typeListener,
				"type.googleapis.com/istio.networking.v1alpha3.ReadinessProbe"}, req.GetTypeUrl()) {
			continue // nothing to answer to a report, nor of the roots
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryResponse{
			TypeUrl: req.GetTypeUrl(), Nonce: fmt.Sprint(n + 1), Resources: c.resources[req.GetTypeUrl()]}); err != nil {
			return err
		}
	}
}

// introduced is the node of the latest stream.
func (c *controlPlane) introduced() *corev3.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node
}

// localCluster has one host.
func localCluster(name string, a *corev3.Address) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          name + ";",
		ConnectTimeout:       durationpb.New(time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: a}}}}}}},
	}
}

func tcpAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}
}
