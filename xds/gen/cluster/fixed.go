package cluster

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// passthroughIdle is when an HTTP connection that carries nothing is closed. Source: Istio.
const passthroughIdle = 5 * time.Minute

// fixed are the clusters that every proxy has. BlackHole has no endpoint, so that everything sent
// to it is refused. Routers have no connections whose destination is known, so only what refuses;
// without redirection nothing arrives that is for no listener.
func (in clusterIn) fixed() []*envoy.Part {
	blackHole := &clusterv3.Cluster{
		Name:                 envoy.BlackHole,
		Metadata:             envoy.NamedForMetrics(envoy.BlackHole),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       in.mesh.Config.GetConnectTimeout(),
	}
	out := []*envoy.Part{fixedPart(blackHole, nil, nil)}
	if in.router {
		return out
	}
	out = append(out, fixedPart(in.passthrough(envoy.Passthrough), nil, nil))
	if in.resolvesUnknown {
		out = append(out, fixedPart(in.unknownHosts(), nil, nil))
	}
	if in.interception != push.None {
		c := in.passthrough(envoy.InboundPassthrough)
		c.UpstreamBindConfig = inboundSource(in.interception, in.families)
		out = append(out, fixedPart(c, nil, nil))
	}
	return out
}

// passthrough goes where the client had connected to, in the protocol that it spoke.
func (in clusterIn) passthrough(name string) *clusterv3.Cluster {
	c, h := in.undeclared(name)
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	h.apply(c)
	return c
}

// unknownHosts goes to the hosts that requests name. Source: Istio, buildAllowAnyDFPCluster.
func (in clusterIn) unknownHosts() *clusterv3.Cluster {
	c, h := in.undeclared(envoy.UnknownHosts)
	c.AltStatName = envoy.UnknownHosts + statsEnd
	shape := clusterShape{protocol: registry.HTTP, mesh: in.mesh, families: in.families,
		policy: destination.Policy{Tls: in.mesh.Config.GetOutboundTrafficPolicy().GetTls()}}
	shape.applyTLS(c, h, nil)
	shape.resolveHosts(c, h)
	h.apply(c)
	return c
}

// undeclared is what clusters of destinations that nobody declared have in common.
func (in clusterIn) undeclared(name string) (*clusterv3.Cluster, *upstreamHTTP) {
	c := &clusterv3.Cluster{Name: name, Metadata: envoy.NamedForMetrics(name), ConnectTimeout: in.mesh.Config.GetConnectTimeout()}
	h := &upstreamHTTP{protocol: upstreamAsClient}
	in.proxy.apply(c, h)
	h.common.IdleTimeout = durationpb.New(passthroughIdle)
	applyPool(c, h, in.mesh.Config.GetDefaultTrafficPolicy().GetConnectionPool(), in.mesh)
	return c, h
}

// inboundSource is the source address of connections to the workload. The host does not redirect
// it, so they do not come back to the proxy; nil where nothing is redirected. Source: Istio,
// 127.0.0.6 and ::6. With TPROXY it is ::1 for IPv6, which every machine has.
func inboundSource(i push.Interception, f envoy.Families) *corev3.BindConfig {
	source := func(ip string) *corev3.SocketAddress { return envoy.SocketAddress(ip, 0).GetSocketAddress() }
	v4, v6 := source("127.0.0.6"), source("::6")
	switch i {
	case push.None:
		return nil
	case push.TProxy:
		f, v6 = envoy.DualStack, source("::1")
	case push.TProxyIPv4:
		f = envoy.OnlyV4
	}
	switch f {
	case envoy.OnlyV6:
		return &corev3.BindConfig{SourceAddress: v6}
	case envoy.DualStack:
		return &corev3.BindConfig{SourceAddress: v4, ExtraSourceAddresses: []*corev3.ExtraSourceAddress{{Address: v6}}}
	default:
		return &corev3.BindConfig{SourceAddress: v4}
	}
}
