package push

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/registry"
)

// Scope returns the scope of proxies with facets f.
func (c *Context) Scope(f Facets) *Scope {
	v := c.viewOf(f)
	return c.tables.scope.Get(Scope{
		Facets: f, Mesh: c.in.Mesh, Destinations: v.destinations, Egress: v.egress, Endpoints: c.in.Endpoints,
		NetworkGateways:     c.networkGatewaysFor(f),
		PeerAuthentications: c.peerPolicies(), InboundListeners: c.inboundListeners(),
		Trust: c.in.Trust, Keys: c.in.Keys,
	})
}

// view is the part of a scope that does not depend on endpoints, nor on facts specific to one
// proxy.
type view struct {
	destinations *Destinations
	egress       *intern.List[*Egress]
	// byLocality means that a destination orders its endpoints by the client's locality.
	byLocality bool
	// failoverKeys lists the labels by which a destination orders its endpoints.
	failoverKeys *intern.List[string]
	// all is referenced so that its memo keeps it, for other views of the namespace.
	all *visible
}

// viewIn holds everything that a view depends on.
type viewIn struct {
	tables    *tables
	mesh      *Mesh
	services  *serviceView
	routes    *routeView
	rules     *ruleView
	selected  *intern.List[*config.Object] // Facets.Rules
	typ       NodeType
	namespace string
	cluster   string
	sidecar   *SidecarConfig
	gateways  *intern.List[GatewayServer]
	// providers lists the extension providers that the proxy may call.
	providers *intern.List[*mesh.MeshConfig_ExtensionProvider]
}

// identityViewIn holds everything that the view of proxies with an identity depends on. It has a
// separate memo, because identities change if any service gets its first endpoint or loses its
// last.
type identityViewIn struct {
	tables     *tables
	view       *view
	identities identities
}

// newIdentityView returns a view whose destinations have the identities of their endpoints.
func newIdentityView(in identityViewIn) *view {
	v := *in.view
	list := slices.Clone(v.destinations.Items())
	for i := range list {
		list[i].Identities = in.identities.byService.At(list[i].Service.Key)
	}
	v.destinations = in.tables.listOf.Get(Destinations{in.tables.destinations.Of(list)})
	return &v
}

// contextCache keeps the computed results of a context in memory. It does not reference the
// context, so that older contexts can be freed.
type contextCache struct {
	services func() *serviceView
	routes   func() *routeView
	rules    func() *ruleView
	used     atomic.Bool

	views         sync.Map // viewIn -> *view
	identityViews sync.Map // identityViewIn -> *view
	servers       sync.Map // serverViewIn -> *serverView
	filters       sync.Map // filterViewIn -> *filterView
	proxyConfigs  sync.Map // proxyConfigIn -> *proxySettings
	versions      sync.Map // pattern of EnvoyFilters -> *regexp.Regexp
}

func newContextCache(c *Context) *contextCache {
	t, services, routes := c.tables, serviceViewIn{c.in.Mesh, c.in.Services}, c.virtual.byKey
	rules := ruleViewIn{mesh: c.in.Mesh, rules: c.rules, services: c.in.Services, tables: c.tables}
	return &contextCache{
		services: sync.OnceValue(func() *serviceView { return t.serviceView.Get(services) }),
		routes:   sync.OnceValue(func() *routeView { return t.routeView.Get(routes) }),
		rules:    sync.OnceValue(func() *ruleView { return t.ruleView.Get(rules) }),
	}
}

func (c *Context) viewOf(f Facets) *view {
	c.cache.used.Store(true)
	in := viewIn{
		tables: c.tables, mesh: c.in.Mesh, services: c.cache.services(), routes: c.cache.routes(), rules: c.cache.rules(),
		selected: f.Rules, typ: f.Type, namespace: f.Namespace, cluster: f.Cluster, sidecar: f.Sidecar, gateways: f.Gateways,
		providers: c.providersFor(f),
	}
	v := keep(&c.cache.views, c.tables.view, in)
	if !f.Identity {
		return v
	}
	return keep(&c.cache.identityViews, c.tables.identityView, identityViewIn{c.tables, v, c.identities})
}

// keep returns the result of f, and keeps it in the map of a context.
func keep[In comparable, Out any](results *sync.Map, f *memo.Func[In, Out], in In) *Out {
	if v, ok := results.Load(in); ok {
		return v.(*Out)
	}
	v := f.Get(in)
	results.Store(in, v)
	return v
}

func newView(in viewIn) *view {
	all := in.tables.visible.Get(visibleIn{in.tables, in.services, in.namespace, in.cluster})
	var (
		egress []*Egress
		called []*registry.Service
		// forwarded are services to which a router forwards connections.
		forwarded []*registry.Service
	)
	switch {
	case in.typ == Router:
		called, forwarded = referenced(all, in.gateways), forwardedBy(all, in.gateways)
	case in.sidecar == nil:
		egress = []*Egress{in.tables.egressOf.Get(Egress{Services: all.list, Routes: in.meshRoutes(nil)})}
		called = all.list.Items()
	default:
		egress, called = in.imported(all)
	}
	for _, p := range in.providers.Items() {
		called = withProvider(all, called, p)
	}
	v := &view{egress: in.tables.egress.Of(egress), all: all}
	v.destinations = in.destinations(called, forwarded)
	v.byLocality, v.failoverKeys = in.localityFacts(v.destinations)
	return v
}

// meshRoutes returns the VirtualServices for sidecars that the namespace sees and for which keep
// returns true. A nil keep keeps all.
func (in viewIn) meshRoutes(keep func(*VirtualService) bool) *intern.List[*VirtualService] {
	return in.tables.routes.Of(in.routes.visible(in.namespace, func(vs *VirtualService) bool {
		return vs.boundTo(MeshGateway) && (keep == nil || keep(vs))
	}))
}

// destinations returns the services with the rule of each. Both lists are sorted by host.
func (in viewIn) destinations(called, forwarded []*registry.Service) *Destinations {
	rule := func(s *registry.Service) *DestinationRule {
		return in.rules.find(in.namespace, s, in.selected.Items())
	}
	list := make([]Destination, len(called))
	for i, s := range called {
		list[i] = Destination{Service: s, Rule: rule(s)}
	}
	for _, s := range forwarded {
		i, routed := slices.BinarySearchFunc(list, s.Host, byHost)
		if !routed {
			list = slices.Insert(list, i, Destination{Service: s, Rule: rule(s), Unrouted: true})
		}
		list[i].Forwarded = true
	}
	return in.tables.listOf.Get(Destinations{in.tables.destinations.Of(list)})
}

// localityFacts returns whether endpoints are ordered by the client's locality, and the labels by
// which they are ordered. A false positive only prevents proxies from sharing resources.
func (in viewIn) localityFacts(d *Destinations) (byLocality bool, keys *intern.List[string]) {
	var labels []string
	// add adds the settings of a DestinationRule or of the mesh.
	add := func(lb interface {
		GetLocalityLbSetting() *networking.LocalityLoadBalancerSetting
		GetZoneAwareLbSetting() *networking.ZoneAwareLoadBalancerSetting
	}) {
		locality, zones := lb.GetLocalityLbSetting(), lb.GetZoneAwareLbSetting()
		byLocality = byLocality || len(locality.GetDistribute()) > 0 || zones != nil
		for _, p := range slices.Concat(locality.GetFailoverPriority(), zones.GetFailoverPriority()) {
			key, _, _ := strings.Cut(p, "=")
			labels = append(labels, key)
		}
	}
	add(in.mesh.Config)
	byLocality = byLocality || in.mesh.Config.GetDefaultTrafficPolicy().GetOutlierDetection() != nil
	policy := func(p *networking.TrafficPolicy) {
		byLocality = byLocality || p.GetOutlierDetection() != nil
		add(p.GetLoadBalancer())
		for _, port := range p.GetPortLevelSettings() {
			byLocality = byLocality || port.OutlierDetection != nil
			add(port.GetLoadBalancer())
		}
	}
	for _, dest := range d.Items() {
		if dest.Service.Distribution != "" {
			byLocality, labels = true, append(labels, registry.NetworkLabel)
		}
		if dest.Rule == nil {
			continue
		}
		policy(dest.Rule.Spec.TrafficPolicy)
		for _, s := range dest.Rule.Spec.Subsets {
			policy(s.TrafficPolicy)
		}
	}
	slices.Sort(labels)
	return byLocality, in.tables.strings.Of(slices.Compact(labels))
}

// visible holds the services that one namespace sees.
type visible struct {
	list   *intern.List[*registry.Service]
	byHost map[string]*registry.Service
}

type visibleIn struct {
	tables             *tables
	services           *serviceView
	namespace, cluster string
}

// localIn is a service, and a cluster for which it has other virtual IPs.
type localIn struct {
	service *registry.Service
	cluster string
}

func newVisible(in visibleIn) *visible {
	services := in.services.visible(in.namespace)
	for i, s := range services {
		if s.OtherAddresses[in.cluster] != nil {
			services[i] = in.tables.local.Get(localIn{s, in.cluster})
		}
	}
	v := &visible{list: in.tables.services.Of(services), byHost: make(map[string]*registry.Service, len(services))}
	for _, s := range services {
		v.byHost[s.Host] = s
	}
	return v
}

// serverView holds the gateway servers of equal routers.
type serverView struct{ list *intern.List[GatewayServer] }

type serverViewIn struct {
	tables    *tables
	routes    *routeView
	gateways  *intern.List[*config.Object]
	targets   *intern.List[portTarget]
	namespace string
}

// referenced returns the services that the routes of gateway servers name, sorted by host.
func referenced(all *visible, servers *intern.List[GatewayServer]) []*registry.Service {
	hosts := map[string]bool{}
	for _, s := range servers.Items() {
		for _, vs := range s.Routes.Items() {
			for d := range destinations(vs.Spec) {
				hosts[d.Host] = true
			}
		}
	}
	return pick(all, hosts)
}

// pick returns the services of all with one of these hosts, sorted by host.
func pick(all *visible, hosts map[string]bool) []*registry.Service {
	out := make([]*registry.Service, 0, len(hosts))
	for h := range hosts {
		if s := all.byHost[h]; s != nil {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *registry.Service) int { return strings.Compare(a.Host, b.Host) })
	return out
}
