package push_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// A workload that does not have a port of its service does not serve it, and nothing is sent to it
// there.
func TestLackingPort(t *testing.T) {
	t.Parallel()
	s := &registry.Service{Key: registry.Key{Host: "web", Namespace: "shop"},
		Ports: []registry.Port{{Number: 80, Name: "http"}, {Number: 9000, Name: "admin"}}}
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh()}}
	in.Services = in.Services.With(s.Key, s)
	const mapped = "::ffff:10.0.0.1" // a workload's endpoint may be written in either form
	in.Endpoints = in.Endpoints.With(s.Key, &registry.EndpointList{Items: []registry.Endpoint{{Address: mapped,
		Namespace: "shop", Workload: "web-1", Ports: map[string]uint32{"http": 8080, "admin": 0}}}})
	c := push.Build(nil, in)
	if own := c.Classify(node("shop", "10.0.0.1")).Own.Inbound.Items(); len(own) != 1 || own[0].Port.Name != "http" ||
		own[0].TargetPort != 8080 {
		t.Errorf("it serves %+v", own)
	}
}

// An endpoint whose address is written as IPv6 is the workload with the IPv4 address.
func TestMappedAddress(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.service("shop", "web")
	e.endpoints("shop", "web", "::ffff:10.0.0.1")
	own := push.Build(nil, e.in).Classify(node("shop", "10.0.0.1")).Own
	if got := own.Inbound.Len(); got != 1 {
		t.Errorf("got %d inbound ports, want 1", got)
	}
}
