package push

import (
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/registry"
)

// tables remember results and equal values. A context shares them with all contexts that are built
// from it. They never change a result: each is remembered under its whole input.
type tables struct {
	labels       intern.Lists[Label]
	objects      intern.Lists[*config.Object]
	ports        intern.Lists[namedPort]
	workloads    intern.Lists[workload]
	inbound      intern.Lists[Inbound]
	services     intern.Lists[*registry.Service]
	routes       intern.Lists[*VirtualService]
	egress       intern.Lists[*Egress]
	servers      intern.Lists[GatewayServer]
	targets      intern.Lists[portTarget]
	sources      intern.Lists[any]
	strings      intern.Lists[string]
	destinations intern.Lists[Destination]

	own          *memo.Func[Own, Own]
	egressOf     *memo.Func[Egress, Egress]
	listOf       *memo.Func[destinationsKey, Destinations]
	merged       *memo.Func[mergeIn, DestinationRule]
	serviceView  *memo.Func[serviceViewIn, serviceView]
	routeView    *memo.Func[routeViewIn, routeView]
	ruleView     *memo.Func[ruleViewIn, ruleView]
	serverView   *memo.Func[serverViewIn, serverView]
	visible      *memo.Func[visibleIn, visible]
	view         *memo.Func[viewIn, view]
	identityView *memo.Func[identityViewIn, view]
	scope        *memo.Func[Scope, Scope]

	identities   intern.Lists[Identity]
	peerPolicies *memo.Func[peerPoliciesIn, PeerPolicies]

	inboundListeners *memo.Func[inboundListenersIn, InboundListeners]
}

// destinationsKey gives lists of destinations their identity.
type destinationsKey struct{ list *intern.List[Destination] }

func newTables() *tables {
	return &tables{
		own:          memo.New(func(o Own) *Own { return &o }),
		egressOf:     memo.New(func(e Egress) *Egress { return &e }),
		listOf:       memo.New(func(k destinationsKey) *Destinations { return &Destinations{list: k.list} }),
		merged:       memo.New(mergeRules),
		serviceView:  memo.New(newServiceView),
		routeView:    memo.New(newRouteView),
		ruleView:     memo.New(newRuleView),
		serverView:   memo.New(newServerView),
		visible:      memo.New(newVisible),
		view:         memo.New(newView),
		identityView: memo.New(newIdentityView),
		scope:        memo.New(func(s Scope) *Scope { return &s }),

		peerPolicies: memo.New(newPeerPolicies),

		inboundListeners: memo.New(newInboundListeners),
	}
}
