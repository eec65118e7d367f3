package push

import (
	"regexp"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// tables holds memoized results and interned values. A context shares it with all contexts that are
// built from it. The key of each result is its whole input.
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
	providers    intern.Lists[*mesh.MeshConfig_ExtensionProvider]
	patches      intern.Lists[Patch]
	gateways     intern.Lists[networkGateway]

	own          *memo.Func[Own, Own]
	egressOf     *memo.Func[Egress, Egress]
	listOf       *memo.Func[Destinations, Destinations]
	merged       *memo.Func[mergeIn, DestinationRule]
	serviceView  *memo.Func[serviceViewIn, serviceView]
	routeView    *memo.Func[pmap.Map[config.Key, *VirtualService], routeView]
	ruleView     *memo.Func[ruleViewIn, ruleView]
	serverView   *memo.Func[serverViewIn, serverView]
	visible      *memo.Func[visibleIn, visible]
	local        *memo.Func[localIn, registry.Service]
	view         *memo.Func[viewIn, view]
	identityView *memo.Func[identityViewIn, view]
	scope        *memo.Func[Scope, Scope]
	gatewaysOf   *memo.Func[networkGatewaysIn, NetworkGateways]

	proxySettings *memo.Func[proxyConfigIn, proxySettings]
	proxyConfigs  *memo.Func[string, mesh.ProxyConfig] // by encoding

	identities   intern.Lists[Identity]
	peerPolicies *memo.Func[PeerPolicies, PeerPolicies]

	inboundListeners *memo.Func[InboundListeners, InboundListeners]

	filterView *memo.Func[filterViewIn, filterView]
	extensions *memo.Func[*config.Object, networking.EnvoyFilter]
	versions   *memo.Func[string, regexp.Regexp]
}

func newTables() *tables {
	return &tables{
		own:          memo.New(pointer[Own]),
		egressOf:     memo.New(pointer[Egress]),
		listOf:       memo.New(pointer[Destinations]),
		merged:       memo.New(mergeRules),
		serviceView:  memo.New(newServiceView),
		routeView:    memo.New(newRouteView),
		ruleView:     memo.New(newRuleView),
		serverView:   memo.New(newServerView),
		visible:      memo.New(newVisible),
		local:        memo.New(func(in localIn) *registry.Service { return in.service.In(in.cluster) }),
		view:         memo.New(newView),
		identityView: memo.New(newIdentityView),
		scope:        memo.New(pointer[Scope]),
		gatewaysOf:   memo.New(newNetworkGateways),

		proxySettings: memo.New(newProxySettings),
		proxyConfigs:  memo.New(decodeProxyConfig),

		peerPolicies: memo.New(newPeerPolicies),

		inboundListeners: memo.New(pointer[InboundListeners]),

		filterView: memo.New(newFilterView),
		extensions: memo.New(config.ExtensionPatches),
		versions:   memo.New(compileVersion),
	}
}

// pointer returns a pointer to v. Memoized, it returns one pointer for equal values.
func pointer[T any](v T) *T { return &v }
