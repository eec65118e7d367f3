package push_test

import (
	"fmt"
	"net/netip"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

func testMesh() *push.Mesh {
	return &push.Mesh{Config: &mesh.MeshConfig{RootNamespace: "root"}, Domain: "cluster.local"}
}

// editor makes inputs by small edits.
type editor struct {
	in   push.Inputs
	hash uint64
}

func newEditor() *editor {
	e := &editor{in: push.Inputs{Mesh: testMesh()}}
	var gateways []string
	for _, h := range hosts {
		gateways = append(gateways, "{registryServiceName: "+h+"}")
	}
	e.in.Mesh.Networks = networksOf("networks: {net: {gateways: [" + strings.Join(gateways, ", ") + "]}}")
	return e
}

func networksOf(text string) *push.Networks {
	m, problems := config.ParseNetworks("networks.yaml", []byte(text))
	if len(problems) > 0 {
		panic(problems)
	}
	return push.NewNetworks(m)
}

func (e *editor) put(kind config.Kind, namespace, name string, spec proto.Message) {
	e.hash++
	o := &config.Object{Key: config.Key{Kind: kind, Namespace: namespace, Name: name}, Spec: spec, Hash: e.hash}
	e.in.Objects = e.in.Objects.With(o.Key, o)
}

func (e *editor) remove(kind config.Kind, namespace, name string) {
	e.in.Objects = e.in.Objects.Without(config.Key{Kind: kind, Namespace: namespace, Name: name})
}

func (e *editor) service(namespace, host string, exportTo ...string) {
	k := registry.Key{Host: host, Namespace: namespace}
	e.in.Services = e.in.Services.With(k, &registry.Service{
		Key: k, ExportTo: exportTo, Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP,
			TargetPort: 8080}},
	})
}

func (e *editor) endpoints(namespace, host string, addresses ...string) {
	l := &registry.EndpointList{}
	for _, a := range addresses {
		l.Items = append(l.Items, registry.Endpoint{Address: a, Namespace: namespace})
	}
	e.in.Endpoints = e.in.Endpoints.With(registry.Key{Host: host, Namespace: namespace}, l)
}

var (
	labelLists   intern.Lists[push.Label]
	addressLists intern.Lists[netip.Addr]
)

func node(namespace, address string, labels ...string) push.Node {
	var ls []push.Label
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		ls = append(ls, push.Label{Key: k, Value: v})
	}
	return push.Node{
		Namespace: namespace,
		IPs:       addressLists.Of([]netip.Addr{netip.MustParseAddr(address)}),
		Labels:    labelLists.Of(ls),
		Locality:  registry.Locality{Region: "here"},
	}
}

// describe writes out what a proxy sees, by contents and not by pointers.
func describe(c *push.Context, n push.Node) string {
	var b strings.Builder
	f := c.Classify(n)
	sc := c.Scope(f)
	fmt.Fprintf(&b, "modes %v disabled %v\n", push.PeerModesOf(f.PeerAuthentication.Items(), "root",
		&intern.Lists[push.PortMode]{}).At(8080),
		sc.PeerAuthentications.Disabling().Disabled("a", map[string]string{"app": "web"}, 8080))
	fmt.Fprintf(&b, "inbound listener %v\n", sc.InboundListeners.At("a", map[string]string{"app": "web"}, 8080))
	fmt.Fprintf(&b, "namespace %q locality %q sources %d bind %v\n", f.Namespace, f.Locality, f.RouteSources.Len(),
		f.Bind)
	for _, l := range []*intern.List[*config.Object]{f.PeerAuthentication, f.RequestAuthentication,
		f.AuthorizationPolicy, f.Telemetry} {
		for _, o := range l.Items() {
			fmt.Fprintf(&b, "policy %v %d\n", o.Key, o.Hash)
		}
	}
	for _, p := range f.Patches.Items() {
		fmt.Fprintf(&b, "patch %v %d %d\n", p.Filter.Key, p.Filter.Hash, p.Index)
	}
	for _, o := range sc.PeerAuthentications.Of("a", map[string]string{"app": "web"}) {
		fmt.Fprintf(&b, "peers of a %v %d\n", o.Key, o.Hash)
	}
	if f.Sidecar != nil {
		fmt.Fprintf(&b, "sidecar %v\n", f.Sidecar.Object.Key)
	}
	if f.Own != nil {
		for _, i := range f.Own.Inbound.Items() {
			fmt.Fprintf(&b, "inbound %v %d -> %d mutual %v intercepted %v\n", i.Service.Key, i.Port.Number,
				i.TargetPort, i.Mutual, i.Intercepted)
		}
	}
	gateways, direct := sc.NetworkGateways.To("net")
	fmt.Fprintf(&b, "network %q, gateways of net %v, direct %v\n", f.Network, gateways, direct)
	for _, d := range sc.Destinations.Items() {
		fmt.Fprintf(&b, "destination %v exported to %v forwarded %v unrouted %v", d.Service.Key, d.Service.ExportTo,
			d.Forwarded, d.Unrouted)
		if d.Rule != nil {
			fmt.Fprintf(&b, " rule %s %v", d.Rule.Spec.Host, d.Rule.Spec.Subsets)
			for _, o := range d.Rule.From {
				fmt.Fprintf(&b, " from %v", o.Key)
			}
		}
		for _, id := range d.Identities.Names.Items() {
			fmt.Fprintf(&b, " identity %v %v %v", id, d.Identities.MutualTLS, d.Identities.Unintercepted)
		}
		if d.Identities.AnyName {
			b.WriteString(" unnamed")
		}
		for _, ep := range sc.Endpoints.At(d.Service.Key).All() {
			b.WriteString(" " + ep.Address)
		}
		b.WriteByte('\n')
	}
	for _, e := range sc.Egress.Items() {
		b.WriteString("egress")
		for _, s := range e.Services.Items() {
			fmt.Fprintf(&b, " %v", s.Key)
		}
		for _, vs := range e.Routes.Items() {
			fmt.Fprintf(&b, " %v%v%v%v", vs.Object.Key, vs.Spec.Hosts, vs.Spec.Gateways, vs.Spec.Http)
		}
		b.WriteByte('\n')
	}
	for _, g := range f.Gateways.Items() {
		fmt.Fprintf(&b, "server %v %d on %d", g.Gateway.Key, g.Server.GetPort().GetNumber(), g.Port)
		for _, vs := range g.Routes.Items() {
			fmt.Fprintf(&b, " %v", vs.Object.Key)
		}
		b.WriteByte('\n')
	}
	return strings.ReplaceAll(b.String(), "\u00a0", " ") // prototext puts either space
}

var (
	namespaces = []string{"a", "b", "root"}
	hosts      = []string{"one.a.svc.cluster.local", "two.b.svc.cluster.local", "x.example.com", "y.example.com"}
	exports    = [][]string{nil, {"*"}, {"."}, {"a"}, {"a", "b"}, {"~"}}
	addresses  = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "::1", "name.example.com"}
)

// edit makes one edit chosen by three numbers.
func (e *editor) edit(what, which, how byte) {
	ns, host, to := namespaces[int(which)%3], hosts[int(which/3)%4], exports[int(how)%6]
	name := fmt.Sprint("n", which%2)
	gone := how%7 == 6
	switch what % 8 {
	case 0:
		if gone {
			k := registry.Key{Host: host, Namespace: ns}
			e.in.Services, e.in.Endpoints = e.in.Services.Without(k), e.in.Endpoints.Without(k)
			return
		}
		e.service(ns, host, to...)
	case 1:
		e.endpoints(ns, host, addresses[:int(how)%len(addresses)]...)
		for i, ep := range e.in.Endpoints.At(registry.Key{Host: host, Namespace: ns}).Items {
			ep.ServiceAccount = []string{"", "web", "db"}[(int(how)/5+i)%3]
			ep.TLSMode = []string{"", "istio"}[int(how)/3%2]
			ep.Network = []string{"", "net", "other"}[int(how)/2%3]
			ep.Health = registry.Health(which % 3)
			if how%4 == 1 {
				ep.Labels = map[string]string{registry.InterceptionLabel: registry.InterceptionNone}
			}
			e.in.Endpoints.At(registry.Key{Host: host, Namespace: ns}).Items[i] = ep
		}
	case 2:
		if gone {
			e.remove(config.VirtualService, ns, name)
			return
		}
		vs := &networking.VirtualService{Hosts: []string{host, "short"}, ExportTo: to, Http: []*networking.HTTPRoute{{
			Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{Host: hosts[int(how/2)%4]}}},
		}}}
		if how%3 == 0 {
			vs.Gateways = []string{"gw", "mesh"}
		}
		if how%3 == 1 {
			vs.Http[0].Match = []*networking.HTTPMatchRequest{{SourceLabels: map[string]string{"app": "web"}}}
		}
		switch how % 9 {
		case 7:
			vs.Hosts = nil
		case 8:
			vs.Http = append(vs.Http, &networking.HTTPRoute{Delegate: &networking.Delegate{Name: fmt.Sprint("n", how/9%2),
				Namespace: namespaces[int(how)/3%3]}})
		}
		e.put(config.VirtualService, ns, name, vs)
	case 3:
		if gone {
			e.remove(config.DestinationRule, ns, name)
			return
		}
		if how%5 == 0 {
			host = "*.example.com"
		}
		rule := &networking.DestinationRule{Host: host, ExportTo: to,
			Subsets: []*networking.Subset{{Name: fmt.Sprint("v", how)}}}
		if how%4 == 3 {
			rule.WorkloadSelector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
		}
		e.put(config.DestinationRule, ns, name, rule)
	case 4:
		if gone {
			e.remove(config.Sidecar, ns, name)
			return
		}
		s := &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: []string{[]string{"./*", "*/*",
			"b/*", "*/*.example.com", "~/*"}[int(how)%5], []string{"~/none.test", "~b/*"}[int(how)/2%2]}}}}
		if how%4 == 1 {
			s.Ingress = []*networking.IstioIngressListener{{Port: &networking.SidecarPort{Number: 8080}}}
		}
		if how%3 == 0 {
			s.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "web"}}
		}
		e.put(config.Sidecar, ns, name, s)
	case 5:
		if gone {
			e.remove(config.Gateway, ns, "gw")
			return
		}
		e.put(config.Gateway, ns, "gw", &networking.Gateway{Selector: map[string]string{"app": "gw"},
			Servers: []*networking.Server{{Port: &networking.Port{Number: uint32(how) + 1}}}})
	case 6, 7:
		e.policy(ns, name, how, gone)
	}
}

// policy puts a security policy or Telemetry of one of the kinds, of the namespace or of the whole mesh, for all
// or for some.
func (e *editor) policy(ns, name string, how byte, gone bool) {
	kind := []config.Kind{config.PeerAuthentication, config.RequestAuthentication,
		config.AuthorizationPolicy, config.Telemetry, config.EnvoyFilter}[int(how/7)%5]
	if how%4 == 0 {
		ns = testMesh().Config.GetRootNamespace()
	}
	var who *typev1beta1.WorkloadSelector
	if how%3 == 0 {
		who = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
	}
	switch {
	case gone:
		e.remove(kind, ns, name)
	case kind == config.PeerAuthentication:
		modes := []security.PeerAuthentication_MutualTLS_Mode{0, 1, 2, 3, 9}
		p := &security.PeerAuthentication{Selector: who,
			Mtls: &security.PeerAuthentication_MutualTLS{Mode: modes[int(how)%5]}}
		if who != nil && how%2 == 0 {
			p.PortLevelMtls = map[uint32]*security.PeerAuthentication_MutualTLS{8080: {Mode: modes[int(how/5)%5]},
				81: nil}
		}
		e.put(kind, ns, name, p)
	case kind == config.RequestAuthentication:
		e.put(kind, ns, name, &security.RequestAuthentication{Selector: who})
	case kind == config.EnvoyFilter:
		e.put(kind, ns, name, &networking.EnvoyFilter{Priority: int32(how%5) - 2,
			WorkloadSelector: &networking.WorkloadSelector{Labels: who.GetMatchLabels()},
			ConfigPatches: []*networking.EnvoyFilter_EnvoyConfigObjectPatch{{Match: &networking.EnvoyFilter_EnvoyConfigObjectMatch{
				Context: networking.EnvoyFilter_PatchContext(how % 4)}}}})
	case kind == config.Telemetry:
		e.put(kind, ns, name, &telemetry.Telemetry{Selector: who})
	default:
		e.put(kind, ns, name, &security.AuthorizationPolicy{Selector: who})
	}
}

// proxies are one of each sort.
func proxies() []push.Node {
	out := []push.Node{
		node("a", "10.0.0.1", "app=web"), node("b", "10.0.0.2"), node("c", "::1"), node("root", "10.0.0.3"), node("a",
			"127.0.0.7"),
		node("a", "10.0.0.9", "app=gw"), node("b", "10.0.0.9", "app=gw"),
	}
	out[4].Interception = push.None
	out[5].Type, out[6].Type = push.Router, push.Router
	for i := range out {
		known := out[i]
		known.Identity = true
		out = append(out, known)
	}
	return out
}
