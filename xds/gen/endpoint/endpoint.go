package endpoint

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes the load assignments: the endpoints of every cluster that gets them by EDS.
type Generator struct {
	layers      *memo.Donor[assignmentIn, layerIn, assignmentLayer]
	assignments *memo.Func[Assignment, resource.Resource]
}

// New makes a Generator.
func New() *Generator {
	g := &Generator{assignments: memo.New(buildAssignment)}
	g.layers = memo.NewDonor(func(in layerIn) assignmentIn { return in.assignmentIn }, g.build)
	return g
}

// assignmentIn is everything that the choice of assignments depends on; endpoints are not part of
// it.
type assignmentIn struct {
	destinations *push.Destinations
	mesh         *push.Mesh
	router       bool
	client       destination.Client
	identity     bool
	// peers are the policies by which endpoints may not take mutual TLS; nil: none says so.
	peers *push.PeerPolicies
	// inbound are the inbound listeners of endpoints to which nothing is redirected.
	inbound *push.InboundListeners
	// gateways are those of other networks.
	gateways *push.NetworkGateways
}

// layerIn is everything that a layer depends on.
type layerIn struct {
	generator *Generator
	assignmentIn
	endpoints push.Endpoints
}

// assignmentLayer is a layer, and the assignments of a scope without their endpoints.
type assignmentLayer struct {
	envoy.Layer
	specs []Assignment
	// of are the specs of one service, as a range.
	of map[registry.Key][2]int
}

// Plans implements envoy.Kind.
func (g *Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	in := assignmentIn{destinations: sc.Destinations, mesh: sc.Mesh, router: sc.Type == push.Router,
		client: destination.ClientOf(sc), identity: sc.Identity, gateways: sc.NetworkGateways}
	if in.identity {
		in.peers, in.inbound = sc.PeerAuthentications.Disabling(), sc.InboundListeners
	}
	if sc.SelfDiscovery && sc.Own != nil {
		own = localOf(sc)
	}
	return layerIn{g, in, sc.Endpoints}, own
}

// Layer implements envoy.Plan.
func (in layerIn) Layer() *envoy.Layer { return &in.generator.layers.Get(in).Layer }

// plan lists the clusters that get their endpoints by EDS.
func (in assignmentIn) plan() *assignmentLayer {
	p := &assignmentLayer{of: make(map[registry.Key][2]int, len(in.destinations.Items()))}
	for _, d := range in.destinations.Items() {
		first := len(p.specs)
		destination.EachCluster(d, func(port uint32, s *networking.Subset, forwarded bool) {
			policy := destination.PolicyFor(d.Rule, s, port).OrDefaults(d.Service, in.mesh)
			to := destination.Reach{Service: d.Service, Policy: policy, Router: in.router}
			if to.Discovery() != destination.ByEDS {
				return
			}
			spec := Assignment{Service: d.Service, Port: port, Subset: s, Cluster: in.mesh.Cluster(),
				Order: destination.OrderOf(policy.Order(in.mesh), in.client), Gateways: in.gateways, Forwarded: forwarded}
			if spec.Mutual = to.MutualTLS(in.mesh, in.identity, d.Identities); spec.Mutual == destination.MutualAuto {
				spec.Peers = in.peers
				if d.Identities.Unintercepted {
					spec.Inbound = in.inbound
				}
			}
			p.specs = append(p.specs, spec)
		})
		if len(p.specs) > first {
			p.of[d.Service.Key] = [2]int{first, len(p.specs)}
		}
	}
	return p
}

// build makes the layer. Where there is an earlier one that differs in endpoints alone, only the
// assignments of services whose endpoints differ are looked at, so that the cost is that of the
// changes.
func (g *Generator) build(in layerIn, before *assignmentLayer, was layerIn) *assignmentLayer {
	if before == nil {
		p := in.plan()
		items := make([]*resource.Resource, len(p.specs))
		for i, spec := range p.specs {
			spec.Endpoints = in.endpoints.At(spec.Service.Key)
			items[i] = g.assignments.Get(spec)
		}
		p.Layer = *envoy.NewLayer(items...)
		return p
	}
	var changed []*resource.Resource
	for ch := range in.endpoints.Diff(was.endpoints) {
		r := before.of[ch.Key]
		for _, spec := range before.specs[r[0]:r[1]] {
			spec.Endpoints = ch.New
			changed = append(changed, g.assignments.Get(spec))
		}
	}
	out := *before
	out.Layer.Layer = *before.With(changed)
	return &out
}
