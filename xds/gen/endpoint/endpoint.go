package endpoint

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes the load assignments: the endpoints of every cluster that gets them by EDS.
type Generator struct {
	plans       *memo.Func[assignmentIn, assignmentPlan]
	layers      *memo.Donor[*assignmentPlan, assignmentLayerIn, resource.Layer]
	assignments *memo.Func[Assignment, resource.Resource]
	orders      destination.Orderings
}

func New(orders destination.Orderings) *Generator {
	e := &Generator{assignments: memo.New(buildAssignment), orders: orders}
	e.plans = memo.New(e.plan)
	e.layers = memo.NewDonor(func(in assignmentLayerIn) *assignmentPlan { return in.plan }, e.build)
	return e
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
}

// assignmentPlan are the assignments of a scope, by service, without their endpoints.
type assignmentPlan struct {
	specs []Assignment
	// of are the specs of one service, as a range.
	of map[registry.Key][2]int
}

// assignmentLayerIn is everything that a layer depends on.
type assignmentLayerIn struct {
	plan      *assignmentPlan
	endpoints push.Endpoints
}

func (e *Generator) Set(sc *push.Scope) resource.Set {
	in := assignmentIn{destinations: sc.Destinations, mesh: sc.Mesh, router: sc.Type == push.Router,
		client: destination.ClientOf(sc), identity: sc.Identity}
	if in.identity {
		in.peers, in.inbound = sc.PeerAuthentications.Disabling(), sc.InboundListeners
	}
	plan := e.plans.Get(in)
	return resource.Set{Shared: e.layers.Get(assignmentLayerIn{plan, sc.Endpoints})}
}

// plan lists the clusters that get their endpoints by EDS.
func (e *Generator) plan(in assignmentIn) *assignmentPlan {
	p := &assignmentPlan{of: make(map[registry.Key][2]int, len(in.destinations.Items()))}
	for _, d := range in.destinations.Items() {
		first := len(p.specs)
		destination.EachCluster(d, func(port uint32, s *networking.Subset) {
			policy := destination.PolicyFor(d.Rule, s, port)
			to := destination.Reach{Service: d.Service, Policy: policy, Router: in.router}
			if to.Discovery() != destination.ByEDS {
				return
			}
			spec := Assignment{Service: d.Service, Port: port, Subset: s,
				Order: e.orders.Get(policy.Order(in.mesh), in.client)}
			if to.MutualTLS(in.mesh, in.identity, d.Identities) == destination.MutualAuto {
				spec.Mutual, spec.Peers = true, in.peers
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

// build makes the layer. Where there is an earlier one of the same plan, only the assignments of
// services whose endpoints differ are looked at, so that the cost is that of the changes.
func (e *Generator) build(in assignmentLayerIn, before *resource.Layer, was assignmentLayerIn) *resource.Layer {
	if before == nil {
		return e.buildAll(in)
	}
	var changed []*resource.Resource
	for ch := range in.endpoints.Diff(was.endpoints) {
		for _, spec := range in.plan.service(ch.Key) {
			spec.Endpoints = ch.New
			changed = append(changed, e.assignments.Get(spec))
		}
	}
	return before.With(changed)
}

func (e *Generator) buildAll(in assignmentLayerIn) *resource.Layer {
	items := make([]*resource.Resource, 0, len(in.plan.specs))
	var (
		key  registry.Key
		list *registry.EndpointList
	)
	for _, spec := range in.plan.specs {
		if spec.Service.Key != key {
			key = spec.Service.Key
			list = in.endpoints.At(key)
		}
		spec.Endpoints = list
		items = append(items, e.assignments.Get(spec))
	}
	return resource.NewLayer(items)
}

// service are the specs of one service.
func (p *assignmentPlan) service(k registry.Key) []Assignment {
	r := p.of[k]
	return p.specs[r[0]:r[1]]
}
