package xds

import (
	"fmt"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// configDump is what a proxy should have, in the form of Envoy's own dump and with Istio's sections.
// It has no private keys. Errors: a status if no such proxy is connected.
func (s *Server) configDump(id string, endpoints bool) (*adminv3.ConfigDump, error) {
	types, err := s.Dump(id)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	var (
		clusters  adminv3.ClustersConfigDump
		listeners adminv3.ListenersConfigDump
		routes    adminv3.RoutesConfigDump
		secrets   adminv3.SecretsConfigDump
		filters   adminv3.EcdsConfigDump
		hosts     adminv3.EndpointsConfigDump
	)
	for _, t := range types {
		for _, r := range t.Resources {
			body, version := r.Any(), r.Version()
			switch t.TypeURL {
			case resource.ClusterType:
				clusters.DynamicActiveClusters = append(clusters.DynamicActiveClusters,
					&adminv3.ClustersConfigDump_DynamicCluster{VersionInfo: version, Cluster: body})
			case resource.ListenerType:
				state := &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: version, Listener: body}
				listeners.DynamicListeners = append(listeners.DynamicListeners,
					&adminv3.ListenersConfigDump_DynamicListener{Name: r.Name, ActiveState: state})
			case resource.RouteType:
				routes.DynamicRouteConfigs = append(routes.DynamicRouteConfigs,
					&adminv3.RoutesConfigDump_DynamicRouteConfig{VersionInfo: version, RouteConfig: body})
			case resource.SecretType:
				if body, err = PublicSecret(body); err != nil {
					return nil, err
				}
				secrets.DynamicActiveSecrets = append(secrets.DynamicActiveSecrets,
					&adminv3.SecretsConfigDump_DynamicSecret{Name: r.Name, VersionInfo: version, Secret: body})
			case resource.ExtensionConfigType:
				filters.EcdsFilters = append(filters.EcdsFilters,
					&adminv3.EcdsConfigDump_EcdsFilterConfig{VersionInfo: version, EcdsFilter: body})
			case resource.EndpointType:
				hosts.DynamicEndpointConfigs = append(hosts.DynamicEndpointConfigs,
					&adminv3.EndpointsConfigDump_DynamicEndpointConfig{VersionInfo: version, EndpointConfig: body})
			}
		}
	}
	sections := []proto.Message{&adminv3.BootstrapConfigDump{}, &clusters, &listeners,
		&adminv3.ScopedRoutesConfigDump{}, &routes, &secrets, &filters}
	if endpoints {
		sections = append(sections, &hosts)
	}
	out := &adminv3.ConfigDump{}
	for _, m := range sections {
		section, err := anypb.New(m)
		if err != nil {
			return nil, err
		}
		out.Configs = append(out.Configs, section)
	}
	return out, nil
}

// PublicSecret returns a secret with what everybody may see: its name and certificates.
func PublicSecret(body *anypb.Any) (*anypb.Any, error) {
	var s tlsv3.Secret
	if err := body.UnmarshalTo(&s); err != nil {
		return nil, fmt.Errorf("read a secret: %w", err)
	}
	out := &tlsv3.Secret{Name: s.Name}
	if c := s.GetTlsCertificate(); c != nil {
		hidden := &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "[redacted]"}}
		out.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: c.CertificateChain, PrivateKey: hidden}}
	}
	if ca := s.GetValidationContext().GetTrustedCa(); ca != nil {
		out.Type = &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: ca}}
	}
	return anypb.New(out)
}
