package cluster

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/destination"
)

// applyBalancer chooses how Envoy spreads requests over endpoints: least requests unless something
// else is set.
// Source: istio.io, LoadBalancerSettings.
func applyBalancer(c *clusterv3.Cluster, b *networking.LoadBalancerSettings) {
	if h := b.GetConsistentHash(); h != nil {
		applyHash(c, h)
		return
	}
	slow := slowStart(b)
	switch b.GetSimple() {
	case networking.LoadBalancerSettings_RANDOM:
		c.LbPolicy = clusterv3.Cluster_RANDOM
	case networking.LoadBalancerSettings_ROUND_ROBIN:
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slow}}
		}
	default:
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slow}}
		}
	}
}

// commonBalancer are the settings of all balancers.
func commonBalancer(c *clusterv3.Cluster) *clusterv3.Cluster_CommonLbConfig {
	if c.CommonLbConfig == nil {
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{}
	}
	return c.CommonLbConfig
}

// applyWeights makes Envoy choose a locality by weight first, where the order of endpoints needs
// it: otherwise it would disturb the balancer.
func applyWeights(c *clusterv3.Cluster, r destination.OrderRule) {
	if r.Weighted() {
		commonBalancer(c).LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
}

// applyZones makes Envoy prefer endpoints of its own zone, as far as these have the capacity; or not,
// where the setting is switched off.
func applyZones(c *clusterv3.Cluster, z *networking.ZoneAwareLoadBalancerSetting) {
	if z == nil {
		return
	}
	to := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{}
	if z.MinClusterSize != nil {
		to.MinClusterSize = wrapperspb.UInt64(uint64(z.MinClusterSize.Value))
	}
	if z.Enabled != nil && !z.Enabled.Value {
		to.RoutingEnabled = &typev3.Percent{}
	}
	commonBalancer(c).LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: to}
}

// The sizes of hash rings. Source: envoyproxy.io, RingHashLbConfig: at most 8M entries.
const (
	defaultRingSize = 1024
	maxRingSize     = 8 << 20
)

// applyHash chooses endpoints by a hash; what is hashed stands in the routes.
func applyHash(c *clusterv3.Cluster, h *networking.LoadBalancerSettings_ConsistentHashLB) {
	if m := h.GetMaglev(); m != nil {
		c.LbPolicy = clusterv3.Cluster_MAGLEV
		if m.TableSize != 0 {
			c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(m.TableSize)}}
		}
		return
	}
	size := h.GetRingHash().GetMinimumRingSize()
	if h.GetRingHash() == nil {
		size = cmp.Or(h.MinimumRingSize, defaultRingSize)
	}
	c.LbPolicy = clusterv3.Cluster_RING_HASH
	if size != 0 {
		c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(min(size, maxRingSize))}}
	}
}

// slowStart is how new endpoints get their share of traffic; nil: at once.
// Source: istio.io, WarmupConfiguration: linear (aggression 1) from 10 percent unless set.
func slowStart(b *networking.LoadBalancerSettings) *clusterv3.Cluster_SlowStartConfig {
	w := b.GetWarmup()
	if w == nil {
		if b.GetWarmupDurationSecs() == nil {
			return nil
		}
		return &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: b.WarmupDurationSecs}
	}
	aggression, least := 1.0, 10.0
	if w.Aggression != nil {
		aggression = w.Aggression.Value
	}
	if w.MinimumPercent != nil {
		least = w.MinimumPercent.Value
	}
	return &clusterv3.Cluster_SlowStartConfig{
		SlowStartWindow: w.Duration,
		// Envoy wants a name for the runtime value that could replace it.
		Aggression:       &corev3.RuntimeDouble{DefaultValue: aggression, RuntimeKey: "upstream.slow_start.aggression"},
		MinWeightPercent: &typev3.Percent{Value: least},
	}
}
