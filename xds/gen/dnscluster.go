package gen

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	commondnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/registry"
)

const (
	// dnsClusterExtension is the kind of cluster that resolves names, in newer Envoys.
	dnsClusterExtension = "envoy.cluster.dns"
	// dnsJitter spreads the queries of many clusters. Source: Istio.
	dnsJitter = 100 * time.Millisecond
	// dnsFailureRate is how soon a name is asked for again that could not be resolved; it grows up to the
	// mesh's dnsRefreshRate. Envoy's default is that rate at once, so that a proxy which
	// starts before its resolver would be without endpoints for a minute.
	dnsFailureRate = 5 * time.Second
)

// resolve makes a cluster whose endpoints are names. One without any is static and empty, so that
// requests get a clear answer. One that uses a single answer at a time takes exactly one name, the first.
func (s clusterSpec) resolve(c *clusterv3.Cluster) {
	a := assignmentSpec{service: s.service, port: s.port, subset: s.subset, endpoints: s.endpoints, order: s.order}
	hosts := a.hosts(resolvable)
	single := s.service.Resolution == registry.DNSRoundRobin
	if len(hosts) == 0 {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		return
	}
	if single {
		hosts = hosts[:1]
	}
	c.LoadAssignment = a.assignment(c.Name, hosts)
	if s.caps.Has(capDNSCluster) {
		c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: dnsClusterExtension, TypedConfig: packed(s.dns(single)),
		}}
		return
	}
	s.resolveOld(c)
}

// dns says how names are resolved.
func (s clusterSpec) dns(single bool) *dnsv3.DnsCluster {
	refresh := s.mesh.Config.GetDnsRefreshRate()
	d := &dnsv3.DnsCluster{
		DnsRefreshRate:               refresh,
		RespectDnsTtl:                true,
		DnsJitter:                    durationpb.New(dnsJitter),
		DnsLookupFamily:              s.families.lookup(),
		AllAddressesInSingleEndpoint: single,
	}
	if refresh.AsDuration() >= dnsFailureRate {
		d.DnsFailureRefreshRate = &dnsv3.DnsCluster_RefreshRate{BaseInterval: durationpb.New(dnsFailureRate), MaxInterval: refresh}
	}
	return d
}

// resolveOld says the same to an Envoy that has no such kind of cluster.
func (s clusterSpec) resolveOld(c *clusterv3.Cluster) {
	d := s.dns(s.service.Resolution == registry.DNSRoundRobin)
	kind := clusterv3.Cluster_STRICT_DNS
	if d.AllAddressesInSingleEndpoint {
		kind = clusterv3.Cluster_LOGICAL_DNS
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
	c.DnsRefreshRate, c.RespectDnsTtl, c.DnsJitter = d.DnsRefreshRate, d.RespectDnsTtl, d.DnsJitter //nolint:staticcheck // all that an older Envoy knows
	if r := d.DnsFailureRefreshRate; r != nil {
		c.DnsFailureRefreshRate = &clusterv3.Cluster_RefreshRate{BaseInterval: r.BaseInterval, MaxInterval: r.MaxInterval} //nolint:staticcheck // as above
	}
	switch d.DnsLookupFamily {
	case commondnsv3.DnsLookupFamily_V6_ONLY:
		c.DnsLookupFamily = clusterv3.Cluster_V6_ONLY //nolint:staticcheck // as above
	case commondnsv3.DnsLookupFamily_ALL:
		c.DnsLookupFamily = clusterv3.Cluster_ALL //nolint:staticcheck // as above
	default:
		c.DnsLookupFamily = clusterv3.Cluster_V4_ONLY //nolint:staticcheck // as above
	}
}

// lookup says which addresses of a name are of use.
func (f families) lookup() commondnsv3.DnsLookupFamily {
	switch f {
	case onlyV6:
		return commondnsv3.DnsLookupFamily_V6_ONLY
	case dualStack:
		return commondnsv3.DnsLookupFamily_ALL
	default:
		return commondnsv3.DnsLookupFamily_V4_ONLY
	}
}
