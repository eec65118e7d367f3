package gen

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// endpoints makes the load assignments: the endpoints of every cluster that gets them by EDS.
type endpoints struct {
	plans       *memo.Func[assignmentIn, assignmentPlan]
	layers      *memo.Donor[*assignmentPlan, assignmentLayerIn, resource.Layer]
	assignments *memo.Func[assignmentSpec, resource.Resource]
	orders      orderings
}

func newEndpoints(orders orderings) *endpoints {
	e := &endpoints{assignments: memo.New(buildAssignment), orders: orders}
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
	client       client
	identity     bool
	// peers are the policies by which endpoints may not take mutual TLS; nil: none says so.
	peers *push.PeerPolicies
	// inbound are the inbound listeners of endpoints to which nothing is redirected.
	inbound *push.InboundListeners
}

// assignmentPlan are the assignments of a scope, by service, without their endpoints.
type assignmentPlan struct {
	specs []assignmentSpec
	// of are the specs of one service, as a range.
	of map[registry.Key][2]int
}

// assignmentLayerIn is everything that a layer depends on.
type assignmentLayerIn struct {
	plan      *assignmentPlan
	endpoints push.Endpoints
}

func (e *endpoints) set(sc *push.Scope) resource.Set {
	in := assignmentIn{destinations: sc.Destinations, mesh: sc.Mesh, router: sc.Type == push.Router,
		client: clientOf(sc), identity: sc.Identity}
	if in.identity {
		in.peers, in.inbound = sc.PeerAuthentications.Disabling(), sc.InboundListeners
	}
	plan := e.plans.Get(in)
	return resource.Set{Shared: e.layers.Get(assignmentLayerIn{plan, sc.Endpoints})}
}

// plan lists the clusters that get their endpoints by EDS.
func (e *endpoints) plan(in assignmentIn) *assignmentPlan {
	p := &assignmentPlan{of: make(map[registry.Key][2]int, len(in.destinations.Items()))}
	for _, d := range in.destinations.Items() {
		first := len(p.specs)
		eachCluster(d, func(port uint32, s *networking.Subset) {
			policy := policyFor(d.Rule, s, port)
			to := reach{service: d.Service, policy: policy, router: in.router}
			if to.discovery() != byEDS {
				return
			}
			spec := assignmentSpec{service: d.Service, port: port, subset: s,
				order: e.orders.get(policy.order(in.mesh), in.client)}
			if to.mutualTLS(in.mesh, in.identity, d.Identities) == mutualAuto {
				spec.mutual, spec.peers = true, in.peers
				if d.Identities.Unintercepted {
					spec.inbound = in.inbound
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
func (e *endpoints) build(in assignmentLayerIn, before *resource.Layer, was assignmentLayerIn) *resource.Layer {
	if before == nil {
		return e.buildAll(in)
	}
	var changed []*resource.Resource
	for ch := range in.endpoints.Diff(was.endpoints) {
		for _, spec := range in.plan.service(ch.Key) {
			spec.endpoints = ch.New
			changed = append(changed, e.assignments.Get(spec))
		}
	}
	return before.With(changed)
}

func (e *endpoints) buildAll(in assignmentLayerIn) *resource.Layer {
	items := make([]*resource.Resource, 0, len(in.plan.specs))
	var (
		key  registry.Key
		list *registry.EndpointList
	)
	for _, spec := range in.plan.specs {
		if spec.service.Key != key {
			key = spec.service.Key
			list = in.endpoints.At(key)
		}
		spec.endpoints = list
		items = append(items, e.assignments.Get(spec))
	}
	return resource.NewLayer(items)
}

// service are the specs of one service.
func (p *assignmentPlan) service(k registry.Key) []assignmentSpec {
	r := p.of[k]
	return p.specs[r[0]:r[1]]
}
