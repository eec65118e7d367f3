package cluster

import (
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
)

// workloadIn is everything that the clusters depend on by which a sidecar reaches its workload.
type workloadIn struct {
	workload.Workload
	mesh  *push.Mesh
	proxy proxySettings
	// pools are those that rules set for own.Inbound, in that order; nil when none does.
	pools *intern.List[inboundPool]
}

// inboundPool is a connection pool, and the object that sets it. The zero value: none.
type inboundPool struct {
	settings *networking.ConnectionPoolSettings
	from     *config.Object
}

// poolsOf finds the pools that rules set for the services of the workload: what a client is allowed
// to send, the workload's own proxy has to let through. Source: Istio.
func (g *Generator) poolsOf(sc *push.Scope) *intern.List[inboundPool] {
	out := make([]inboundPool, sc.Own.Inbound.Len())
	some := false
	for i, in := range sc.Own.Inbound.Items() {
		if d, ok := sc.Destinations.Get(in.Service.Host); ok && d.Service == in.Service {
			out[i].settings = destination.PolicyFor(d.Rule, nil, in.Port.Number).Pool
			if out[i].settings != nil {
				out[i].from, some = destination.Deciding(d.Rule), true
			}
		}
	}
	if !some {
		return nil
	}
	return g.pools.Of(out)
}

// Layer makes one cluster for each port that the inbound listeners have.
func (in workloadIn) Layer() *envoy.Layer {
	var parts []*envoy.Part
	for _, p := range in.Ports() {
		parts = append(parts, in.part(p))
	}
	return envoy.LayerOf(parts)
}

// part is the cluster of a port.
func (in workloadIn) part(p workload.Port) *envoy.Part {
	services, first := in.served(p.Port)
	pool := in.pool(p.Port, first)
	if pool.from == nil && in.Ingress(p.Port) != nil {
		pool.from = in.Sidecar.Object
	}
	var metadata []byte
	if first >= 0 {
		port := in.Own.Inbound.Items()[first].Port.Number
		metadata = clusterMetadata{port: port, services: services}.append(nil)
	}
	return fixedPart(in.cluster(p, pool.settings), pool.from, metadata)
}

// served lists the services behind a port of the workload, the older first, and the index of the
// first one among own.Inbound, -1 when there is none.
func (in workloadIn) served(port uint32) (services []*registry.Service, first int) {
	first = -1
	items := in.Own.Inbound.Items()
	var at []int
	for i := range items {
		if items[i].TargetPort == port {
			at = append(at, i)
		}
	}
	slices.SortStableFunc(at, func(a, b int) int { return items[a].Service.CompareAge(items[b].Service) })
	for _, i := range at {
		if first < 0 {
			first = i
		}
		if !slices.Contains(services, items[i].Service) {
			services = append(services, items[i].Service)
		}
	}
	return services, first
}

// pool is that of the Sidecar's listener, else the Sidecar's, else that of the service's rule.
// Source: istio.io, Sidecar.inboundConnectionPool.
func (in workloadIn) pool(port uint32, first int) inboundPool {
	if l := in.Ingress(port); l.GetConnectionPool() != nil {
		return inboundPool{l.ConnectionPool, in.Sidecar.Object}
	}
	if in.Sidecar != nil && in.Sidecar.Spec.InboundConnectionPool != nil {
		return inboundPool{in.Sidecar.Spec.InboundConnectionPool, in.Sidecar.Object}
	}
	if first >= 0 && in.pools != nil {
		return in.pools.Items()[first]
	}
	return inboundPool{}
}

// forever is longer than any proxy runs, and not longer than Envoy can count.
const forever = 100 * 365 * 24 * time.Hour

// cluster is the message without metadata.
func (in workloadIn) cluster(p workload.Port, pool *networking.ConnectionPoolSettings) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 envoy.InboundCluster(p.Port),
		AltStatName:          envoy.InboundCluster(p.Port) + statsEnd,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       in.mesh.Config.GetConnectTimeout(),
	}
	to := in.Target(p)
	switch {
	case p.Bound && to == p.At:
		// The proxy's own listener: nothing is sent there, or the proxy would connect to itself without end.
	case to == envoy.Address{}: // where the client had connected to
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
		c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		// The workload's address does not go away, and forgetting it would cut its connections.
		c.CleanupInterval = durationpb.New(forever)
	default:
		c.LoadAssignment = oneEndpoint(c.Name, to)
	}
	if to.Path == "" && !to.IP.IsLoopback() {
		c.UpstreamBindConfig = inboundSource(in.Interception, in.Families)
	}
	h := &upstreamHTTP{}
	in.proxy.apply(c, h)
	switch {
	case pool.GetHttp().GetUseClientProtocol(), p.Protocol == registry.Unknown:
		h.protocol = upstreamAsClient
	case p.Protocol.IsHTTP2():
		h.protocol = upstreamHTTP2
	}
	applyPool(c, h, pool, in.mesh)
	h.apply(c)
	return c
}

// oneEndpoint is the assignment of a cluster with one endpoint.
func oneEndpoint(name string, at envoy.Address) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: at.Message()},
		}}},
	}}}
}
