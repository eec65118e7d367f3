package agent

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// relayed is a relay between a control plane and an Envoy that the test speaks for.
type relayed struct {
	*testing.T
	relay  *relay
	up     *upstream
	stream *envoyStream
	now    time.Time
}

func newRelayed(t *testing.T) *relayed {
	r := newRelay()
	now := time.Unix(0, 0)
	return &relayed{T: t, relay: r, stream: r.open(false, now), up: r.connect(), now: now}
}

// hear takes in what Envoy says.
func (r *relayed) hear(a ads.Ask) {
	r.Helper()
	req, err := r.stream.reader.Read(a.Encode())
	if err != nil {
		r.Fatal(err)
	}
	if err := r.stream.receive(req, r.now); err != nil {
		r.Fatal(err)
	}
}

// says takes in what the control plane says.
func (r *relayed) says(typeURL string, messages map[string]proto.Message) {
	r.Helper()
	reply := &ads.Reply{TypeURL: typeURL, Nonce: "n"}
	for name, m := range messages {
		reply.Items = append(reply.Items, ads.Item{Name: name, TypeURL: typeURL, Version: "v", Body: resource.Encode(m)})
	}
	if err := r.relay.take(r.up, reply, r.now); err != nil {
		r.Fatal(err)
	}
}

// sends reads what Envoy is sent: a resource of that type, or nothing for an empty type.
func (r *relayed) sends(what, typeURL, name string) (nonce string) {
	r.Helper()
	resp, _ := r.stream.next(r.now)
	if resp == nil {
		if typeURL != "" {
			r.Fatalf("%s: Envoy is sent nothing, want %s", what, name)
		}
		return ""
	}
	for changed := range resp.Changed() {
		if resp.TypeURL != typeURL || changed.Name != name {
			r.Fatalf("%s: Envoy is sent %s of %s, want %q", what, changed.Name, resp.TypeURL, name)
		}
	}
	return resp.Nonce
}

func wrapped(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// judgedBy is a filter of requests that asks a cluster by HTTP.
func judgedBy(t *testing.T, cluster string) *corev3.TypedExtensionConfig {
	t.Helper()
	return &corev3.TypedExtensionConfig{Name: "ask", TypedConfig: wrapped(t, &httpauthzv3.ExtAuthz{Services: &httpauthzv3.ExtAuthz_HttpService{
		HttpService: &httpauthzv3.HttpService{ServerUri: &corev3.HttpUri{HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster}}},
	}})}
}

func fetching(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
}

// An Envoy that missed several changes hears of a filter when it has the cluster that the filter asks; of the filters
// beside it at once.
func TestProxyFilterWaitsForItsCluster(t *testing.T) {
	t.Parallel()
	r := newRelayed(t)
	rbac := wrapped(t, &httprbacv3.RBAC{})
	r.hear(ads.Ask{TypeURL: clusterTypeURL})
	r.hear(ads.Ask{TypeURL: extensionTypeURL, Subscribe: []string{"ask", "deny"}})
	r.says(clusterTypeURL, map[string]proto.Message{"web": &clusterv3.Cluster{Name: "web"}})
	r.says(extensionTypeURL, map[string]proto.Message{"ask": &corev3.TypedExtensionConfig{TypedConfig: rbac}})
	r.hear(ads.Ask{TypeURL: clusterTypeURL, Nonce: r.sends("first", clusterTypeURL, "web")})
	r.hear(ads.Ask{TypeURL: extensionTypeURL, Nonce: r.sends("then", extensionTypeURL, "ask")})

	r.says(clusterTypeURL, map[string]proto.Message{"judge": fetching("judge")})
	r.says(extensionTypeURL, map[string]proto.Message{"ask": judgedBy(t, "judge"), "deny": &corev3.TypedExtensionConfig{TypedConfig: rbac}})
	cds := r.sends("first", clusterTypeURL, "judge")
	r.hear(ads.Ask{TypeURL: extensionTypeURL, Nonce: r.sends("a policy that asks nobody", extensionTypeURL, "deny")})
	r.sends("before the endpoints", "", "")
	r.hear(ads.Ask{TypeURL: endpointTypeURL, Subscribe: []string{"judge"}})
	r.says(endpointTypeURL, map[string]proto.Message{"judge": &endpointv3.ClusterLoadAssignment{ClusterName: "judge"}})
	eds := r.sends("then", endpointTypeURL, "judge")
	r.sends("before the endpoints are acknowledged", "", "")
	r.hear(ads.Ask{TypeURL: endpointTypeURL, Nonce: eds})
	r.hear(ads.Ask{TypeURL: clusterTypeURL, Nonce: cds})
	r.sends("in the end", extensionTypeURL, "ask")
}

// What the order of delivery has to know of a resource is read from its bytes, and from nothing else.
func TestRefsOf(t *testing.T) {
	t.Parallel()
	byGRPC := &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "judge"}}}
	named := fetching("web")
	named.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: "other"}
	filter := func(m proto.Message) proto.Message {
		return &corev3.TypedExtensionConfig{Name: "ask", TypedConfig: wrapped(t, m)}
	}
	judge := []resource.Ref{{TypeURL: clusterTypeURL, Name: "judge"}}
	tests := map[string]struct {
		typeURL string
		message proto.Message
		want    []resource.Ref
	}{
		"a cluster with endpoints to fetch":  {clusterTypeURL, fetching("web"), []resource.Ref{{TypeURL: endpointTypeURL, Name: "web"}}},
		"a cluster with a name for them":     {clusterTypeURL, named, []resource.Ref{{TypeURL: endpointTypeURL, Name: "other"}}},
		"a cluster that has its own":         {clusterTypeURL, &clusterv3.Cluster{Name: "web", EdsClusterConfig: named.EdsClusterConfig}, nil},
		"a filter that asks by HTTP":         {extensionTypeURL, judgedBy(t, "judge"), judge},
		"a filter that asks by gRPC":         {extensionTypeURL, filter(&httpauthzv3.ExtAuthz{Services: &httpauthzv3.ExtAuthz_GrpcService{GrpcService: byGRPC}}), judge},
		"a filter of connections that asks":  {extensionTypeURL, filter(&networkauthzv3.ExtAuthz{GrpcService: byGRPC}), judge},
		"a filter that asks nobody":          {extensionTypeURL, filter(&httprbacv3.RBAC{}), nil},
		"a filter without a cluster":         {extensionTypeURL, filter(&httpauthzv3.ExtAuthz{}), nil},
		"a filter of which nothing is known": {extensionTypeURL, &corev3.TypedExtensionConfig{Name: "ask"}, nil},
		"a route":                            {routeTypeURL, judgedBy(t, "judge"), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tt.want, refsOf(tt.typeURL, "web", resource.Encode(tt.message))); d != "" {
				t.Errorf("refs (-want +got):\n%s", d)
			}
		})
	}
	for _, broken := range []*corev3.TypedExtensionConfig{
		{TypedConfig: &anypb.Any{TypeUrl: wrapped(t, &httpauthzv3.ExtAuthz{}).TypeUrl, Value: []byte{255}}},
		{TypedConfig: &anypb.Any{TypeUrl: wrapped(t, &networkauthzv3.ExtAuthz{}).TypeUrl, Value: []byte{255}}},
	} {
		if got := refsOf(extensionTypeURL, "ask", resource.Encode(broken)); got != nil {
			t.Errorf("what cannot be read names %v", got)
		}
	}
	if got := refsOf(extensionTypeURL, "ask", []byte{255}); got != nil {
		t.Errorf("what cannot be read names %v", got)
	}
}
