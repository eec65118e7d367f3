package secret

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes the secrets that clusters and listeners refer to.
type Generator struct{}

// secretIn is everything that the secrets depend on.
type secretIn struct {
	// secrets are those that the proxy may have.
	secrets      *secret.Namespace
	router       bool
	destinations *push.Destinations
	gateways     *intern.List[push.GatewayServer]
	// sidecar is set only when its ingress listeners end TLS.
	sidecar *push.SidecarConfig
	// unknown is the TLS of connections to unknown hosts; nil: they are not resolved.
	unknown *networking.ClientTLSSettings
}

// Plans implements envoy.Kind.
func (Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	in := secretIn{secrets: sc.Secrets, router: sc.Type == push.Router, destinations: sc.Destinations, gateways: sc.Gateways}
	if sc.Sidecar != nil && slices.ContainsFunc(sc.Sidecar.Spec.Ingress,
		func(l *networking.IstioIngressListener) bool { return l.Tls != nil }) {
		in.sidecar = sc.Sidecar
	}
	if destination.ResolvesUnknown(sc) {
		in.unknown = sc.Mesh.Config.GetOutboundTrafficPolicy().GetTls()
	}
	return in, nil
}

// Layer makes the secrets that clusters and listeners name, as far as they exist. Of equal ones the
// layer keeps one.
//
// If one of ashored's secrets does not exist, the proxy gets the answer that it does not exist. Envoy
// then serves everything else. An Envoy that has the secret keeps it. Source: Envoy,
// SdsApi::onConfigUpdate: a removal is ignored, and ends the wait for the secret.
func (in secretIn) Layer() *envoy.Layer {
	var out []*resource.Resource
	add := func(sources ...*Source) {
		for _, s := range sources {
			if s == nil {
				continue
			}
			if s.files != (secret.Secret{}) {
				out = append(out, s.build(s.files, inFile))
			} else if v, ok := in.secrets.Resource(s.Name); ok {
				out = append(out, s.build(v, inline))
			}
		}
	}
	server := func(t *networking.ServerTLSSettings) {
		add(CertificatesOf(t)...)
		add(ClientAuthorities(t))
	}
	for _, dest := range in.destinations.Items() {
		destination.EachCluster(dest, func(port uint32, subset *networking.Subset, forwarded bool) {
			if !forwarded {
				p := destination.PolicyFor(dest.Rule, subset, port)
				add(clientSources(p.Tls, in.router || p.Selected))
			}
		})
	}
	add(clientSources(in.unknown, false))
	for _, g := range in.gateways.Items() {
		server(g.Server.GetTls())
	}
	if in.sidecar != nil {
		for _, l := range in.sidecar.Spec.Ingress {
			server(l.Tls)
		}
	}
	return envoy.NewLayer(out...)
}
