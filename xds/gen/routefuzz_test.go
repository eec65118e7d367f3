package gen

import (
	"fmt"
	"math/rand/v2"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Whatever passes validation makes route configurations that Envoy can take: every field keeps its
// rules, no domain stands twice, the parts are the encoding of the whole.
func FuzzRouteText(f *testing.F) {
	for _, text := range append(fuzzSeeds(), shopServices, vsYAML("v", "[web, foreign.org, '*.wild.com']", everyForm)) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects := config.Parse("fuzz.yaml", data).Objects
		if len(objects) == 0 {
			return
		}
		for _, sc := range fuzzScopes(objects) {
			routesOf(t, New(), sc)
		}
	})
}

// The same for VirtualServices that use every field in every combination; and a Generator that has
// served other meshes before gives what a new one gives.
func FuzzRoutes(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := &randomRoutes{rand.New(rand.NewPCG(seed, 2))}
		used := New()
		var held []resource.Set
		for range 3 {
			for name, sc := range fuzzScopes(r.objects()) {
				fresh := New().Set(resource.RouteType, sc)
				set := used.Set(resource.RouteType, sc)
				held = append(held, set)
				routesOf(t, used, sc)
				for want := range fresh.All() {
					if got := set.Get(want.Name); got == nil || got.Version() != want.Version() {
						t.Errorf("%s: %s differs from what a new Generator makes", name, want.Name)
					}
				}
			}
		}
		_ = held
	})
}

// A real Envoy takes what passes validation, also where its own checks go beyond the rules of
// fields.
func TestEnvoyTakesRandomRoutes(t *testing.T) {
	t.Parallel()
	r := &randomRoutes{rand.New(rand.NewPCG(7, 2))}
	var listeners []*listenerv3.Listener
	for i := range 4 {
		for name, sc := range fuzzScopes(r.objects()) {
			for route, rc := range routesOf(t, New(), sc) {
				listeners = append(listeners, routeListener(fmt.Sprint(i, name, route), uint32(20000+len(listeners)),
					rc))
			}
		}
	}
	acceptedByEnvoy(t, listeners)
}

// The random VirtualServices are worth something only when most of them pass validation.
func TestRandomRoutesAreValid(t *testing.T) {
	t.Parallel()
	r := &randomRoutes{rand.New(rand.NewPCG(1, 2))}
	made, valid := 0, 0
	for range 200 {
		o := r.virtualService(made)
		made++
		if problem := firstError(o); problem == "" {
			valid++
		} else {
			t.Log(problem)
		}
	}
	if valid < made/2 {
		t.Errorf("%d of %d pass validation", valid, made)
	}
}

func firstError(o *config.Object) string {
	for _, p := range config.Validate(o) {
		if p.Severity == feed.Error {
			return p.Field + ": " + p.Text
		}
	}
	return ""
}

// randomRoutes makes configuration of routes.
type randomRoutes struct{ *rand.Rand }

func (r *randomRoutes) pick(of ...string) string { return of[r.IntN(len(of))] }

func (r *randomRoutes) maybe() bool { return r.IntN(3) == 0 }

// some is up to n values without repetition.
func (r *randomRoutes) some(n int, of ...string) []string {
	var out []string
	for _, i := range r.Perm(len(of))[:r.IntN(min(n, len(of))+1)] {
		out = append(out, of[i])
	}
	return out
}

func (r *randomRoutes) objects() []*config.Object {
	objects := []*config.Object{{
		Key: config.Key{Kind: config.Gateway, Namespace: "shop", Name: "gw"},
		Spec: &networking.Gateway{Servers: []*networking.Server{
			{Port: &networking.Port{Number: 8080, Name: "http", Protocol: "HTTP"}, Hosts: append([]string{"*"}, r.some(2, "shop/*.example", "web", "./lan")...)},
			{Port: &networking.Port{Number: 443, Name: "https", Protocol: "HTTPS"}, Hosts: []string{r.pick("*", "*.example", "web.example")}, Tls: &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: "/c", PrivateKey: "/k"}},
			{Port: &networking.Port{Number: 81, Name: "redirect", Protocol: "HTTP"}, Hosts: []string{"a.example"}, Tls: &networking.ServerTLSSettings{HttpsRedirect: true}},
		}},
	}, {
		Key: config.Key{Kind: config.DestinationRule, Namespace: "shop", Name: "hash"},
		Spec: &networking.DestinationRule{Host: "web.shop.svc.cluster.local",
			TrafficPolicy: &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{
				LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: &networking.LoadBalancerSettings_ConsistentHashLB{
					HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName{HttpHeaderName: "h"},
				}},
			}}},
	}}
	for i := range 1 + r.IntN(6) {
		if o := r.virtualService(i); firstError(o) == "" {
			objects = append(objects, o)
		}
	}
	return objects
}

func (r *randomRoutes) virtualService(i int) *config.Object {
	spec := &networking.VirtualService{
		Hosts: append(r.some(3, "sniffed", "*.wild.example", "*.example", "x.wild.example", "10.0.0.1", "web"),
			r.pick("web", "lan", "foreign.org", "web.shop")),
		Gateways: []string{"mesh", "shop/gw"},
	}
	for range 1 + r.IntN(4) {
		spec.Http = append(spec.Http, r.route())
	}
	return &config.Object{Key: config.Key{Kind: config.VirtualService, Namespace: "shop", Name: fmt.Sprintf("v%d", i)},
		Spec: spec}
}

func (r *randomRoutes) route() *networking.HTTPRoute {
	out := &networking.HTTPRoute{Name: r.pick("", "r")}
	for range r.IntN(3) {
		out.Match = append(out.Match, r.match())
	}
	if r.maybe() {
		out.Headers = r.headers()
	}
	if r.maybe() {
		out.CorsPolicy = r.cors()
	}
	switch r.IntN(8) {
	case 0:
		out.Redirect = r.redirect()
		return out
	case 1:
		out.DirectResponse = &networking.HTTPDirectResponse{Status: uint32(200 + r.IntN(300))}
		if r.maybe() {
			out.DirectResponse.Body = &networking.HTTPBody{Specifier: &networking.HTTPBody_String_{String_: r.pick("x",
				"100 %", "")}}
		}
		return out
	}
	n := 1 + r.IntN(3)
	for range n {
		d := &networking.HTTPRouteDestination{Destination: r.destination()}
		if n > 1 {
			d.Weight = int32(r.IntN(4)) + int32(len(out.Route)%2)
		}
		if r.maybe() {
			d.Headers = r.headers()
		}
		out.Route = append(out.Route, d)
	}
	r.forward(out)
	return out
}

// forward adds what only routes to destinations have.
func (r *randomRoutes) forward(out *networking.HTTPRoute) {
	if r.maybe() {
		out.Timeout = r.duration()
	}
	if r.maybe() {
		out.Fault = r.fault()
	}
	if r.maybe() {
		out.Rewrite = &networking.HTTPRewrite{Uri: r.pick("/", "/x"), Authority: r.pick("", "a.example")}
	} else if r.maybe() {
		out.Rewrite = &networking.HTTPRewrite{UriRegexRewrite: &networking.RegexRewrite{Match: "^/(.*)$",
			Rewrite: `/x/\1`}}
	}
	if r.maybe() {
		out.Retries = &networking.HTTPRetry{Attempts: int32(r.IntN(4))}
		if out.Retries.Attempts > 0 {
			out.Retries.RetryOn = r.pick("", "5xx", "503,reset", "404, 429")
			out.Retries.PerTryTimeout = r.duration()
			out.Retries.RetryIgnorePreviousHosts = wrapperspb.Bool(r.maybe())
			out.Retries.RetryRemoteLocalities = wrapperspb.Bool(r.maybe())
			out.Retries.Backoff = r.duration()
		}
	}
	for range r.IntN(3) {
		out.Mirrors = append(out.Mirrors, &networking.HTTPMirrorPolicy{Destination: r.destination(),
			Percentage: r.percent()})
	}
	if len(out.Mirrors) == 0 && r.maybe() {
		out.Mirror, out.MirrorPercentage = r.destination(), r.percent()
	}
}

func (r *randomRoutes) destination() *networking.Destination {
	d := &networking.Destination{Host: r.pick("web.shop.svc.cluster.local", "lan", "db", "nowhere.example"),
		Subset: r.pick("", "v1")}
	if r.maybe() {
		d.Port = &networking.PortSelector{Number: uint32(1 + r.IntN(99))}
	}
	return d
}

func (r *randomRoutes) match() *networking.HTTPMatchRequest {
	m := &networking.HTTPMatchRequest{Name: r.pick("", "m"), StatPrefix: r.pick("", "s")}
	if r.maybe() {
		m.Uri = r.text("/", "/a", "/.*")
		m.IgnoreUriCase = m.Uri.GetRegex() == "" && r.maybe()
	}
	if r.maybe() {
		m.Method = r.text("GET", "P", "GET|PUT")
	}
	if r.maybe() {
		m.Authority = r.text("web", "w", ".*")
	}
	if r.maybe() {
		m.Scheme = r.text("http", "h", "https?")
	}
	if r.maybe() {
		m.Port = []uint32{80, 90, 443, 8080}[r.IntN(4)]
	}
	if r.maybe() {
		m.SourceLabels = map[string]string{"app": r.pick("web", "other")}
	}
	if r.maybe() {
		m.Gateways = []string{r.pick("mesh", "shop/gw")}
	}
	m.Headers, m.WithoutHeaders, m.QueryParams = r.conditions(), r.conditions(), r.conditions()
	return m
}

func (r *randomRoutes) conditions() map[string]*networking.StringMatch {
	out := map[string]*networking.StringMatch{}
	for _, name := range r.some(2, "a", "b", "x-c") {
		out[name] = r.text("x", "y", "z+")
		if r.maybe() {
			out[name] = &networking.StringMatch{}
		}
	}
	return out
}

func (r *randomRoutes) text(exact, prefix, regex string) *networking.StringMatch {
	switch r.IntN(3) {
	case 0:
		return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: exact}}
	case 1:
		return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: prefix}}
	default:
		return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: regex}}
	}
}

func (r *randomRoutes) headers() *networking.Headers {
	operations := func() *networking.Headers_HeaderOperations {
		o := &networking.Headers_HeaderOperations{Set: map[string]string{}, Add: map[string]string{}}
		for _, name := range r.some(2, "a", "x-b", "c") {
			o.Set[name] = r.pick("1", "%REQ(x)%", "", "100 %%")
			if r.IntN(100) == 0 {
				o.Set[name] = r.pick("5%", "%NONE%", "%REQ(", "\n")
			}
			o.Add[name+"-2"] = "2"
		}
		o.Remove = r.some(2, "d", "server")
		return o
	}
	return &networking.Headers{Request: operations(), Response: operations()}
}

func (r *randomRoutes) redirect() *networking.HTTPRedirect {
	out := &networking.HTTPRedirect{
		Uri: r.pick("", "/x"), Authority: r.pick("", "r.example"), Scheme: r.pick("", "http", "https"),
		RedirectCode: []uint32{0, 301, 302, 303, 307, 308}[r.IntN(6)],
	}
	switch r.IntN(3) {
	case 0:
		out.RedirectPort = &networking.HTTPRedirect_Port{Port: 443}
	case 1:
		out.RedirectPort = &networking.HTTPRedirect_DerivePort{DerivePort: networking.HTTPRedirect_FROM_REQUEST_PORT}
	}
	return out
}

func (r *randomRoutes) fault() *networking.HTTPFaultInjection {
	out := &networking.HTTPFaultInjection{}
	if r.maybe() {
		out.Delay = &networking.HTTPFaultInjection_Delay{Percentage: r.percent(),
			HttpDelayType: &networking.HTTPFaultInjection_Delay_FixedDelay{FixedDelay: r.duration()}}
	}
	if r.maybe() || out.Delay == nil {
		out.Abort = &networking.HTTPFaultInjection_Abort{Percentage: r.percent(),
			ErrorType: &networking.HTTPFaultInjection_Abort_HttpStatus{HttpStatus: int32(200 + r.IntN(400))}}
		if r.maybe() {
			out.Abort.ErrorType = &networking.HTTPFaultInjection_Abort_GrpcStatus{GrpcStatus: r.pick("UNAVAILABLE",
				"CANCELLED", "OK", "DATA_LOSS")}
		}
	}
	return out
}

func (r *randomRoutes) cors() *networking.CorsPolicy {
	out := &networking.CorsPolicy{
		AllowMethods: r.some(2, "GET", "PUT"), AllowHeaders: r.some(2, "a", "b"), ExposeHeaders: r.some(1, "e"),
		UnmatchedPreflights: networking.CorsPolicy_UnmatchedPreflights(r.IntN(3)),
		AllowOrigins:        []*networking.StringMatch{r.text("https://a.example", "https://", ".*")},
	}
	if r.maybe() {
		out.MaxAge, out.AllowCredentials = &durationpb.Duration{Seconds: int64(1 + r.IntN(9))}, wrapperspb.Bool(r.maybe())
	}
	return out
}

func (r *randomRoutes) duration() *durationpb.Duration {
	return &durationpb.Duration{Seconds: int64(1 + r.IntN(9)), Nanos: int32(r.IntN(2)) * 500_000_000}
}

func (r *randomRoutes) percent() *networking.Percent {
	if r.maybe() {
		return nil
	}
	return &networking.Percent{Value: []float64{0, 0.001, 33.3, 50, 100}[r.IntN(5)]}
}
