package cluster

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes the clusters: for every destination one for each port, and for each port and
// subset.
type Generator struct {
	resolved *memo.Func[resolvedIn, resolved]
	shared   *memo.Func[clusterIn, clusterLayer]
	outbound *memo.Func[clusterSpec, madeCluster]
	shapes   *memo.Func[clusterShape, encodedShape]
	peers    *memo.Func[peerSpec, encodedPeer]
	fixed    *memo.Func[fixedSpec, madeCluster]
	own      *memo.Func[workloadIn, clusterLayer]
	workload *memo.Func[workloadSpec, madeCluster]

	endpoints *intern.Lists[*registry.EndpointList]
	pools     *intern.Lists[inboundPool]
	services  *intern.Lists[*registry.Service]
	orders    destination.Orderings
}

func New(orders destination.Orderings) *Generator {
	c := &Generator{
		resolved:  memo.New(findResolved),
		shapes:    memo.New(encodeShape),
		peers:     memo.New(encodePeer),
		fixed:     memo.NewMarking(buildFixed, (*madeCluster).hasProblem),
		workload:  memo.NewMarking(buildWorkload, (*madeCluster).hasProblem),
		endpoints: &intern.Lists[*registry.EndpointList]{},
		pools:     &intern.Lists[inboundPool]{},
		services:  &intern.Lists[*registry.Service]{},
		orders:    orders,
	}
	c.outbound = memo.NewMarking(c.buildCluster, (*madeCluster).hasProblem)
	c.shared = memo.New(c.buildShared)
	c.own = memo.New(c.buildOwn)
	return c
}

// clusterIn is everything that the clusters depend on that equal proxies share. Endpoints matter
// only where clusters carry them: the names that a proxy resolves.
type clusterIn struct {
	resolved     *resolved
	router       bool
	interception push.Interception
	families     envoy.Families
	// identity says that the proxy has a certificate of the mesh.
	identity bool
	// caps are those of capDNSCluster, and set only when there are resolved.keys.
	caps push.Capabilities
	// endpoints are those of resolved.keys, in that order.
	endpoints *intern.List[*registry.EndpointList]
	// client is set only when resolved.ordered is.
	client destination.Client
	// peers are the policies by which endpoints may not take mutual TLS, set only when there are
	// resolved.keys.
	peers *push.PeerPolicies
	// inbound are the inbound listeners of endpoints to which nothing is redirected, set as peers
	// are.
	inbound *push.InboundListeners
}

func (c *Generator) Set(sc *push.Scope) resource.Set {
	r := c.resolved.Get(resolvedIn{sc.Destinations, sc.Mesh})
	in := clusterIn{
		resolved:     r,
		router:       sc.Type == push.Router,
		interception: sc.Interception,
		families:     envoy.FamiliesOf(sc),
		identity:     sc.Identity,
		endpoints:    destination.EndpointsOf(c.endpoints, r.keys, sc),
	}
	if len(r.keys) > 0 {
		in.caps = sc.Capabilities & envoy.DNSCluster
		if in.identity {
			in.peers, in.inbound = sc.PeerAuthentications.Disabling(), sc.InboundListeners
		}
	}
	if r.ordered {
		in.client = destination.ClientOf(sc)
	}
	return resource.Set{Shared: &c.shared.Get(in).Layer, Own: c.ownLayer(sc)}
}

// resolved are the destinations, and which of them are names that the proxy resolves by itself: the
// clusters of these carry their endpoints.
type resolved struct {
	destinations *push.Destinations
	mesh         *push.Mesh
	keys         []registry.Key
	// ordered says that the endpoints of some of keys are ordered by the client's place.
	ordered bool
}

type resolvedIn struct {
	destinations *push.Destinations
	mesh         *push.Mesh
}

func findResolved(in resolvedIn) *resolved {
	r := &resolved{destinations: in.destinations, mesh: in.mesh}
	for _, d := range in.destinations.Items() {
		if !destination.IsDNS(d.Service.Resolution) {
			continue
		}
		r.keys = append(r.keys, d.Service.Key)
		destination.EachCluster(d, func(port uint32, s *networking.Subset) {
			order := destination.PolicyFor(d.Rule, s, port).Order(in.mesh)
			r.ordered = r.ordered || order.Setting != nil
		})
	}
	return r
}

// clusterSpec is everything that one outbound cluster is made of. Comparable.
type clusterSpec struct {
	service *registry.Service
	port    uint32
	// the small ones stand together: what is not larger than 128 bytes is kept without an
	// allocation of its own
	router bool
	mutual destination.Mutual // whether mutual TLS is spoken
	// anyName says that no endpoint names a service account, where mutual TLS is spoken.
	anyName bool
	// families is set only where the cluster carries its endpoints, as are the last four.
	families envoy.Families
	subset   *networking.Subset
	policy   destination.Policy
	// rule is the object that decides the policy, for people; nil: none.
	rule *config.Object
	mesh *push.Mesh
	// identities are those with whom mutual TLS is spoken; nil where none is.
	identities *intern.List[push.Identity]
	caps       push.Capabilities
	endpoints  *registry.EndpointList
	order      *destination.Ordering
	peers      *push.PeerPolicies
	inbound    *push.InboundListeners
}

// madeCluster is a cluster, and the shape that an outbound one is encoded with.
type madeCluster struct {
	// resource is nil when the cluster is left out.
	resource *resource.Resource
	shape    *encodedShape
	peer     *encodedPeer
	// problem, when not nil, says why Envoy would refuse the cluster, or warns about it.
	problem *feed.Problem
}

func (c *madeCluster) hasProblem() bool { return c.problem != nil }

// clusterLayer is a layer of clusters together with what they were made of. Whoever holds the layer
// holds all of it (a pointer into a struct keeps the struct), so that the next clusters of these
// shapes are made of what is encoded already.
type clusterLayer struct {
	resource.Layer
	clusters []*madeCluster
}

// newClusterLayer is the layer of clusters.
func newClusterLayer(clusters []*madeCluster) *clusterLayer {
	items := make([]*resource.Resource, 0, len(clusters))
	for _, c := range clusters {
		if c.resource != nil {
			items = append(items, c.resource)
		}
	}
	return &clusterLayer{Layer: *resource.NewLayer(items), clusters: clusters}
}

// buildShared makes the layer that equal proxies share.
func (c *Generator) buildShared(in clusterIn) *clusterLayer {
	out := make([]*madeCluster, 0, 3*len(in.resolved.destinations.Items())+3)
	next := 0
	for _, d := range in.resolved.destinations.Items() {
		spec := clusterSpec{service: d.Service, mesh: in.resolved.mesh, router: in.router}
		dns := destination.IsDNS(d.Service.Resolution)
		if dns {
			spec.endpoints, spec.families, spec.caps = in.endpoints.Items()[next], in.families, in.caps
			next++
		}
		spec.rule = destination.Deciding(d.Rule)
		destination.EachCluster(d, func(port uint32, s *networking.Subset) {
			spec.port, spec.subset, spec.policy = port, s, destination.PolicyFor(d.Rule, s, port)
			spec = spec.withMutual(in.identity, d.Identities)
			if dns {
				spec.order = c.orders.Get(spec.policy.Order(in.resolved.mesh), in.client)
				spec.peers, spec.inbound = nil, nil
				if spec.mutual == destination.MutualAuto {
					spec.peers = in.peers
				}
				if spec.mutual == destination.MutualAuto && d.Identities.Unintercepted {
					spec.inbound = in.inbound
				}
			}
			out = append(out, c.outbound.Get(spec))
		})
	}
	return newClusterLayer(append(out, c.fixedOf(in)...))
}

// Refused are the clusters that Envoy would refuse, and those that lack what mutual TLS needs, among
// those that somebody holds.
func (c *Generator) Refused() []feed.Problem {
	var out []feed.Problem
	for _, made := range slices.Concat(c.outbound.Marked(), c.workload.Marked(), c.fixed.Marked()) {
		out = append(out, *made.problem)
	}
	return out
}
