package push_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
)

// A rule that nobody applies, since everybody finds another one before it, is told of: with TLS it looks like
// protection and is none.
func TestDanglingShadowedRules(t *testing.T) {
	t.Parallel()
	reviews := entryOf("shop/reviews", "reviews.shop.svc.cluster.local", "")
	const tls, random = "trafficPolicy: {tls: {mode: SIMPLE}}", "trafficPolicy: {loadBalancer: {simple: RANDOM}}"
	const full = "host: reviews.shop.svc.cluster.local, "
	checkDangling(t, []danglingCase{
		{
			"of the root namespace", []string{reviews, ruleOf("shop/own", full+random), ruleOf("istio-system/mesh", full+tls)},
			[]string{"mesh.yaml:11: DestinationRule istio-system/mesh spec.host: whoever looks for a rule of reviews.shop.svc.cluster.local finds DestinationRule shop/own (mesh.yaml:6) before it, " +
				"so the rule has no effect and its TLS settings protect nothing: put the settings into that one, or remove one of the two; " +
				"a rule in the client's namespace comes first, then one in that of the service, then one in the root namespace (istio-system), and in each that with the narrowest host"},
		},
		{
			"of the root namespace, without TLS", []string{reviews, ruleOf("shop/own", full+tls), ruleOf("istio-system/mesh", full+random)},
			[]string{"before it, so the rule has no effect: put"},
		},
		{
			"by a narrower host", []string{reviews, ruleOf("shop/own", full+random), ruleOf("shop/wide", `host: "*.shop.svc.cluster.local", `+tls)},
			[]string{"DestinationRule shop/wide spec.host: whoever looks for a rule of reviews.shop.svc.cluster.local finds DestinationRule shop/own (mesh.yaml:6) before it, "},
		},
		{
			"of the service's namespace, for one that has its own", []string{reviews, ruleOf("web/own", full+random), ruleOf("shop/r", full+tls+", exportTo: [web]")},
			[]string{"DestinationRule shop/r spec.host: whoever looks for a rule of reviews.shop.svc.cluster.local finds DestinationRule web/own (mesh.yaml:6) before it, "},
		},
		{
			"wide, with TLS", []string{reviews, ruleOf("shop/own", full+random), ruleOf("istio-system/wide", `host: "*.local", `+tls)},
			[]string{"DestinationRule istio-system/wide spec.host: whoever looks for a rule of reviews.shop.svc.cluster.local finds DestinationRule shop/own (mesh.yaml:6) before it, "},
		},
		{"wide, a default", []string{reviews, ruleOf("shop/own", full+tls), ruleOf("istio-system/wide", `host: "*.local", `+random)}, nil},
		{"of the root namespace, where routers are", []string{
			reviews, ruleOf("shop/own", full+random), ruleOf("istio-system/mesh", full+tls), gatewayOf("istio-system/gw", `"*"`),
		}, nil},
		{"of the root namespace, where services are", []string{
			reviews, ruleOf("shop/own", full+random), ruleOf("istio-system/mesh", full+tls), entryOf("istio-system/x", "x.internal", ""),
		}, nil},
		{"wide, for another service", []string{
			reviews, entryOf("shop/web", "web.shop.svc.cluster.local", ""), ruleOf("shop/own", full+random), ruleOf("istio-system/wide", `host: "*.local", `+tls),
		}, nil},
		{"of the root namespace, for those who do not see the other", []string{
			reviews, ruleOf("shop/own", full+random+", exportTo: [.]"), ruleOf("istio-system/mesh", full+tls),
		}, nil},
		{"of the root namespace, before others for its own clients", []string{reviews, ruleOf("web/own", full+random), ruleOf("istio-system/mesh", full+tls)}, nil},
		{"merged into one", []string{reviews, ruleOf("shop/a", full+random), ruleOf("shop/b", full+"subsets: [{name: v1}]")}, nil},
	})
}

// A rule is told of exactly when no sidecar applies it to anything: of random meshes without Sidecars, which narrow
// the view.
func TestDanglingRulesAgreeWithScopes(t *testing.T) {
	t.Parallel()
	const elsewhere = "elsewhere" // stands for the namespaces without anything
	all := append([]string{elsewhere}, namespaces...)
	var told, silent int
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 2))
		e := newEditor()
		for range 30 {
			if what := byte(random.IntN(6)); what != 4 {
				e.edit(what, byte(random.IntN(256)), byte(random.IntN(256)))
			}
		}
		c := push.Build(nil, e.in)
		applied := map[config.Key]bool{}
		for _, ns := range all {
			deserted := ns == "root" && !runs(e.in, ns)
			for _, d := range c.Scope(c.Classify(node(ns, "10.0.0.200"))).Destinations.Items() {
				if d.Rule != nil {
					for _, o := range d.Rule.From {
						to := o.Spec.(*networking.DestinationRule).ExportTo
						if !deserted || len(to) > 0 && !slices.Contains(to, "*") {
							applied[o.Key] = true
						}
					}
				}
			}
		}
		warned := map[string]bool{}
		for _, p := range c.Dangling() {
			if p.Field == "spec.host" {
				warned[p.Object] = true
			}
		}
		for k, o := range e.in.Objects.All() {
			if k.Kind != config.DestinationRule || slices.Equal(o.Spec.(*networking.DestinationRule).ExportTo, []string{"~"}) {
				continue
			}
			silentDefault := strings.HasPrefix(o.Spec.(*networking.DestinationRule).Host, "*") && !applied[k]
			if warned[k.String()] == applied[k] && !silentDefault {
				t.Fatalf("seed %d: %s: told of %v, applied %v", seed, k, warned[k.String()], applied[k])
			}
			if applied[k] {
				silent++
			} else {
				told++
			}
		}
	}
	if told == 0 || silent == 0 {
		t.Errorf("%d rules were told of and %d not: the meshes prove nothing", told, silent)
	}
}

// runs says whether a namespace has services or Gateways.
func runs(in push.Inputs, namespace string) bool {
	for k := range in.Services.All() {
		if k.Namespace == namespace {
			return true
		}
	}
	for k := range in.Objects.All() {
		if k.Kind == config.Gateway && k.Namespace == namespace {
			return true
		}
	}
	return false
}
