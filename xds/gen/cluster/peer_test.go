package cluster

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Names that Envoy would refuse are left out, and where nobody is named, no certificate will do.
func TestMutualNames(t *testing.T) {
	t.Parallel()
	m := &push.Mesh{Config: config.DefaultMesh()}
	s := clusterSpec{service: &registry.Service{Key: registry.Key{Host: strings.Repeat("a.", 125) + "b"}}, port: 80,
		mesh: m}
	if got := s.sni(); got != "" {
		t.Errorf("got a name of %d bytes", len(got))
	}
	s.service = &registry.Service{Key: registry.Key{Host: "web.example"}}
	s.subset = &networking.Subset{Name: "v1"}
	if got := s.sni(); got != "outbound_.80_.v1_.web.example" {
		t.Errorf("got %q", got)
	}
	s.mutual = destination.MutualAlways
	c, u := &clusterv3.Cluster{}, &tlsv3.UpstreamTlsContext{}
	shape := s.shape()
	shape.protocol = registry.HTTP2
	s.speakMutual(c, resource.Encode(shape.mutualTLS()))
	if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(u); err != nil {
		t.Fatal(err)
	}
	names := u.CommonTlsContext.GetCombinedValidationContext().DefaultValidationContext.MatchTypedSubjectAltNames
	if len(names) != 1 || names[0].Matcher.GetExact() != envoy.Nobody {
		t.Errorf("got %v, want nobody", names)
	}
	if want := []string{"istio", "h2"}; !slices.Equal(u.CommonTlsContext.AlpnProtocols, want) {
		t.Errorf("got %v, want %v", u.CommonTlsContext.AlpnProtocols, want)
	}
	if s.anyNameProblem("c") != nil {
		t.Error("a cluster that has no endpoints yet takes any certificate")
	}
	s.anyName = true
	if p := s.anyNameProblem("c"); p == nil || p.Severity != feed.Warning {
		t.Errorf("got %v, want a warning that no name is checked", p)
	}
	s.service = &registry.Service{Key: s.service.Key, SubjectAltNames: []string{"x"}}
	if s.anyNameProblem("c") != nil {
		t.Error("subjectAltNames of the service do not count")
	}
	always := destination.Policy{Tls: &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_ISTIO_MUTUAL}}
	for resolution, want := range map[registry.Resolution]bool{registry.Passthrough: true, registry.Static: false} {
		s := clusterSpec{service: &registry.Service{Resolution: resolution}, policy: always, mesh: m}.withMutual(true,
			push.Identities{})
		if s.anyName != want {
			t.Errorf("without endpoints, resolution %v: any name will do: %v, want %v", resolution, s.anyName, want)
		}
	}
}
