package gen

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// buildCluster makes the cluster of a spec. Envoy's limit for the first answer of its endpoints stays
// (15s): without one a cluster could stand still for ever.
func buildCluster(s clusterSpec) *resource.Resource {
	name := outboundCluster(s.port, s.subset.GetName(), s.service.Host)
	var refs []resource.Ref
	if s.usesEDS() {
		refs = []resource.Ref{{TypeURL: EndpointType, Name: name}}
	}
	return resource.New(ClusterType, name, refs, func() []byte { return resource.Encode(s.cluster(name)) })
}

// discovery is how Envoy finds the endpoints.
//
// Source: Istio. Static services come by EDS. Names are resolved by the proxy. Passthrough goes where
// the client had connected to, which a router cannot know, so that it takes the endpoints.
func (s clusterSpec) discovery() clusterv3.Cluster_DiscoveryType {
	switch {
	case s.policy.passthrough() && !s.router:
		return clusterv3.Cluster_ORIGINAL_DST
	case s.service.Resolution == registry.DNS:
		return clusterv3.Cluster_STRICT_DNS
	case s.service.Resolution == registry.DNSRoundRobin:
		return clusterv3.Cluster_LOGICAL_DNS
	case s.service.Resolution == registry.Passthrough && !s.router:
		return clusterv3.Cluster_ORIGINAL_DST
	default:
		return clusterv3.Cluster_EDS
	}
}

// cluster is the message.
func (s clusterSpec) cluster(name string) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:           name,
		ConnectTimeout: s.mesh.Config.GetConnectTimeout(),
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{},
		Metadata:       s.metadata(),
	}
	s.discover(c)
	h := s.upstreamHTTP()
	applyPool(c, h, s.policy.pool, s.mesh)
	applyBudget(c, s.policy.budget)
	applyOutliers(c, h, s.policy.outlier)
	applyBalancer(c, s.policy.balance)
	if s.policy.order(s.mesh).weighted() && c.GetType() != clusterv3.Cluster_ORIGINAL_DST {
		c.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
	applyTLS(c, h, s.policy.tls, s.service)
	h.apply(c)
	return c
}

// discover sets where endpoints come from.
func (s clusterSpec) discover(c *clusterv3.Cluster) {
	kind := s.discovery()
	switch kind {
	case clusterv3.Cluster_EDS:
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: fromADS()}
	case clusterv3.Cluster_STRICT_DNS, clusterv3.Cluster_LOGICAL_DNS:
		kind = s.resolve(c, kind)
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
}

// resolve gives a cluster the names to resolve. One without any is static and empty, so that
// requests get a clear answer; LOGICAL_DNS takes exactly one name, the first.
func (s clusterSpec) resolve(c *clusterv3.Cluster, kind clusterv3.Cluster_DiscoveryType) clusterv3.Cluster_DiscoveryType {
	a := assignmentSpec{service: s.service, port: s.port, subset: s.subset, endpoints: s.endpoints, order: s.order}
	hosts := a.hosts(resolvable)
	if len(hosts) == 0 {
		return clusterv3.Cluster_STATIC
	}
	if kind == clusterv3.Cluster_LOGICAL_DNS {
		hosts = hosts[:1]
	}
	c.LoadAssignment = a.assignment(c.Name, hosts)
	c.DnsRefreshRate = s.mesh.Config.GetDnsRefreshRate()
	c.RespectDnsTtl = true
	c.DnsLookupFamily = s.families.lookup()
	return kind
}

// lookup says which addresses of a name are of use.
func (f families) lookup() clusterv3.Cluster_DnsLookupFamily {
	switch f {
	case onlyV6:
		return clusterv3.Cluster_V6_ONLY
	case dualStack:
		return clusterv3.Cluster_ALL
	default:
		return clusterv3.Cluster_V4_ONLY
	}
}

// usesEDS says that the endpoints come as a load assignment of their own.
func (s clusterSpec) usesEDS() bool { return s.discovery() == clusterv3.Cluster_EDS }
