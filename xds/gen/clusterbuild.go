package gen

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// discovery is how Envoy finds the endpoints of a cluster.
type discovery uint8

const (
	// byEDS takes them from a load assignment of its own.
	byEDS discovery = iota
	// byName resolves the names that the cluster carries.
	byName
	// byOriginal goes where the client had connected to.
	byOriginal
)

// discovery chooses.
//
// Source: Istio. Static services come by EDS. Names are resolved by the proxy. Passthrough goes where
// the client had connected to, which a router cannot know, so that it takes the endpoints.
func (s clusterSpec) discovery() discovery {
	switch {
	case s.policy.passthrough() && !s.router:
		return byOriginal
	case isDNS(s.service.Resolution):
		return byName
	case s.service.Resolution == registry.Passthrough && !s.router:
		return byOriginal
	default:
		return byEDS
	}
}

// buildCluster makes the cluster of a spec. Envoy's limit for the first answer of its endpoints stays
// (15s): without one a cluster could stand still for ever.
func buildCluster(s clusterSpec) *resource.Resource {
	name := outboundCluster(s.port, s.subset.GetName(), s.service.Host)
	var refs []resource.Ref
	if s.discovery() == byEDS {
		refs = []resource.Ref{{TypeURL: EndpointType, Name: name}}
	}
	return resource.New(ClusterType, name, refs, func() []byte { return resource.Encode(s.cluster(name)) })
}

// cluster is the message.
func (s clusterSpec) cluster(name string) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:           name,
		ConnectTimeout: s.mesh.Config.GetConnectTimeout(),
		Metadata:       s.metadata(),
	}
	kind := s.discovery()
	switch kind {
	case byName:
		s.resolve(c)
	case byOriginal:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
		c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	default:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: fromADS()}
	}
	h := s.upstreamHTTP()
	applyPool(c, h, s.policy.pool, s.mesh)
	applyBudget(c, s.policy.budget)
	applyOutliers(c, h, s.policy.outlier)
	if kind != byOriginal {
		applyBalancer(c, s.policy.balance)
		applyWeights(c, s.policy.order(s.mesh))
	}
	applyTLS(c, h, s.policy.tls, s.service)
	h.apply(c)
	return c
}
