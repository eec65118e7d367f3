package gen

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// fixedSpec is a cluster that is for no service.
type fixedSpec struct {
	name     string
	mesh     *push.Mesh
	families families
	// caps are those of capHandshake.
	caps push.Capabilities
}

// fixedOf lists the clusters that every proxy has. Routers have no connections whose destination
// is known, so only what refuses; without redirection nothing arrives that is for no listener.
func (c *clusters) fixedOf(in clusterIn) []*madeCluster {
	spec := fixedSpec{name: blackHole, mesh: in.resolved.mesh}
	out := []*madeCluster{c.fixed.Get(spec)}
	if in.router {
		return out
	}
	spec.name = passthrough
	out = append(out, c.fixed.Get(spec))
	if in.interception == push.None {
		return out
	}
	spec.name, spec.families, spec.caps = inboundPassthrough, in.families, in.handshakes
	return append(out, c.fixed.Get(spec))
}

func buildFixed(s fixedSpec) *madeCluster {
	c, problem := orClosed(s.cluster(), nil)
	return &madeCluster{resource: resource.New(ClusterType, s.name, nil, func() []byte { return resource.Encode(c) }), problem: problem}
}

// cluster is the message.
func (s fixedSpec) cluster() *clusterv3.Cluster {
	if s.name == blackHole {
		return s.empty()
	}
	c := s.passthrough()
	if s.name == inboundPassthrough {
		c.UpstreamBindConfig = s.families.loopback6()
		refuseMarked(c, s.caps)
	}
	return c
}

// empty has no endpoint, so that everything sent to it is refused.
func (s fixedSpec) empty() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 s.name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       s.mesh.Config.GetConnectTimeout(),
	}
}

// passthroughIdle is when an HTTP connection that carries nothing is closed. Source: Istio.
const passthroughIdle = 5 * time.Minute

// passthrough goes where the client had connected to, in the protocol that it spoke.
func (s fixedSpec) passthrough() *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 s.name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		ConnectTimeout:       s.mesh.Config.GetConnectTimeout(),
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
	}
	h := &upstreamHTTP{protocol: upstreamAsClient}
	h.common().IdleTimeout = durationpb.New(passthroughIdle)
	applyPool(c, h, nil, s.mesh)
	h.apply(c)
	return c
}

// loopback6 binds connections to the workload to addresses that the host does not redirect, so that
// they do not come back to the proxy. Source: Istio, 127.0.0.6 and ::6.
func (f families) loopback6() *corev3.BindConfig {
	source := func(ip string) *corev3.SocketAddress { return socketAddress(ip, 0).GetSocketAddress() }
	switch f {
	case onlyV6:
		return &corev3.BindConfig{SourceAddress: source("::6")}
	case dualStack:
		return &corev3.BindConfig{SourceAddress: source("127.0.0.6"), ExtraSourceAddresses: []*corev3.ExtraSourceAddress{{Address: source("::6")}}}
	default:
		return &corev3.BindConfig{SourceAddress: source("127.0.0.6")}
	}
}
