package push_test

import (
	"slices"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// A router listens where its own service maps the port of a server: of several services the oldest
// is used.
func TestGatewayPorts(t *testing.T) {
	t.Parallel()
	type service struct {
		host, namespace string
		year            int
		target          uint32 // zero: the port itself
		address         string
		own             uint32 // of the endpoint; zero: the target
	}
	const self = "10.0.0.9"
	to8080 := service{"a", "edge", 2021, 8080, self, 0}
	for _, c := range []struct {
		name           string
		number, target uint32
		services       []service
		want           uint32
	}{
		{"no service", 80, 0, nil, 80},
		{"a service", 80, 0, []service{to8080}, 8080},
		{"another port", 81, 0, []service{to8080}, 81},
		{"the port of the endpoint", 80, 0, []service{{"a", "edge", 2020, 0, self, 8081}}, 8081},
		{"another workload", 80, 0, []service{{"a", "edge", 2020, 8080, "10.0.0.8", 0}}, 80},
		{"another namespace", 80, 0, []service{{"a", "shop", 2020, 8080, self, 0}}, 80},
		{"an older service", 80, 0, []service{to8080, {"b", "edge", 2020, 8082, self, 0}}, 8082},
		{"an older one on its own port", 80, 0, []service{to8080, {"b", "edge", 2020, 0, self, 0}}, 80},
		{"a targetPort of the server", 80, 8083, []service{to8080}, 8083},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEditor()
			port := &networking.Port{Number: c.number, Name: "http", Protocol: "HTTP", TargetPort: c.target}
			e.put(config.Gateway, "edge", "edge", &networking.Gateway{
				Selector: map[string]string{"app": "edge"}, Servers: []*networking.Server{{Port: port,
					Hosts: []string{"*"}}},
			})
			for _, s := range c.services {
				k := registry.Key{Host: s.host, Namespace: s.namespace}
				e.in.Services = e.in.Services.With(k, &registry.Service{
					Key: k, Created: time.Date(s.year, 1, 1, 0, 0, 0, 0, time.UTC),
					Ports: []registry.Port{{Number: 80, Name: "web", Protocol: registry.HTTP, TargetPort: s.target}},
				})
				ep := registry.Endpoint{Address: s.address, Namespace: s.namespace}
				if s.own != 0 {
					ep.Ports = map[string]uint32{"web": s.own}
				}
				e.in.Endpoints = e.in.Endpoints.With(k, &registry.EndpointList{Items: []registry.Endpoint{ep}})
			}
			n := node("edge", self, "app=edge")
			n.Type = push.Router
			ctx := push.Build(nil, e.in)
			var got []uint32
			for _, s := range ctx.Classify(n).Gateways.Items() {
				got = append(got, s.Port)
			}
			if !slices.Equal(got, []uint32{c.want}) {
				t.Errorf("it listens on %v, want %d", got, c.want)
			}
		})
	}
}
