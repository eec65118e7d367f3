package cluster

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	commondnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	dfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

const (
	// dnsJitter spreads the queries of many clusters. Source: Istio.
	dnsJitter = 100 * time.Millisecond
	// dnsFailureRate is how soon a name is asked for again that could not be resolved; it grows up
	// to the mesh's dnsRefreshRate. Envoy's default is that rate at once, so that a proxy which
	// starts before its resolver would be without endpoints for a minute.
	dnsFailureRate = 5 * time.Second
)

// resolve makes Envoy resolve the names that the cluster carries.
func (s clusterShape) resolve(c *clusterv3.Cluster) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.cluster.dns", TypedConfig: envoy.Packed(s.dns()),
	}}
}

// resolveHosts makes Envoy resolve the hosts that requests and connections name. A cluster that does
// not verify these names needs AllowInsecureClusterOptions, or Envoy rejects it.
func (s clusterShape) resolveHosts(c *clusterv3.Cluster, h *upstreamHTTP) {
	c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.dynamic_forward_proxy",
		TypedConfig: envoy.Packed(&dfpv3.ClusterConfig{
			ClusterImplementationSpecifier: &dfpv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: envoy.DNSCache(s.families)},
			AllowInsecureClusterOptions:    !h.upstream.AutoSni || !h.upstream.AutoSanValidation,
		}),
	}}
}

// dns says how names are resolved.
func (s clusterShape) dns() *dnsv3.DnsCluster {
	refresh := s.mesh.Config.GetDnsRefreshRate()
	d := &dnsv3.DnsCluster{
		DnsRefreshRate:               refresh,
		RespectDnsTtl:                true,
		DnsJitter:                    durationpb.New(dnsJitter),
		DnsLookupFamily:              lookupFamily(s.families),
		AllAddressesInSingleEndpoint: s.discovery == destination.ByName,
	}
	if refresh.AsDuration() >= dnsFailureRate {
		d.DnsFailureRefreshRate = &dnsv3.DnsCluster_RefreshRate{BaseInterval: durationpb.New(dnsFailureRate),
			MaxInterval: refresh}
	}
	return d
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
