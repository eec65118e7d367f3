package server

import (
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Services of registries are served as ServiceEntries, except for hosts that an object declares. The
// result follows changes.
func TestSynthesis(t *testing.T) {
	t.Parallel()
	s := &synthesis{log: testlog.New(t)}
	var now push.Exported
	wantHosts := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, o := range s.objects(now).All() {
			got = append(got, o.Spec.(*networking.ServiceEntry).Hosts...)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	service := func(host string) (registry.Key, *registry.Service) {
		k := registry.Key{Host: host, Namespace: "shop"}
		return k, &registry.Service{Key: k, Ports: []registry.Port{{Number: 80, Name: "http"}}}
	}
	wantHosts("nothing")
	webKey, web := service("web.example")
	apiKey, api := service("api.example")
	now.Services = now.Services.With(webKey, web).With(apiKey, api)
	now.Endpoints = now.Endpoints.With(webKey, &registry.EndpointList{Items: []registry.Endpoint{{Address: "10.0.0.1"}}})
	wantHosts("two services", "api.example", "web.example")
	own := config.Parse("a.yaml", []byte(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: shop}
spec:
  hosts: [web.example, own.example]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
`)).Objects[0]
	now.Objects = now.Objects.With(own.Key, own)
	wantHosts("an object declares one host", "api.example", "own.example", "web.example")
	now.Services = now.Services.Without(apiKey)
	wantHosts("a service is gone", "own.example", "web.example")
	now.Objects = now.Objects.Without(own.Key)
	wantHosts("the object is gone", "web.example")
}
