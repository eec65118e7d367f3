package route

import (
	"cmp"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// routeBuilder makes Envoy's routes of one VirtualService.
type routeBuilder struct {
	spec     ruleSpec
	resolved map[*networking.Destination]routeDestination
	metadata *corev3.Metadata
}

func newRouteBuilder(s ruleSpec) *routeBuilder {
	b := &routeBuilder{spec: s, resolved: make(map[*networking.Destination]routeDestination, s.destinations.Len()),
		metadata: origin(s.vs.Object)}
	known := s.destinations.Items()
	for i, d := range httpDestinations(s.vs.Spec) {
		if i < len(known) {
			b.resolved[d] = known[i]
		}
	}
	return b
}

// origin names the object that a route comes from, for people who read a proxy's configuration.
// Source: Istio's filter metadata.
func origin(o *config.Object) *corev3.Metadata {
	path := structpb.NewStringValue(envoy.ConfigPath(o, "virtual-service"))
	return envoy.Metadata(map[string]*structpb.Value{envoy.ConfigMember: path})
}

// route makes one route; a nil match takes every request.
func (b *routeBuilder) route(r *networking.HTTPRoute, m *networking.HTTPMatchRequest) *routev3.Route {
	out := &routev3.Route{
		Name:       r.Name,
		Match:      routeMatch(m),
		Metadata:   b.metadata,
		StatPrefix: m.GetStatPrefix(),
	}
	if m.GetName() != "" {
		out.Name = r.Name + "." + m.Name
	}
	edits := headerEditsOf(r.Headers)
	edits.apply(out)
	switch {
	case r.Redirect != nil:
		out.Action = &routev3.Route_Redirect{Redirect: b.redirect(r.Redirect)}
	case r.DirectResponse != nil:
		out.Action = &routev3.Route_DirectResponse{DirectResponse: directResponse(r.DirectResponse)}
	default:
		action := b.forward(out, r, edits.authority)
		out.Action = &routev3.Route_Route{Route: action}
	}
	out.Decorator = &routev3.Decorator{Operation: b.operation(out, r)}
	out.TypedPerFilterConfig = routeFilters(r)
	return out
}

// forward sends requests to the destinations of r.
func (b *routeBuilder) forward(out *routev3.Route, r *networking.HTTPRoute, authority string) *routev3.RouteAction {
	action := &routev3.RouteAction{AppendXForwardedHost: b.spec.forwardedHost}
	setTimeout(action, r.Timeout)
	setRewrite(action, r.Rewrite)
	authority = cmp.Or(r.Rewrite.GetAuthority(), authority)
	if len(r.Route) == 1 {
		authority = cmp.Or(authority, b.single(out, action, r.Route[0]))
	} else {
		b.weighted(action, r.Route)
	}
	if authority != "" {
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: authority}
	}
	hashed := false
	for _, d := range r.Route {
		if len(r.Route) > 1 && d.Weight == 0 {
			continue
		}
		if p := hashPolicy(b.resolved[d.GetDestination()].hash); p != nil {
			action.HashPolicy = append(action.HashPolicy, p)
			hashed = len(r.Route) == 1
		}
	}
	action.RetryPolicy = retryPolicy(cmp.Or(r.Retries, b.spec.retry), hashed)
	action.RequestMirrorPolicies = b.mirrors(r)
	return action
}

// single sends all requests to one cluster; it returns the authority that the destination's headers
// set.
func (b *routeBuilder) single(out *routev3.Route, action *routev3.RouteAction,
	d *networking.HTTPRouteDestination) string {
	action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: b.cluster(d.GetDestination())}
	edits := headerEditsOf(d.Headers)
	edits.apply(out)
	return edits.authority
}

// weighted shares requests out. Destinations of weight zero get none, and a share is what is
// written: Envoy divides by the sum. Where every weight is zero, all are equal.
func (b *routeBuilder) weighted(action *routev3.RouteAction, destinations []*networking.HTTPRouteDestination) {
	sum := int64(0)
	for _, d := range destinations {
		sum += int64(d.Weight)
	}
	out := &routev3.WeightedCluster{}
	for _, d := range destinations {
		weight := uint32(max(0, d.Weight))
		if sum == 0 {
			weight = 1
		}
		if weight == 0 {
			continue
		}
		c := &routev3.WeightedCluster_ClusterWeight{Name: b.cluster(d.GetDestination()),
			Weight: wrapperspb.UInt32(weight)}
		edits := headerEditsOf(d.Headers)
		c.RequestHeadersToAdd, c.RequestHeadersToRemove = edits.requestAdd, edits.requestRemove
		c.ResponseHeadersToAdd, c.ResponseHeadersToRemove = edits.responseAdd, edits.responseRemove
		if edits.authority != "" {
			c.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{HostRewriteLiteral: edits.authority}
		}
		out.Clusters = append(out.Clusters, c)
	}
	action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: out}
}

// cluster is the name of a destination's cluster.
func (b *routeBuilder) cluster(d *networking.Destination) string {
	return envoy.OutboundCluster(b.resolved[d].port, d.GetSubset(), d.GetHost())
}

// mirrors are the copies of requests whose answers nobody reads. Source: istio.io,
// HTTPRoute.mirror: all requests when no percentage is given; none when it is zero.
func (b *routeBuilder) mirrors(r *networking.HTTPRoute) []*routev3.RouteAction_RequestMirrorPolicy {
	var out []*routev3.RouteAction_RequestMirrorPolicy
	add := func(d *networking.Destination, share *networking.Percent) {
		if d == nil || share != nil && share.Value <= 0 {
			return
		}
		out = append(out, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster:         b.cluster(d),
			RuntimeFraction: &corev3.RuntimeFractionalPercent{DefaultValue: fraction(share)},
			TraceSampled:    wrapperspb.Bool(false),
			// Source: Istio, which leaves the Host of mirrored requests alone.
			DisableShadowHostSuffixAppend: true,
		})
	}
	share := r.MirrorPercentage
	if p := r.GetMirrorPercent(); share == nil && p != nil { //nolint:staticcheck // deprecated, not gone
		share = &networking.Percent{Value: float64(p.Value)}
	}
	add(r.Mirror, share)
	for _, m := range r.Mirrors {
		add(m.GetDestination(), m.GetPercentage())
	}
	return out
}

// setRewrite changes the path that the destination sees.
func setRewrite(action *routev3.RouteAction, w *networking.HTTPRewrite) {
	if regex := w.GetUriRegexRewrite(); regex != nil {
		action.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{
			Pattern:      &matcherv3.RegexMatcher{Regex: regex.Match},
			Substitution: regex.Rewrite,
		}
		return
	}
	action.PrefixRewrite = w.GetUri()
}

// operation describes a route to people who read traces: the destination, or the VirtualService
// where there is not exactly one, and the path. Source: Istio.
func (b *routeBuilder) operation(out *routev3.Route, r *networking.HTTPRoute) string {
	var path string
	switch p := out.Match.PathSpecifier.(type) {
	case *routev3.RouteMatch_Path:
		path = p.Path
	case *routev3.RouteMatch_SafeRegex:
		path = p.SafeRegex.Regex
	default:
		path = out.Match.GetPrefix() + "*"
	}
	if out.GetRoute() != nil && len(r.Route) == 1 {
		d := r.Route[0].GetDestination()
		return hostPort(d.GetHost(), b.resolved[d].port) + path
	}
	return b.spec.vs.Object.Name + ":" + strconv.FormatUint(uint64(b.spec.port), 10) + path
}

// directResponse answers without a destination.
func directResponse(d *networking.HTTPDirectResponse) *routev3.DirectResponseAction {
	out := &routev3.DirectResponseAction{Status: d.Status}
	switch body := d.GetBody().GetSpecifier().(type) {
	case *networking.HTTPBody_String_:
		out.Body = envoy.InlineString(body.String_)
	case *networking.HTTPBody_Bytes:
		out.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: body.Bytes}}
	}
	return out
}

// redirect sends the client elsewhere.
func (b *routeBuilder) redirect(r *networking.HTTPRedirect) *routev3.RedirectAction {
	out := &routev3.RedirectAction{
		HostRedirect: r.Authority,
		PortRedirect: b.redirectPort(r),
		ResponseCode: redirectCode(r.RedirectCode),
	}
	if r.Uri != "" {
		out.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: r.Uri}
	} else if r.PrefixRewrite != "" {
		out.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: r.PrefixRewrite}
	}
	if r.Scheme != "" {
		out.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: strings.ToLower(r.Scheme)}
	}
	return out
}

// redirectPort is the port to redirect to; zero: the scheme's default, which is not written out.
// Envoy cannot take the port of the request over, but a route is made for one port.
func (b *routeBuilder) redirectPort(r *networking.HTTPRedirect) uint32 {
	port := r.GetPort()
	if r.GetDerivePort() == networking.HTTPRedirect_FROM_REQUEST_PORT && r.GetPort() == 0 {
		if _, derived := r.RedirectPort.(*networking.HTTPRedirect_DerivePort); derived {
			port = b.spec.port
		}
	}
	scheme := strings.ToLower(r.Scheme)
	https := scheme == "https" || scheme == "" && b.spec.tls
	if port == 443 && https || port == 80 && !https {
		return 0
	}
	return port
}

// redirectCode is a status code as Envoy's; 301 for others, as where none is given.
func redirectCode(code uint32) routev3.RedirectAction_RedirectResponseCode {
	switch code {
	case 302:
		return routev3.RedirectAction_FOUND
	case 303:
		return routev3.RedirectAction_SEE_OTHER
	case 307:
		return routev3.RedirectAction_TEMPORARY_REDIRECT
	case 308:
		return routev3.RedirectAction_PERMANENT_REDIRECT
	default:
		return routev3.RedirectAction_MOVED_PERMANENTLY
	}
}
