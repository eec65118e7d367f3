package push

import (
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
)

// asked is a VirtualService of a test.
type asked struct {
	name                      string // namespace/name
	hosts, gateways, exportTo string
	// routes are "http", "tcp" and "tls", each followed by its matches: ":PORT", "/PATH", "@GATEWAY", "app=LABEL",
	// "net=SUBNET", "sni=HOST". Several matches of a route stand apart by "|".
	routes []string
}

func (a asked) spec() *networking.VirtualService {
	s := &networking.VirtualService{Hosts: strings.Fields(a.hosts), Gateways: strings.Fields(a.gateways), ExportTo: strings.Fields(a.exportTo)}
	to := []*networking.RouteDestination{{Destination: &networking.Destination{Host: "x"}}}
	for _, r := range a.routes {
		kind, text, _ := strings.Cut(r, " ")
		http, tcp, tls := &networking.HTTPRoute{}, &networking.TCPRoute{Route: to}, &networking.TLSRoute{Route: to}
		for _, m := range strings.Split(text, "|") {
			if m == "" {
				continue
			}
			var h networking.HTTPMatchRequest
			var nets, sni []string
			for _, f := range strings.Fields(m) {
				switch {
				case f[0] == ':':
					h.Port = map[string]uint32{":80": 80, ":81": 81}[f]
				case f[0] == '/':
					h.Uri = &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: f}}
				case f[0] == '@':
					h.Gateways = append(h.Gateways, f[1:])
				case strings.HasPrefix(f, "ns="):
					h.SourceNamespace = f[3:]
				case strings.HasPrefix(f, "app="):
					h.SourceLabels = map[string]string{"app": f[4:]}
				case strings.HasPrefix(f, "net="):
					nets = append(nets, f[4:])
				case strings.HasPrefix(f, "sni="):
					sni = append(sni, f[4:])
				}
			}
			http.Match = append(http.Match, &h)
			tcp.Match = append(tcp.Match, &networking.L4MatchAttributes{Port: h.Port, Gateways: h.Gateways, SourceLabels: h.SourceLabels, DestinationSubnets: nets})
			tls.Match = append(tls.Match, &networking.TLSMatchAttributes{Port: h.Port, Gateways: h.Gateways, SourceLabels: h.SourceLabels, DestinationSubnets: nets, SniHosts: sni})
		}
		switch kind {
		case "http":
			s.Http = append(s.Http, http)
		case "tcp":
			s.Tcp = append(s.Tcp, tcp)
		default:
			s.Tls = append(s.Tls, tls)
		}
	}
	return s
}

// Routes that package gen never makes anything of are told of, and no others.
func TestRouteClashes(t *testing.T) {
	t.Parallel()
	// web and late are for one host of one namespace, late the younger
	web := func(gateways string, routes ...string) asked {
		return asked{name: "a/web", hosts: "web", gateways: gateways, routes: routes}
	}
	late := func(gateways string, routes ...string) asked {
		return asked{name: "a/late", hosts: "WEB.a.svc.mesh", gateways: gateways, routes: routes}
	}
	twice := func(a, b asked, exportA, exportB string) []asked {
		a.hosts, b.hosts = "web.com", "web.com"
		a.exportTo, b.exportTo = exportA, exportB
		return []asked{a, b}
	}
	const (
		head    = "late:2: VirtualService a/late "
		sidecar = " for host web.com on sidecars, because VirtualService a/web (web:1) comes first"
		gateway = " for host web.com on gateway a/gw, because VirtualService a/web (web:1) comes first"
	)
	other := func(v asked, name, hosts string) asked { v.name, v.hosts = name, hosts; return v }
	tests := map[string]struct {
		services []asked // the older first
		want     []string
	}{
		"alone":                     {[]asked{web("", "http")}, nil},
		"sidecars":                  {twice(web("", "http"), late("", "http /x"), "", ""), []string{"error " + head + "spec.hosts: has no effect" + sidecar}},
		"short and long":            {[]asked{web("", "http"), late("mesh", "http")}, []string{"warning " + head + "spec.hosts: has no effect for host web.a.svc.mesh on sidecars, wherever both are seen, because VirtualService a/web (web:1) comes first"}},
		"gateways":                  {twice(web("gw", "http"), late("a/gw", "http"), "", ""), []string{"error " + head + "spec.hosts: has no effect" + gateway}},
		"merged":                    {twice(web("gw", "http /a", "http"), late("gw", "http /b"), "", ""), nil},
		"merged but one":            {twice(web("gw", "http /a", "http"), late("gw", "http /b", "http /"), "", ""), []string{"error " + head + "spec.http[1]: spec.http[1] has no effect" + gateway}},
		"one path":                  {twice(web("gw", "http /a"), late("gw", "http /a|/b", "http /a"), "", ""), []string{"error " + head + "spec.http[1]: spec.http[1] has no effect" + gateway}},
		"after the last":            {twice(web("gw", "http", "http /a"), late("gw", "http /a"), "", ""), nil},
		"other gateways":            {twice(web("gw", "http"), late("mesh", "http"), "", ""), nil},
		"by match":                  {twice(web("gw mesh", "http @mesh"), late("gw mesh", "http @gw"), "", ""), nil},
		"both gateways":             {twice(web("gw mesh", "http"), late("gw mesh", "http"), "", ""), []string{"error " + head + "spec.hosts: has no effect" + gateway, "error " + head + "spec.hosts: has no effect" + sidecar}},
		"kinds":                     {twice(web("", "http"), late("", "tcp", "tls sni=web.com"), "", ""), nil},
		"ports":                     {twice(web("", "http :80"), late("", "http :81"), "", ""), nil},
		"a port of all":             {twice(web("", "http"), late("", "http :81"), "", ""), []string{"error " + head + "spec.hosts: has no effect" + sidecar}},
		"all of a port":             {twice(web("", "http :81"), late("", "http"), "", ""), nil},
		"one of ports":              {twice(web("", "http :80"), late("", "http :80", "http :81"), "", ""), []string{"error " + head + "spec.http[0]: spec.http[0] has no effect" + sidecar}},
		"sources":                   {twice(web("", "http app=x"), late("", "http app=y", "http"), "", ""), nil},
		"one source":                {twice(web("", "http app=x"), late("", "http :80 app=x"), "", ""), []string{"error " + head + "spec.hosts: has no effect" + sidecar}},
		"a namespace of its own":    {twice(web("", "http ns=a"), late("", "http"), ".", "."), []string{"error " + head + "spec.hosts: has no effect" + sidecar}},
		"a namespace that never is": {twice(web("", "http"), late("", "http ns=b|:80"), ".", "."), []string{"error " + head + "spec.hosts: has no effect" + sidecar}},
		"a namespace of all":        {twice(web("", "http ns=a"), late("", "http"), "", ""), nil},
		"all of a namespace":        {twice(web("", "http"), late("", "http ns=a"), ".", "*"), []string{"error " + head + "spec.hosts: has no effect" + sidecar}},
		"part of the last":          {twice(web("gw", "http :80", "http /a"), late("gw", "http /a"), "", ""), nil},
		"TCP":                       {twice(web("", "tcp"), late("", "tcp net=10.0.0.0/8"), "", ""), []string{"error " + head + "spec.hosts: has no effect" + sidecar}},
		"TCP by net":                {twice(web("", "tcp net=10.0.0.0/8"), late("", "tcp net=10.0.0.0/8", "tcp"), "", ""), []string{"error " + head + "spec.tcp[0]: spec.tcp[0] has no effect" + sidecar}},
		"TCP of gateways":           {twice(web("gw", "tcp net=10.0.0.0/8 app=x"), late("gw", "tcp"), "", ""), []string{"error " + head + "spec.hosts: has no effect" + gateway}},
		"TLS":                       {twice(web("", "tls sni=a.com sni=b.com"), late("", "tls sni=b.com", "tls sni=c.com"), "", ""), []string{"error " + head + "spec.tls[0]: spec.tls[0] has no effect" + sidecar}},
		"TLS of gateways":           {twice(web("gw", "tls sni=a.com app=x"), late("gw", "tls sni=A.com"), "", ""), []string{"error " + head + "spec.hosts: has no effect" + gateway}},
		"narrower first":            {twice(web("", "http"), late("", "http"), "*", "."), nil},
		"wider later":               {twice(web("", "http"), late("", "http"), ".", "*"), nil},
		"apart":                     {twice(web("", "http"), late("", "http"), ".", "b"), nil},
		"to nobody":                 {twice(web("", "http"), late("", "http"), "", "~"), nil},
		"within":                    {twice(web("", "http"), late("", "http"), "a b", "b"), []string{"error " + head + "spec.hosts: has no effect" + sidecar}},
		"namespaces": {
			[]asked{web("", "http"), other(late("", "http"), "b/late", "web.a.svc.mesh")},
			[]string{"warning late:2: VirtualService b/late spec.hosts: has no effect for host web.a.svc.mesh on sidecars, wherever both are seen, because VirtualService a/web (web:1) comes first"},
		},
		"three": {
			[]asked{web("", "http :80"), other(web("", "http"), "a/all", "web"), other(late("", "http :80", "http"), "a/late", "web")},
			[]string{
				"error late:3: VirtualService a/late spec.http[0]: spec.http[0] has no effect for host web.a.svc.mesh on sidecars, because VirtualService a/web (web:1) comes first",
				"error late:3: VirtualService a/late spec.http[1]: spec.http[1] has no effect for host web.a.svc.mesh on sidecars, because VirtualService a/all (all:2) comes first",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := emptyInputs()
			for _, a := range tc.services {
				namespace, name, _ := strings.Cut(a.name, "/")
				aged(&in, config.VirtualService, namespace, name, &config.Object{Spec: a.spec()})
			}
			if d := cmp.Diff(tc.want, shorten(crossingsOf(&crossings{}, map[place][]finding{}, in))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The text says what, where, why and what to do.
func TestRouteClashText(t *testing.T) {
	t.Parallel()
	in := emptyInputs()
	aged(&in, config.VirtualService, "shop", "web", &config.Object{Spec: asked{hosts: "web", routes: []string{"http"}}.spec()})
	aged(&in, config.VirtualService, "shop", "web-b", &config.Object{Spec: asked{hosts: "web", routes: []string{"http"}}.spec()})
	want := []string{"error web-b:2: VirtualService shop/web-b spec.hosts: has no effect for host web.shop.svc.mesh on sidecars, because VirtualService shop/web (web:1) comes first " +
		"(the narrower exportTo, then the older, then by name) and a sidecar takes the routes of one object for a host: " +
		"put the routes of both into one object, or give them different hosts, gateways or exportTo"}
	if d := cmp.Diff(want, crossingsOf(&crossings{}, map[place][]finding{}, in)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
