package cluster

import (
	"unique"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/endpoint"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
)

// Generator makes the clusters: for every destination one for each port, and for each port and
// subset; and one for each port of the workload.
type Generator struct {
	indexes *destination.Indexes
	pools   intern.Lists[inboundPool]

	clusters *memo.Func[clusterSpec, envoy.Part]
	shapes   *memo.Func[clusterShape, encodedShape]
}

// New makes a Generator.
func New(indexes *destination.Indexes) *Generator {
	g := &Generator{indexes: indexes, shapes: memo.New(encodeShape)}
	g.clusters = memo.New(g.buildCluster)
	return g
}

// clusterIn is everything that the clusters depend on that equal proxies share. Endpoints matter
// only where clusters carry them: the names that a proxy resolves.
type clusterIn struct {
	generator    *Generator
	destinations *push.Destinations
	mesh         *push.Mesh
	router       bool
	interception push.Interception
	families     envoy.Families
	// identity says that the proxy has a certificate of the mesh.
	identity bool
	proxy    proxySettings
	// resolvesUnknown is destination.ResolvesUnknown.
	resolvesUnknown bool
	// endpoints are those of destinations.Index.DNS, in that order; nil: there are none, and the rest
	// is not set either.
	endpoints *intern.List[*registry.EndpointList]
	// client is set only when the order of endpoints depends on it.
	client destination.Client
	// peers are the policies by which endpoints may not take mutual TLS.
	peers *push.PeerPolicies
	// inbound are the inbound listeners of endpoints to which nothing is redirected.
	inbound *push.InboundListeners
	// gateways are those of other networks.
	gateways *push.NetworkGateways
}

// Plans implements envoy.Kind.
func (g *Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	index := g.indexes.Of(sc)
	in := clusterIn{
		generator: g, destinations: sc.Destinations, mesh: sc.Mesh, router: sc.Type == push.Router,
		interception: sc.Interception, families: envoy.FamiliesOf(sc), identity: sc.Identity, proxy: settingsOf(sc),
		endpoints: g.indexes.Endpoints(index.DNS, sc), resolvesUnknown: destination.ResolvesUnknown(sc),
	}
	if len(index.DNS) > 0 {
		in.gateways = sc.NetworkGateways
	}
	if len(index.DNS) > 0 && in.identity {
		in.peers, in.inbound = sc.PeerAuthentications.Disabling(), sc.InboundListeners
	}
	if index.Ordered {
		in.client = destination.ClientOf(sc)
	}
	if sc.Own != nil {
		own = workloadIn{Workload: workload.Of(sc), mesh: sc.Mesh, pools: g.poolsOf(sc), proxy: settingsOf(sc)}
	}
	return in, own
}

// clusterSpec is everything that one outbound cluster is made of. Comparable.
type clusterSpec struct {
	service *registry.Service
	port    uint32
	// the small ones stand together: what is not larger than 128 bytes is kept without an
	// allocation of its own
	router bool
	// forwarded is a cluster to which a router forwards the TLS connections of clients.
	forwarded bool
	mutual    destination.Mutual // whether mutual TLS is spoken
	// anyName says that no endpoint names a service account, where mutual TLS is spoken.
	anyName bool
	proxy   proxySettings
	// families is set only where the proxy resolves names.
	families envoy.Families
	subset   *networking.Subset
	policy   destination.Policy
	// rule is the object that decides the policy, for people; nil: none.
	rule *config.Object
	mesh *push.Mesh
	// identities are those with whom mutual TLS is spoken; nil where none is.
	identities *intern.List[push.Identity]
	// carried are the endpoints that the cluster carries; the zero value: it carries none.
	carried unique.Handle[endpoint.Assignment]
}

// Layer makes the layer that equal proxies share.
func (in clusterIn) Layer() *envoy.Layer {
	parts := in.fixed()
	next := 0
	for _, d := range in.destinations.Items() {
		spec := clusterSpec{service: d.Service, mesh: in.mesh, router: in.router, proxy: in.proxy,
			rule: destination.Deciding(d.Rule)}
		carried := endpoint.Assignment{Service: d.Service, Cluster: in.mesh.Cluster(), Gateways: in.gateways}
		dns := destination.IsDNS(d.Service.Resolution)
		if dns {
			carried.Endpoints, spec.families = in.endpoints.Items()[next], in.families
			next++
		}
		if d.Service.Resolution == registry.DynamicDNS {
			spec.families = in.families
		}
		destination.EachCluster(d, func(port uint32, s *networking.Subset, forwarded bool) {
			spec.forwarded = forwarded
			spec.port, spec.subset, spec.policy = port, s, destination.PolicyFor(d.Rule, s, port).OrDefaults(d.Service, in.mesh)
			spec = spec.withMutual(in.identity, d.Identities)
			if dns {
				carried.Port, carried.Subset, carried.Forwarded = port, s, forwarded
				carried.Order = destination.OrderOf(spec.policy.Order(in.mesh), in.client)
				carried.Mutual, carried.Peers, carried.Inbound = spec.mutual, nil, nil
				if spec.mutual == destination.MutualAuto {
					carried.Peers = in.peers
				}
				if spec.mutual == destination.MutualAuto && d.Identities.Unintercepted {
					carried.Inbound = in.inbound
				}
				spec.carried = unique.Make(carried)
			}
			parts = append(parts, in.generator.clusters.Get(spec))
		})
	}
	return envoy.LayerOf(parts)
}
