package xds_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
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
					typeURL := []string{xds.ClusterType, xds.EndpointType, xds.ListenerType}[g%3]
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

// Of one node ID only so many streams are served.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	p.publish(serving("a", 1)...)
	client, node := dial(t, p), &corev3.Node{Id: xdstest.NodeID("web", "10.0.0.1")}
	for i := range 17 {
		st, err := client.DeltaAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.ClusterType}); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Recv(); status.Code(err) == codes.ResourceExhausted != (i == 16) {
			t.Errorf("stream %d: %v", i+1, err)
		}
	}
}

// A secret that a process refused is not sent to it again when it connects anew; a process that is
// new is sent it.
func TestRefusedSecretAfterReconnect(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	secret := resource.New(xds.SecretType, "s", nil, func() []byte { return resource.Encode(&tlsv3.Secret{Name: "s"}) })
	p.publish(append(serving("a", 1), secret)...)
	client := dial(t, p)
	// connect asks for clusters, claiming those that it has, then for the secret, then for
	// listeners. It returns what arrived before the listeners did, and hears the secret with
	// answer.
	connect := func(claims map[string]string, answer *rpcstatus.Status) (clusters map[string]string, secrets int) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		st, err := client.DeltaAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send := func(m *discoveryv3.DeltaDiscoveryRequest) {
			t.Helper()
			if err := st.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: xdstest.NodeID("web", "10.0.0.1")},
			TypeUrl: xds.ClusterType, InitialResourceVersions: claims})
		send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.SecretType, ResourceNamesSubscribe: []string{"s"}})
		send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.ListenerType})
		clusters = map[string]string{}
		for {
			r, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
			switch r.TypeUrl {
			case xds.ClusterType:
				for _, c := range r.Resources {
					clusters[c.Name] = c.Version
				}
			case xds.SecretType:
				secrets += len(r.Resources)
				if len(r.Resources) > 0 {
					ack.ErrorDetail = answer
				}
			case xds.ListenerType:
				send(ack)
				eventually(t, func() string {
					for _, ty := range p.server.Proxies()[0].Types {
						if ty.TypeURL == xds.SecretType && len(ty.Rejected) != 1 {
							return fmt.Sprintf("%d rejected resources are shown", len(ty.Rejected))
						}
					}
					return ""
				})
				return clusters, secrets
			}
			send(ack)
		}
	}
	gone := func() {
		eventually(t, func() string {
			if len(p.server.Proxies()) > 0 {
				return "the stream did not end"
			}
			return ""
		})
	}
	refusal := &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: "no such file"}
	clusters, secrets := connect(nil, refusal)
	if secrets != 1 {
		t.Fatalf("the first time %d secrets arrived", secrets)
	}
	gone()
	if _, secrets := connect(clusters, nil); secrets != 0 {
		t.Error("the secret is sent again to the process that refused it")
	}
	gone()
	if _, secrets := connect(nil, refusal); secrets != 1 {
		t.Error("the secret is not sent to a new process")
	}
}
