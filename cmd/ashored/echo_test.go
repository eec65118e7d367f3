package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// echo is what a neighbour tells that reads the same Consul, by a source without a namespace.
const echo = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: registry-web.service.consul, namespace: default, annotations: {ashore.io/source: consul}}
spec:
  hosts: [web.service.consul]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.8}]
`

// The service of a registry joins the ServiceEntry that declares its host, and not what another control plane's registry
// knows of the same host, which comes back as an object of no age.
func TestEchoOfARegistry(t *testing.T) {
	t.Parallel()
	declared := func(meta string) string {
		return strings.Replace(strings.Split(marketFile, "---")[0], "namespace: shop}", "namespace: shop"+meta+"}", 1)
	}
	for name, c := range map[string]struct{ files, peer, want string }{
		"echo":                     {declared(""), echo, "shop 1"},
		"declared late":            {declared(`, creationTimestamp: "2025-01-01T00:00:00Z"`), echo, "shop 1"},
		"in the same namespace":    {declared(`, creationTimestamp: "2025-01-01T00:00:00Z"`), strings.ReplaceAll(echo, "default", "shop"), "shop 1 by shop/web"},
		"nobody declares":          {"", echo, "shop 1"},
		"the neighbour declares":   {declared(""), strings.ReplaceAll(echo, ", annotations: {ashore.io/source: consul}", ""), "default 2, shop 0"},
		"not under the name of it": {declared(""), strings.ReplaceAll(echo, "registry-web", "web"), "default 2, shop 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newAudience(t, func(*settings) {})
				a.hears(t, c.peer)
				a.reads(t, c.files)
				a.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.7", Namespace: "shop"})
				time.Sleep(time.Second) // builds keep a distance
				synctest.Wait()
				var got []string
				for _, s := range a.collected(t, admin.ServiceQuery{Host: "web.service.consul"}) {
					text := fmt.Sprint(s.Namespace, " ", s.Health.Healthy)
					if strings.Contains(c.want, " by ") {
						text += " by " + strings.TrimPrefix(s.Sources[0].Object, "ServiceEntry ")
					}
					got = append(got, text)
				}
				if got := strings.Join(got, ", "); got != c.want {
					t.Errorf("services are %q, want %q", got, c.want)
				}
			})
		})
	}
}

// What a neighbour's registry knows is a service where nobody else has it, joins what somebody has, and goes by itself, as one's own
// registry does. It is told to nobody, and waited for by nobody.
func TestEchoComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudience(t, func(*settings) {})
		is := func(what, want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			var got []string
			for _, s := range a.collected(t, admin.ServiceQuery{}) {
				got = append(got, fmt.Sprintf("%s %d of %d", s.Namespace, s.Health.Healthy, len(s.Sources)))
			}
			if got := strings.Join(got, ", "); got != want {
				t.Errorf("%s: services are %q, want %q", what, got, want)
			}
		}
		own := registry.Endpoint{Address: "10.0.0.7", Namespace: "shop"}
		a.hears(t, echo)
		a.reads(t, "")
		a.dc1.say <- feed.Batch[registry.Instances]{Full: true}
		is("the neighbour alone", "default 1 of 1")
		if told := a.in.own(); told.Len() != 0 {
			t.Errorf("told are %d objects of the neighbour's", told.Len())
		}
		a.knows(false, "web.service.consul", own)
		is("our own registry too", "shop 1 of 1")
		a.reads(t, strings.ReplaceAll(strings.Split(marketFile, "---")[0], "namespace: shop", "namespace: web"))
		is("declared too", "web 1 of 2")
		a.hears(t, "")
		is("he has it no more", "web 1 of 2")
		a.hears(t, echo)
		a.dc1.say <- feed.Batch[registry.Instances]{Full: true}
		is("our own registry has it no more", "web 1 of 2")
		a.reads(t, "")
		is("he alone again", "default 1 of 1")
		a.hears(t, "")
		is("nobody", "")
		if n := slices.IndexFunc(a.status().Sources, func(s feed.SourceStatus) bool { return strings.Contains(s.Name, "relayed") }); n >= 0 {
			t.Error("what is relayed is listed as a source")
		}
	})
}

// What our own Consul says counts, whatever a neighbour that reads the same one heard of it before: he may be away. Who wants what one
// with another Consul knows says so in the settings.
func TestEchoHealth(t *testing.T) {
	t.Parallel()
	web := strings.Replace(strings.Split(marketFile, "---")[0], ", targetPort: 8080", "", 1)
	for name, c := range map[string]struct{ relayed, endpoints, files, peer, want string }{
		"alone":                    {"alone", "unite", "", echo, "10.0.0.9"},
		"declared":                 {"alone", "unite", web, echo, "10.0.0.9"},
		"declared where he has it": {"alone", "unite", web, strings.ReplaceAll(echo, "namespace: default", "namespace: shop"), "10.0.0.9"},
		"united":                   {"unite", "unite", "", echo, "10.0.0.9 10.0.0.10"},
		"united, declared":         {"unite", "unite", web, strings.ReplaceAll(echo, "namespace: default", "namespace: shop"), "10.0.0.9 10.0.0.10"},
		"united, shadowed":         {"unite", "shadow", "", echo, "10.0.0.9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newAudience(t, func(s *settings) { s.Merge.Relayed, s.Merge.Endpoints = c.relayed, c.endpoints })
				a.hears(t, strings.TrimSuffix(c.peer, "]\n")+", {address: 10.0.0.10}]\n")
				a.reads(t, c.files)
				a.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.8", Namespace: "shop", Health: registry.Unhealthy}, registry.Endpoint{Address: "10.0.0.9", Namespace: "shop"})
				time.Sleep(time.Second)
				synctest.Wait()
				var healthy []string
				for _, l := range a.context().Inputs().Endpoints.All() {
					for _, e := range l.All() {
						if e.Health == registry.Healthy {
							healthy = append(healthy, e.Address)
						}
					}
				}
				if !slices.Equal(healthy, strings.Fields(c.want)) {
					t.Errorf("healthy are %v, want %s", healthy, c.want)
				}
			})
		})
	}
}

// A service of our own Consul stays where our settings have it, whatever a neighbour says of its host: for who sees no other
// namespace, and for the workload that it is, by its identity.
func TestEchoElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAudience(t, func(*settings) {})
		a.reads(t, `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec:
  egress: [{hosts: ["./*"]}]
`)
		a.hears(t, strings.ReplaceAll(echo, "web.", "other."))
		a.knows(true, "web.service.consul", registry.Endpoint{Address: "10.0.0.8", Namespace: "shop", ServiceAccount: "web", TLSMode: "istio"})
		look := func() string {
			time.Sleep(time.Second)
			synctest.Wait()
			c := a.context()
			n := push.Node{ID: "web-1.shop", Namespace: "shop", Labels: new(intern.Lists[push.Label]).Of(nil), IPs: new(intern.Lists[netip.Addr]).Of([]netip.Addr{netip.MustParseAddr("10.0.0.8")})}
			text := fmt.Sprintf("%d ports", len(c.Classify(n).Own.Inbound.Items()))
			if d, ok := c.Scope(c.Classify(n)).Destinations.Get("web.service.consul"); ok {
				text += ", sees that of " + d.Service.Namespace
			}
			for _, l := range c.Inputs().Endpoints.All() {
				for i := range l.Items {
					if l.Items[i].Address == "10.0.0.8" && l.Items[i].ServiceAccount != "" {
						text += " by " + c.IdentityOf(&l.Items[i]).String()
					}
				}
			}
			return text
		}
		before := look()
		if !strings.HasPrefix(before, "1 ports, sees that of shop by spiffe://") {
			t.Fatal(before)
		}
		a.hears(t, strings.ReplaceAll(echo, "{address: 10.0.0.8}", "{address: 10.0.0.8, serviceAccount: web}"))
		if got := look(); got != before {
			t.Errorf("%s; before the echo %s", got, before)
		}
	})
}
