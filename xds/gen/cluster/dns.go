package cluster

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	commondnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// resolve makes Envoy resolve the names that the cluster carries.
func (s clusterShape) resolve(c *clusterv3.Cluster) {
	if !s.caps.Has(envoy.DNSCluster) {
		s.resolveOld(c)
		return
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: envoy.DnsClusterExtension, TypedConfig: envoy.Packed(s.dns()),
	}}
}

// dns says how names are resolved.
func (s clusterShape) dns() *dnsv3.DnsCluster {
	refresh := s.mesh.Config.GetDnsRefreshRate()
	d := &dnsv3.DnsCluster{
		DnsRefreshRate:               refresh,
		RespectDnsTtl:                true,
		DnsJitter:                    durationpb.New(envoy.DnsJitter),
		DnsLookupFamily:              lookupFamily(s.families),
		AllAddressesInSingleEndpoint: s.discovery == destination.ByName,
	}
	if refresh.AsDuration() >= envoy.DnsFailureRate {
		d.DnsFailureRefreshRate = &dnsv3.DnsCluster_RefreshRate{BaseInterval: durationpb.New(envoy.DnsFailureRate),
			MaxInterval: refresh}
	}
	return d
}

// resolveOld says the same to an Envoy that has no such kind of cluster.
func (s clusterShape) resolveOld(c *clusterv3.Cluster) {
	d := s.dns()
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

// lookupFamily says which addresses of a name are of use.
func lookupFamily(f envoy.Families) commondnsv3.DnsLookupFamily {
	switch f {
	case envoy.OnlyV6:
		return commondnsv3.DnsLookupFamily_V6_ONLY
	case envoy.DualStack:
		return commondnsv3.DnsLookupFamily_ALL
	default:
		return commondnsv3.DnsLookupFamily_V4_ONLY
	}
}
