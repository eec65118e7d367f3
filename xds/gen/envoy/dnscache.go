package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	dfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
)

// DNSCache is the cache of the hosts that a proxy resolves because clients name them. Envoy shares
// one cache between clusters and filters, and refuses a second configuration of the same name.
func DNSCache(f Families) *dfpv3.DnsCacheConfig {
	c := &dfpv3.DnsCacheConfig{Name: "dynamic_dns", DnsLookupFamily: clusterv3.Cluster_V4_ONLY}
	switch f {
	case OnlyV6:
		c.DnsLookupFamily = clusterv3.Cluster_V6_ONLY
	case DualStack:
		c.DnsLookupFamily = clusterv3.Cluster_ALL
	}
	return c
}
