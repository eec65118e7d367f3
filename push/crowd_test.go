package push

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// crossingsOf are all findings of crossings over in, by place, as text.
func crossingsOf(c *crossings, found map[place][]finding, in Inputs) []string {
	c.look(in, func(at place, f []finding) {
		found[at] = f
		if len(f) == 0 {
			delete(found, at)
		}
	})
	var out []string
	for _, list := range found {
		for _, f := range list {
			out = append(out, string(f.problem.Severity)+" "+f.problem.String())
		}
	}
	slices.Sort(out)
	return out
}

func emptyInputs() Inputs {
	return Inputs{Mesh: &Mesh{Config: &mesh.MeshConfig{RootNamespace: "root"}, Domain: "mesh"}}
}

// aged adds an object to in; those that are added later are younger.
func aged(in *Inputs, kind config.Kind, namespace, name string, o *config.Object) {
	age := in.Objects.Len()
	o.Key = config.Key{Kind: kind, Namespace: namespace, Name: name}
	o.Created, o.Hash = time.Unix(int64(age), 0), uint64(age)
	o.Origin = config.Origin{Source: "s", File: name, Line: age + 1}
	in.Objects = in.Objects.With(o.Key, o)
}

// shorten leaves of a problem what tests tell apart.
func shorten(problems []string) []string {
	var out []string
	for _, p := range problems {
		p, _, _ = strings.Cut(p, " (the narrower exportTo")
		p, _, _ = strings.Cut(p, ": put the routes")
		p, _, _ = strings.Cut(p, ": put the rules")
		p, _, _ = strings.Cut(p, ": choose another address")
		out = append(out, p)
	}
	return out
}

// However a mesh came to be, and whatever changed in which order, the findings are those of a look at it all.
func TestCrossingsIncremental(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	in := emptyInputs()
	var c crossings
	kept, most := map[place][]finding{}, 0
	for step := range 400 {
		for range r.IntN(4) {
			in = randomEdit(r, in, uint64(step))
		}
		got, want := crossingsOf(&c, kept, in), crossingsOf(&crossings{}, map[place][]finding{}, in)
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("after step %d (-all at once +step by step):\n%s", step, d)
		}
		most = max(most, len(got))
	}
	if most < 5 {
		t.Errorf("at most %d findings at a time: the edits do not clash", most)
	}
}

// randomEdit adds, replaces, moves or removes something.
func randomEdit(r *rand.Rand, in Inputs, n uint64) Inputs {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	key := config.Key{Kind: config.Kind(pick(string(config.VirtualService), string(config.DestinationRule), string(config.ServiceEntry), string(config.Gateway), string(config.Gateway), string(config.PeerAuthentication))), Namespace: pick("a", "b"), Name: pick("x", "y", "z")}
	if key.Kind == config.Gateway { // many, so that few of them meet
		key.Name = pick("u", "v", "w", "x", "y", "z")
	}
	o := &config.Object{Key: key, Created: time.Unix(int64(r.IntN(3)), 0), Hash: n, Origin: config.Origin{File: "f", Line: r.IntN(9) + 1}}
	to := [][]string{nil, {"."}, {"*"}, {"a", "b"}}[r.IntN(4)]
	host := pick("one", "two.com")
	switch key.Kind {
	case config.PeerAuthentication:
		if r.IntN(3) == 0 {
			key.Namespace = "root"
			o.Key = key
		}
		p := &security.PeerAuthentication{}
		if r.IntN(2) == 0 {
			p.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{pick("app", "env"): pick("1", "2")}}
		}
		o.Spec = p
	case config.VirtualService:
		m := &networking.HTTPMatchRequest{Port: uint32(r.IntN(2))}
		o.Spec = &networking.VirtualService{Hosts: []string{host, "two.com"}, ExportTo: to, Gateways: []string{pick("mesh", "gw")}, Http: []*networking.HTTPRoute{{Match: []*networking.HTTPMatchRequest{m}}}}
	case config.DestinationRule:
		o.Spec = &networking.DestinationRule{Host: host, ExportTo: to, Subsets: []*networking.Subset{{Name: pick("v1", "v2")}}}
	case config.Gateway:
		selector := map[string]string{}
		for _, name := range []string{"app", "env", "zone"} {
			if r.IntN(2) == 0 {
				selector[name] = pick("1", "2")
			}
		}
		o.Spec = &networking.Gateway{Selector: selector, Servers: []*networking.Server{
			server(pick("80 HTTP *", "80 TCP *", "80 HTTPS a.b", "80 TLS c.d a.b")), server(pick("80 HTTPS c.d", "90 HTTP *", "90 TCP *")),
		}}
	default:
		o.Spec = &networking.ServiceEntry{Hosts: []string{key.Name + "." + key.Namespace}}
		s := &registry.Service{Key: registry.Key{Host: key.Name + "." + key.Namespace, Namespace: key.Namespace}, ExportTo: to, Object: key.String(), Created: o.Created}
		s.Ports = []registry.Port{{Number: 80, Protocol: registry.Protocol(r.IntN(12))}}
		if r.IntN(2) == 0 {
			s.Addresses = []netip.Prefix{netip.MustParsePrefix(pick("10.0.0.1/32", "10.0.0.0/8"))}
		}
		if in.Services.At(s.Key) == nil || r.IntN(2) == 0 { // else the object has moved and that is all
			in.Services = in.Services.With(s.Key, s)
		}
		if r.IntN(5) == 0 {
			in.Services = in.Services.Without(s.Key)
		}
	}
	if r.IntN(5) == 0 {
		in.Objects = in.Objects.Without(key)
	} else {
		in.Objects = in.Objects.With(key, o)
	}
	return in
}

// What is found costs a look at what may meet, and a change elsewhere is none.
func TestCrossingsTouchOnlyWhatMeets(t *testing.T) {
	t.Parallel()
	in := emptyInputs()
	for i := range 1000 {
		aged(&in, config.VirtualService, "a", fmt.Sprint("v", i), &config.Object{Spec: &networking.VirtualService{Hosts: []string{fmt.Sprintf("h%d.com", i)}}})
		aged(&in, config.DestinationRule, "a", fmt.Sprint("d", i), &config.Object{Spec: &networking.DestinationRule{Host: fmt.Sprintf("h%d.com", i)}})
		aged(&in, config.Gateway, "a", fmt.Sprint("g", i), &config.Object{Spec: gatewayFor(fmt.Sprint(i), "80 HTTP *")})
		k := registry.Key{Host: fmt.Sprintf("h%d.com", i), Namespace: "a"}
		in.Services = in.Services.With(k, &registry.Service{Key: k, Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)}, Ports: []registry.Port{{Number: 9, Protocol: registry.TCP}}})
	}
	var c crossings
	if got := crossingsOf(&c, map[place][]finding{}, in); got != nil {
		t.Fatalf("found %v", got)
	}
	for _, change := range []func(*Inputs){
		func(in *Inputs) { in.Endpoints = in.Endpoints.With(registry.Key{Host: "h1.com", Namespace: "a"}, nil) },
		func(in *Inputs) {
			aged(in, config.VirtualService, "a", "v1", &config.Object{Spec: &networking.VirtualService{Hosts: []string{"h1.com"}}})
		},
		func(in *Inputs) {
			aged(in, config.DestinationRule, "a", "d1", &config.Object{Spec: &networking.DestinationRule{Host: "h1.com"}})
		},
		func(in *Inputs) {
			aged(in, config.Gateway, "a", "g1", &config.Object{Spec: gatewayFor("1", "80 TCP *")})
		},
	} {
		change(&in)
		looked := 0
		c.look(in, func(place, []finding) { looked++ })
		if looked > 1 {
			t.Errorf("looked at %d places for one change", looked)
		}
	}
	aged(&in, config.Gateway, "b", "other", &config.Object{Spec: gatewayFor("2", "80 TCP *")})
	looked := 0
	c.look(in, func(_ place, found []finding) { looked += 1 + len(found) })
	if looked != 2 {
		t.Errorf("looked at %d places with findings for a Gateway that is in the way of one other, want 2", looked)
	}
}

// gatewayFor is one server for the proxies of an app.
func gatewayFor(app, text string) *networking.Gateway {
	return &networking.Gateway{Selector: map[string]string{"app": app}, Servers: []*networking.Server{server(text)}}
}

// The findings stand in the order of precedence, with the severity of what is certain.
func TestRuleClashes(t *testing.T) {
	t.Parallel()
	rule := func(host, exportTo, policy string, subsets ...string) *networking.DestinationRule {
		r := &networking.DestinationRule{Host: host, ExportTo: strings.Fields(exportTo)}
		if policy != "" {
			r.TrafficPolicy = &networking.TrafficPolicy{}
		}
		for _, s := range subsets {
			r.Subsets = append(r.Subsets, &networking.Subset{Name: s})
		}
		return r
	}
	type put struct {
		name string // namespace/name
		rule *networking.DestinationRule
	}
	tests := map[string]struct {
		rules []put // the older first
		want  []string
	}{
		"one":              {[]put{{"a/x", rule("web", "", "p", "v1")}}, nil},
		"different things": {[]put{{"a/x", rule("web", "", "p", "v1")}, {"a/y", rule("web", "", "", "v2")}}, nil},
		"different hosts":  {[]put{{"a/x", rule("web", "", "p", "v1")}, {"a/y", rule("db", "", "p", "v1")}, {"a/z", rule("*.a.svc.mesh", "", "p", "v1")}}, nil},
		"namespaces":       {[]put{{"a/x", rule("web.com", "", "p", "v1")}, {"b/y", rule("web.com", "", "p", "v1")}}, nil},
		"a subset": {
			[]put{{"a/x", rule("web", "", "", "v0", "v1")}, {"a/w", rule("web.a.svc.mesh", "", "p", "v2", "v1")}},
			[]string{"error w:2: DestinationRule a/w spec.subsets[1]: has no effect, because DestinationRule a/x (x:1), which is for host web.a.svc.mesh too and comes first, by age or by name, has a subset v1 already"},
		},
		"a policy": {
			[]put{{"a/x", rule("web", "", "p")}, {"a/w", rule("web", "", "p")}},
			[]string{"error w:2: DestinationRule a/w spec.trafficPolicy: has no effect, because DestinationRule a/x (x:1), which is for host web.a.svc.mesh too and comes first, by age or by name, has a trafficPolicy already"},
		},
		"the first has none":        {[]put{{"a/x", rule("web", "", "")}, {"a/w", rule("web", "", "p")}}, nil},
		"the first for some":        {[]put{{"a/x", rule("web", ".", "p")}, {"a/w", rule("web", "*", "p")}}, nil},
		"seen by different clients": {[]put{{"a/x", rule("web", "b", "p")}, {"a/w", rule("web", "c", "p")}}, nil},
		"the second for some": {
			[]put{{"a/x", rule("web", "*", "p")}, {"a/w", rule("web", ". b", "p")}},
			[]string{"error w:2: DestinationRule a/w spec.trafficPolicy: has no effect, because DestinationRule a/x (x:1), which is for host web.a.svc.mesh too and comes first, by age or by name, has a trafficPolicy already"},
		},
		"two together": {
			[]put{{"a/x", rule("web", ".", "p")}, {"a/w", rule("web", "b", "p")}, {"a/v", rule("web", "b a", "p")}},
			[]string{"error v:3: DestinationRule a/v spec.trafficPolicy: has no effect, because DestinationRule a/w (w:2), which is for host web.a.svc.mesh too and comes first, by age or by name, has a trafficPolicy already"},
		},
		"exported to nobody": {[]put{{"a/x", rule("web", "", "p")}, {"a/w", rule("web", "~", "p")}}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := emptyInputs()
			for _, p := range tc.rules {
				namespace, name, _ := strings.Cut(p.name, "/")
				aged(&in, config.DestinationRule, namespace, name, &config.Object{Spec: p.rule})
			}
			if d := cmp.Diff(tc.want, shorten(crossingsOf(&crossings{}, map[place][]finding{}, in))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// What stands in the way of what is told as any other problem: when it appears and when it is gone, and in Status
// where it is now.
func TestAssemblerCompares(t *testing.T) {
	t.Parallel()
	var appeared, gone []string
	a := NewAssembler(AssemblerConfig{
		Mesh: emptyInputs().Mesh, Publish: func(*Context, Changes) {},
		Report: func(now, over []feed.Problem) {
			for _, p := range now {
				appeared = append(appeared, p.Object)
			}
			for _, p := range over {
				gone = append(gone, p.Object)
			}
		},
	})
	in := emptyInputs()
	in.Mesh = a.cfg.Mesh
	for _, name := range []string{"x", "w"} {
		aged(&in, config.VirtualService, "a", name, &config.Object{Spec: &networking.VirtualService{Hosts: []string{"web"}, Http: []*networking.HTTPRoute{{}}}})
	}
	step := func(want string, told, over []string) {
		t.Helper()
		appeared, gone = nil, nil
		a.inputs = in
		a.build()
		a.found.tell(a.cfg.Report)
		var at []string
		for _, p := range a.Status().Problems {
			at = append(at, fmt.Sprintf("%s:%d", p.File, p.Line))
		}
		if got := strings.Join(at, " "); got != want || !slices.Equal(appeared, told) || !slices.Equal(gone, over) {
			t.Errorf("status %q, told %v, over %v; want %q, %v, %v", got, appeared, gone, want, told, over)
		}
	}
	step("w:2", []string{"VirtualService a/w"}, nil)
	k := config.Key{Kind: config.VirtualService, Namespace: "a", Name: "w"}
	moved := *in.Objects.At(k)
	moved.Origin.Line = 9
	in.Objects = in.Objects.With(k, &moved)
	step("w:9", nil, nil)
	in.Objects = in.Objects.Without(k)
	step("", nil, []string{"VirtualService a/w"})
}
