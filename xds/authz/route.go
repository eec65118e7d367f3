package authz

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Hop is what the proxy of a caller does with a request at one destination of one route.
type Hop struct {
	// Route names the route: "80, virtual host web.example:80, route canary".
	Route string
	// If is what has to hold besides, and is unknown: "the header x-canary". Empty: nothing.
	If string
	// Options are what else the route says: "timeout 2s, retries: 1".
	Options string
	// Connection means that the port carries connections, whose requests are not looked at.
	Connection bool
	// Code is the status that the proxy itself returns, with Envoy's response flags in Flags. Zero: it
	// sends the request to Cluster.
	Code  uint32
	Flags string
	// Reason is why, or where the request goes.
	Reason string
	// Cluster is the destination, and Weight its share in percent.
	Cluster string
	Weight  uint32
	// Endpoints is how many the proxy balances over. Names that it resolves count as one each.
	Endpoints int
	// Addresses are those of the endpoints, with their ports.
	Addresses []string
	// TLS is "mutual TLS", "TLS" or "plaintext", or how many endpoints get mutual TLS.
	TLS string
	// Host and Path are those that the destination receives.
	Host, Path string
}

// Resources are what a proxy is sent.
type Resources []*resource.Resource

// get reads the resource of a type and a name into m. It returns false when there is none.
func (rs Resources) get(typeURL, name string, m proto.Message) bool {
	i := slices.IndexFunc(rs, func(r *resource.Resource) bool { return r.TypeURL == typeURL && r.Name == name })
	return i >= 0 && proto.Unmarshal(rs[i].Body(), m) == nil
}

// Route says what a proxy does with a request to r.Host at r.Port: a Hop for each destination of each
// route that may take it, in the order in which they are tried. It is empty when the
// client's connection does not reach the proxy.
func (rs Resources) Route(r Request) []Hop {
	config, host := rs.virtualHost(r)
	switch {
	case config == "":
		return rs.connection(r)
	case host == nil:
		return []Hop{{Route: config, Code: 404, Flags: "NR", Reason: "no virtual host has this host"}}
	}
	place := config + ", virtual host " + host.GetName()
	if host.GetRequireTls() != routev3.VirtualHost_NONE {
		return []Hop{{Route: place, Code: 301, Reason: "the server redirects plaintext requests to https"}}
	}
	var out []Hop
	for _, route := range host.GetRoutes() {
		match := all(r.routeConditions(route.GetMatch()), func(c result) result { return c })
		if match.truth == no {
			continue
		}
		for _, hop := range rs.hops(r, route) {
			hop.Route = place + ", route " + cmp.Or(route.GetName(), "without a name")
			if match.truth == unknown {
				hop.If = match.about
			}
			out = append(out, hop)
		}
		if match.truth == yes {
			return out
		}
	}
	return append(out, Hop{Route: place, Code: 404, Flags: "NR", Reason: "no route of the virtual host matches"})
}

// virtualHost finds the route configuration of a port and in it the virtual host of a host.
func (rs Resources) virtualHost(r Request) (config string, best *routev3.VirtualHost) {
	port := strconv.FormatUint(uint64(r.Port), 10)
	exact := []string{r.Host + ":" + port, port, "http." + port}
	for _, x := range rs {
		// servers of HTTPS, and of HTTP with an address of their own
		if x.TypeURL == resource.RouteType &&
			(strings.HasPrefix(x.Name, "https."+port+".") || strings.HasPrefix(x.Name, "http."+port+".")) {
			exact = append(exact, x.Name)
		}
	}
	for _, name := range exact {
		var m routev3.RouteConfiguration
		if !rs.get(resource.RouteType, name, &m) {
			continue
		}
		config = cmp.Or(config, name)
		most := 0
		for _, h := range m.GetVirtualHosts() {
			for _, d := range h.GetDomains() {
				if n := max(rankDomain(d, r.Host), rankDomain(d, r.Host+":"+port)); n > most {
					config, best, most = name, h, n
				}
			}
		}
		if best != nil {
			return config, best
		}
	}
	return config, nil
}

// rankDomain is greater for a domain that matches better; zero: it does not. Source: Envoy,
// VirtualHost.domains: the exact host, then the longest suffix, the longest prefix, any.
func rankDomain(domain, host string) int {
	const class = 1 << 16
	domain, host = strings.ToLower(domain), strings.ToLower(host)
	switch {
	case domain == host:
		return 3 * class
	case domain == "*":
		return 1
	case strings.HasPrefix(domain, "*") && strings.HasSuffix(host, domain[1:]):
		return 2*class + len(domain)
	case strings.HasSuffix(domain, "*") && strings.HasPrefix(host, domain[:len(domain)-1]):
		return class + len(domain)
	}
	return 0
}

// routeConditions are the conditions of a route. Paths are compared without their query.
func (r Request) routeConditions(m *routev3.RouteMatch) []result {
	path := result{yes, "the path"}
	text := func(p *matcherv3.StringMatcher) {
		p.IgnoreCase = m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue()
		path.truth = matchText(p, r.urlPath())
	}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: p.Prefix}})
	case *routev3.RouteMatch_Path:
		text(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: p.Path}})
	case *routev3.RouteMatch_SafeRegex:
		path.truth = matchRegex(p.SafeRegex.GetRegex(), r.urlPath())
	default:
		path.truth = unknown
	}
	out := []result{path}
	for _, h := range m.GetHeaders() {
		out = append(out, r.header(h))
	}
	_, query, _ := strings.Cut(r.Path, "?")
	values, _ := url.ParseQuery(query)
	for _, q := range m.GetQueryParameters() {
		t := truthOf(values.Has(q.GetName()))
		if q.GetStringMatch() != nil && t == yes {
			t = matchText(q.GetStringMatch(), values.Get(q.GetName()))
		}
		out = append(out, result{t, "the query parameter " + q.GetName()})
	}
	if len(m.GetDynamicMetadata()) > 0 {
		out = append(out, result{unknown, "a claim of the caller's token"})
	}
	return out
}

// hops are the destinations of a route, or the answer of the proxy itself.
func (rs Resources) hops(r Request, route *routev3.Route) []Hop {
	if hop, ok := answer(r, route); ok {
		return []Hop{hop}
	}
	action, fault := route.GetRoute(), faultsOf(route)
	base := Hop{Options: options(action, fault), Path: rewritten(r.Path, route),
		Host: cmp.Or(action.GetHostRewriteLiteral(), r.Host)}
	to := func(cluster, host string, weight uint32) Hop {
		hop := base
		hop.Cluster, hop.Weight, hop.Host = cluster, weight, cmp.Or(host, base.Host)
		rs.reach(&hop)
		return hop
	}
	var out []Hop
	if a := fault.GetAbort(); percent(a.GetPercentage()) > 0 {
		share := percent(a.GetPercentage())
		out = append(out, Hop{Options: base.Options, Code: cmp.Or(a.GetHttpStatus(), 200), Flags: "FI",
			Reason: fmt.Sprintf("a VirtualService aborts the request, in %g %% of requests", share)})
		if share == 100 {
			out[0].Reason = "a VirtualService aborts every request"
			return out
		}
	}
	list := action.GetWeightedClusters().GetClusters()
	if len(list) == 0 {
		return append(out, to(action.GetCluster(), "", 100))
	}
	var total uint64
	for _, w := range list {
		total += uint64(w.GetWeight().GetValue())
	}
	for _, w := range list {
		if n := w.GetWeight().GetValue(); n > 0 {
			out = append(out, to(w.GetName(), w.GetHostRewriteLiteral(), uint32(uint64(n)*100/total)))
		}
	}
	return out
}

// answer is what the proxy itself returns; false: the route has destinations.
func answer(r Request, route *routev3.Route) (Hop, bool) {
	if d := route.GetDirectResponse(); d != nil {
		reason := "the route has a direct response"
		if route.GetName() == "block_all" {
			reason = "nobody declared this host, and outboundTrafficPolicy is REGISTRY_ONLY: write a ServiceEntry"
		}
		return Hop{Code: d.GetStatus(), Reason: reason}, true
	}
	if d := route.GetRedirect(); d != nil {
		to := cmp.Or(d.GetHostRedirect(), r.Host) + cmp.Or(d.GetPathRedirect(), d.GetPrefixRewrite(), r.Path)
		codes := map[routev3.RedirectAction_RedirectResponseCode]uint32{1: 302, 2: 303, 3: 307, 4: 308}
		return Hop{Code: cmp.Or(codes[d.GetResponseCode()], 301), Reason: "a redirection to " + to}, true
	}
	return Hop{}, false
}

// faultsOf are the faults that a route injects; the zero value: none.
func faultsOf(route *routev3.Route) *faultv3.HTTPFault {
	fault := &faultv3.HTTPFault{}
	route.GetTypedPerFilterConfig()["envoy.filters.http.fault"].UnmarshalTo(fault) //nolint:errcheck // else no faults
	return fault
}

// options are Hop.Options.
func options(action *routev3.RouteAction, fault *faultv3.HTTPFault) string {
	var out []string
	if t := action.GetTimeout().AsDuration(); t > 0 {
		out = append(out, "timeout "+t.String())
	}
	if n := action.GetRetryPolicy().GetNumRetries().GetValue(); n > 0 {
		out = append(out, fmt.Sprintf("retries: %d", n))
	}
	if d := fault.GetDelay(); d != nil {
		out = append(out, fmt.Sprintf("delay %s in %g %% of requests (flag DI)", d.GetFixedDelay().AsDuration(),
			percent(d.GetPercentage())))
	}
	return strings.Join(out, ", ")
}

// percent is a share of requests in percent.
func percent(f *typev3.FractionalPercent) float64 {
	perCent := map[typev3.FractionalPercent_DenominatorType]float64{typev3.FractionalPercent_HUNDRED: 1,
		typev3.FractionalPercent_TEN_THOUSAND: 100, typev3.FractionalPercent_MILLION: 10_000}
	return float64(f.GetNumerator()) / perCent[f.GetDenominator()]
}

// rewritten is a path as the destination of a route receives it. The query stays.
func rewritten(path string, route *routev3.Route) string {
	action, m := route.GetRoute(), route.GetMatch()
	path, query, found := strings.Cut(path, "?")
	if found {
		query = "?" + query
	}
	if regex := action.GetRegexRewrite(); regex != nil {
		if expr, err := regexp.Compile(regex.GetPattern().GetRegex()); err == nil {
			by := strings.ReplaceAll(regex.GetSubstitution(), "$", "$$")
			by = regexp.MustCompile(`\\(\d)`).ReplaceAllString(by, "$${$1}")
			return expr.ReplaceAllString(path, by) + query
		}
	}
	matched := cmp.Or(m.GetPrefix(), m.GetPath())
	if by := action.GetPrefixRewrite(); by != "" && len(path) >= len(matched) {
		return by + path[len(matched):] + query
	}
	return path + query
}

// connection is the hop of a connection to a host and port without routes. Connections to others go
// where outboundTrafficPolicy says, if they are intercepted.
func (rs Resources) connection(r Request) []Hop {
	hop := Hop{Route: "none: the port carries connections", Connection: true, Weight: 100,
		Cluster: fmt.Sprintf("outbound|%d||%s", r.Port, r.Host)}
	if rs.reach(&hop); hop.Flags != "NC" {
		return []Hop{hop}
	}
	cluster, intercepted := rs.unknownDestinations()
	if !intercepted {
		return nil
	}
	hop = Hop{Route: "none: unknown host and port", Connection: true, Weight: 100, Cluster: cluster}
	var unknown routev3.RouteConfiguration
	if rs.get(resource.RouteType, envoy.UnknownHostsRoute, &unknown) {
		hop.Route, hop.Connection, hop.Cluster = unknown.GetName(), false, envoy.UnknownHosts
	}
	rs.reach(&hop)
	return []Hop{hop}
}
