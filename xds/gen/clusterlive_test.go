package gen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// controlPlane serves the sets of one scope, as little as an Envoy needs to take them.
type controlPlane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	g     *Generator
	scope *push.Scope
	// nacks receives what Envoy says of what it refuses.
	nacks chan string
}

func (c *controlPlane) StreamAggregatedResources(st discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	sent := map[string][]string{}
	for {
		req, err := st.Recv()
		if err != nil {
			return nil // Envoy left
		}
		if req.ErrorDetail != nil {
			c.nacks <- req.TypeUrl + ": " + req.ErrorDetail.Message
			continue
		}
		slices.Sort(req.ResourceNames)
		if had, ok := sent[req.TypeUrl]; ok && slices.Equal(had, req.ResourceNames) {
			continue // an ACK
		}
		sent[req.TypeUrl] = req.ResourceNames
		if err := st.Send(c.response(req)); err != nil {
			return err
		}
	}
}

func (c *controlPlane) response(req *discoveryv3.DiscoveryRequest) *discoveryv3.DiscoveryResponse {
	resp := &discoveryv3.DiscoveryResponse{TypeUrl: req.TypeUrl, VersionInfo: "1",
		Nonce: fmt.Sprint(len(req.ResourceNames))}
	for r := range c.g.Set(req.TypeUrl, c.scope).All() {
		if len(req.ResourceNames) == 0 || slices.Contains(req.ResourceNames, r.Name) {
			resp.Resources = append(resp.Resources, &anypb.Any{TypeUrl: r.TypeURL, Value: r.Body()})
		}
	}
	return resp
}

// startControlPlane serves until the test ends and returns the address.
func startControlPlane(t *testing.T, c *controlPlane) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(srv, c)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// managedEnvoy runs an Envoy that asks the control plane at address for clusters and has listeners
// of its own. It returns the socket of its admin interface.
func managedEnvoy(t *testing.T, address string, listeners ...*listenerv3.Listener) string {
	t.Helper()
	dir := t.TempDir()
	admin := filepath.Join(dir, "admin.sock")
	control := staticCluster("xds", address)
	control.TypedExtensionProtocolOptions = map[string]*anypb.Any{
		"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": envoy.Packed(&upstreamv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
						Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
					},
				},
			},
		}),
	}
	text, err := protojson.Marshal(&bootstrapv3.Bootstrap{
		Node:  &corev3.Node{Id: "test", Cluster: "test"},
		Admin: &bootstrapv3.Admin{Address: envoy.PipeAddress(admin)},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{CdsConfig: envoy.FromADS(),
			AdsConfig: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xds"}}}},
			}},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Listeners: listeners,
			Clusters: []*clusterv3.Cluster{control}},
	})
	if err != nil {
		t.Fatal(err)
	}
	testenvoy.Start(t, text, "--log-level", "warning")
	return admin
}

// activeClusters asks an Envoy for the clusters that it has taken and warmed, by name.
func activeClusters(ctx context.Context, admin string) (map[string]bool, error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", admin)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://envoy/config_dump?resource=dynamic_active_clusters", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var dump struct {
		Configs []struct {
			Cluster struct{ Name string }
		}
	}
	if err := json.Unmarshal(text, &dump); err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	out := map[string]bool{}
	for _, c := range dump.Configs {
		out[c.Cluster.Name] = true
	}
	return out, nil
}

// A real Envoy takes and warms clusters of every kind with what they refer to: endpoints by EDS,
// certificates and authorities that are files on its machine by SDS.
func TestEnvoyWarmsClusters(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	chain, key := writeCertificate(t, server)
	for name, policy := range map[string]string{
		"plain":  `{}`,
		"simple": fmt.Sprintf(`{"tls": {"mode": "SIMPLE", "caCertificates": %q}}`, chain),
		"mutual": fmt.Sprintf(`{"tls": {"mode": "MUTUAL", "clientCertificate": %q, "privateKey": %q, "caCertificates": %q, "sni": "example.com"}}`, chain, key, chain),
	} {
		for _, resolution := range []registry.Resolution{registry.Static, registry.DNS, registry.DNSRoundRobin,
			registry.Passthrough} {
			t.Run(fmt.Sprintf("%s %d", name, resolution), func(t *testing.T) {
				t.Parallel()
				web := gentest.Service("web.example.com", 1, "", "http/80")
				web.Resolution = resolution
				c := &controlPlane{g: New(), scope: ruleScope(t, web, policy, registry.Endpoint{Address: "127.0.0.1"}),
					nacks: make(chan string, 100)}
				admin := managedEnvoy(t, startControlPlane(t, c))
				awaitClusters(t, c, admin)
			})
		}
	}
}

// awaitClusters waits until an Envoy has warmed all clusters of the control plane's scope.
func awaitClusters(t *testing.T, c *controlPlane, admin string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		got, err := activeClusters(ctx, admin)
		missing := ""
		for r := range c.g.Set(resource.ClusterType, c.scope).All() {
			if !got[r.Name] {
				missing = r.Name
			}
		}
		if err == nil && missing == "" {
			return
		}
		select {
		case text := <-c.nacks:
			t.Fatalf("envoy refuses %s", text)
		case <-ctx.Done():
			t.Fatalf("cluster %q is not active (%v)", missing, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
