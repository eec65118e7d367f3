package cluster

import (
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/push"
)

// applyPool sets connection limits and times. What is not set has no limit: Envoy's own ones are
// too small for a fleet whose endpoints come and go.
// Source: istio.io, ConnectionPoolSettings; Istio's default is 2^32-1 everywhere.
func applyPool(c *clusterv3.Cluster, h *upstreamHTTP, pool *networking.ConnectionPoolSettings, m *push.Mesh) {
	http, tcp := pool.GetHttp(), pool.GetTcp()
	if t := tcp.GetConnectTimeout(); t != nil {
		c.ConnectTimeout = t
	}
	c.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     limit(tcp.GetMaxConnections()),
		MaxPendingRequests: limit(http.GetHttp1MaxPendingRequests()),
		MaxRequests:        limit(http.GetHttp2MaxRequests()),
		MaxRetries:         limit(http.GetMaxRetries()),
		TrackRemaining:     true,
	}}}
	applyKeepalive(c, m.Config.GetTcpKeepalive())
	applyKeepalive(c, tcp.GetTcpKeepalive())
	h.pool(http, tcp)
}

// limit is n, or none when n is not set.
func limit(n int32) *wrapperspb.UInt32Value {
	if n <= 0 {
		return wrapperspb.UInt32(math.MaxUint32)
	}
	return wrapperspb.UInt32(uint32(n))
}

// applyKeepalive sets what k says over what is set. An empty k is the operating system's own.
func applyKeepalive(c *clusterv3.Cluster, k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) {
	if k == nil {
		return
	}
	if c.UpstreamConnectionOptions == nil {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{}}
	}
	to := c.UpstreamConnectionOptions.TcpKeepalive
	if k.Probes > 0 {
		to.KeepaliveProbes = wrapperspb.UInt32(k.Probes)
	}
	if k.Time != nil {
		to.KeepaliveTime = seconds(k.Time)
	}
	if k.Interval != nil {
		to.KeepaliveInterval = seconds(k.Interval)
	}
}

// seconds is d in whole seconds, rounded up.
func seconds(d *durationpb.Duration) *wrapperspb.UInt32Value {
	n := d.GetSeconds()
	if d.GetNanos() > 0 {
		n++
	}
	return wrapperspb.UInt32(uint32(min(max(n, 0), math.MaxUint32)))
}

// applyBudget limits retries to a share of the requests that are under way; it replaces maxRetries.
func applyBudget(c *clusterv3.Cluster, b *networking.TrafficPolicy_RetryBudget) {
	if b == nil {
		return
	}
	to := &clusterv3.CircuitBreakers_Thresholds_RetryBudget{BudgetInterval: b.BudgetInterval}
	if b.Percent != nil {
		to.BudgetPercent = &typev3.Percent{Value: b.Percent.Value}
	}
	if b.MinRetryConcurrency > 0 {
		to.MinRetryConcurrency = wrapperspb.UInt32(b.MinRetryConcurrency)
	}
	t := c.CircuitBreakers.Thresholds[0]
	t.MaxRetries, t.RetryBudget = nil, to
}
