package cluster

import (
	"cmp"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/endpoint"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// clusterShape is what a cluster is besides its name, its metadata and the endpoints that it
// carries. Most clusters of a mesh have one of a few shapes, which is then encoded once.
type clusterShape struct {
	discovery destination.Discovery
	protocol  registry.Protocol
	policy    destination.Policy
	mesh      *push.Mesh
	router    bool
	proxy     proxySettings
	families  envoy.Families
	// upstreamPort replaces the port of the client's destination; zero: it stays. Only for
	// byOriginal.
	upstreamPort uint32
	// names is the service whose subjectAltNames matter; nil: they do not.
	names *registry.Service
	// peer is the host that the endpoints have to prove where no request names one; empty: they are
	// not spoken to by TLS.
	peer string
}

// encodedShape is a shape as part of an encoded cluster.
type encodedShape struct {
	bytes []byte
	// mutual is the TLS context of clusters that speak mutual TLS, but for the names.
	mutual []byte
	// err, when not nil, says why Envoy would refuse a cluster of the shape.
	err error
}

// buildCluster makes the cluster of a spec. Envoy's limit for the first answer of its endpoints
// stays (15s): without one a cluster could stand still for ever.
func (g *Generator) buildCluster(s clusterSpec) *envoy.Part {
	name := destination.ClusterName(s.service.Host, s.port, s.subset, s.forwarded)
	shape := s.shape()
	var refs []resource.Ref
	if shape.discovery == destination.ByEDS {
		refs = []resource.Ref{{TypeURL: resource.EndpointType, Name: name}}
	}
	var hosts []endpoint.Host
	if shape.discovery == destination.ByNames || shape.discovery == destination.ByName {
		hosts = s.carried.Value().Hosts(endpoint.Resolvable)
		if len(hosts) == 0 { // requests get a clear answer
			shape.discovery = destination.Nowhere
		}
		if shape.discovery == destination.ByName && len(hosts) > 1 { // Envoy takes exactly one
			hosts = hosts[:1]
		}
	}
	if s.mutual == destination.MutualClosed {
		shape.discovery, refs, hosts = destination.Nowhere, nil, nil
	}
	encoded := g.shapes.Get(shape)
	made := &envoy.Part{Held: encoded}
	if encoded.err != nil {
		made.Report(leftOut(name, s.rule, encoded.err))
		return made
	}
	switch s.mutual {
	case destination.MutualAuto, destination.MutualAlways:
		made.Report(s.anyNameProblem(name))
	case destination.MutualClosed:
		made.Report(s.withoutIdentity(name))
	}
	made.Resource = resource.New(resource.ClusterType, name, refs, func() []byte { return s.encode(name, encoded, hosts) })
	return made
}

func (s clusterSpec) reach() destination.Reach {
	return destination.Reach{Service: s.service, Policy: s.policy, Router: s.router}
}

// shape picks what the shape depends on.
func (s clusterSpec) shape() clusterShape {
	port, _ := s.service.Port(s.port)
	shape := clusterShape{
		discovery: s.reach().Discovery(), protocol: port.Protocol, policy: s.policy,
		mesh: s.mesh, router: s.router, proxy: s.proxy, families: s.families,
	}
	// Source: Istio, PassthroughTargetPorts
	if shape.discovery == destination.ByOriginal && s.service.Resolution == registry.Passthrough {
		shape.upstreamPort = port.TargetPort
	}
	if s.forwarded { // to Envoy these are bytes
		shape.protocol, shape.policy.Tls, shape.policy.Proxied = registry.TCP, nil, nil
	} else if destination.UsesTLS(s.policy.Tls) {
		shape.peer = s.service.Host
		if len(s.service.SubjectAltNames) > 0 {
			shape.names = s.service
		}
	}
	return shape
}

// statsEnd ends the name of a cluster in the names of its metrics. Hosts have dots as metrics do:
// without it nobody could tell what belongs to which. Source: Istio's clusters end so, and its
// proxies' bootstrap reads them.
const statsEnd = ";"

// encode is the message: what is the cluster's own, then what it has of its shape. Encoded messages
// that follow one another are one message that has the fields of both.
func (s clusterSpec) encode(name string, shape *encodedShape, hosts []endpoint.Host) []byte {
	own := &clusterv3.Cluster{Name: name, AltStatName: name + statsEnd}
	s.speakMutual(own, shape.mutual)
	if len(hosts) > 0 {
		own.LoadAssignment = s.carried.Value().Message(name, hosts)
	}
	metadata := clusterMetadata{
		rule: s.rule, port: s.port, external: s.service.External, services: []*registry.Service{s.service},
		subset: s.subset.GetName(),
	}
	return metadata.append(slices.Concat(resource.Encode(own), shape.bytes))
}

func encodeShape(s clusterShape) *encodedShape {
	c := s.cluster()
	out := &encodedShape{bytes: resource.Encode(c), mutual: resource.Encode(s.mutualTLS())}
	c.Name = "-"
	out.err = checkCluster(c)
	return out
}

// checkCluster finds why Envoy would refuse a cluster.
func checkCluster(c *clusterv3.Cluster) error {
	return cmp.Or(c.Validate(), envoy.CheckWrapped(c.TypedExtensionProtocolOptions), envoy.CheckWrapped(map[string]*anypb.Any{
		"transport_socket": c.GetTransportSocket().GetTypedConfig(), "cluster_type": c.GetClusterType().GetTypedConfig(),
	}))
}

// leftOut is the problem of a cluster that Envoy would refuse. o is the object that decides about it;
// nil: none.
func leftOut(name string, o *config.Object, err error) *feed.Problem {
	return envoy.Refused(o, "the cluster "+name+" is left out, so that connections to it fail", err)
}

// fixedPart is a cluster that is encoded as a whole, with its encoded metadata. o is as in leftOut.
func fixedPart(c *clusterv3.Cluster, o *config.Object, metadata []byte) *envoy.Part {
	made := &envoy.Part{}
	if err := checkCluster(c); err != nil {
		made.Report(leftOut(c.Name, o, err))
		return made
	}
	made.Resource = resource.New(resource.ClusterType, c.Name, nil, func() []byte {
		return slices.Concat(resource.Encode(c), metadata)
	})
	return made
}

// cluster is the message without what differs.
func (s clusterShape) cluster() *clusterv3.Cluster {
	c := &clusterv3.Cluster{ConnectTimeout: s.mesh.Config.GetConnectTimeout()}
	switch s.discovery {
	case destination.ByNames, destination.ByName:
		s.resolve(c)
	case destination.ByHost: // after its TLS
	case destination.Nowhere:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	case destination.ByOriginal:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
		c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		if s.upstreamPort != 0 {
			c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
				UpstreamPortOverride: wrapperspb.UInt32(s.upstreamPort),
			}}
		}
	default:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: envoy.FromADS()}
	}
	h := s.upstreamHTTP()
	s.proxy.apply(c, h)
	applyPool(c, h, s.policy.Pool, s.mesh)
	applyBudget(c, s.policy.Budget)
	applyOutliers(c, h, s.policy.Outlier)
	if s.discovery != destination.ByOriginal && s.discovery != destination.ByHost {
		applyBalancer(c, s.policy.Balance)
		applyWeights(c, s.policy.Order(s.mesh))
		applyZones(c, s.policy.Zones(s.mesh))
	}
	var names []string
	if s.names != nil {
		names = s.names.SubjectAltNames
	}
	s.applyTLS(c, h, names)
	if s.policy.Tls.GetMode() != networking.ClientTLSSettings_ISTIO_MUTUAL { // whose socket is not the shape's
		c.TransportSocket = proxied(c.TransportSocket, s.policy.Proxied)
	}
	if s.discovery == destination.ByHost {
		s.resolveHosts(c, h)
	}
	h.apply(c)
	return c
}
