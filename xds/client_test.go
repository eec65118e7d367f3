package xds_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// dial opens connections to a plane until the test ends.
func dial(t *testing.T, p *plane) discoveryv3.AggregatedDiscoveryServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
}

// Streams of one node ID that come and go at one time do one another no harm.
func TestStreamsOfOneClient(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	p.publish(serving("a", 1)...)
	client, node := dial(t, p), &corev3.Node{Id: xdstest.NodeID("web", "10.0.0.1")}
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				st, err := client.DeltaAggregatedResources(ctx)
				if err != nil {
					t.Error(err)
				} else {
					typeURL := []string{resource.ClusterType, resource.EndpointType, resource.ListenerType}[g%3]
					_ = st.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURL,
						ResourceNamesSubscribe: []string{"*", fmt.Sprint("x", g)}})
					_, _ = st.Recv() // whether it comes so far does not matter
				}
				cancel()
			}
		})
	}
	group.Wait()
	eventually(t, func() string {
		if n := len(p.server.Proxies()); n > 0 {
			return fmt.Sprintf("%d streams are left", n)
		}
		return ""
	})
}
