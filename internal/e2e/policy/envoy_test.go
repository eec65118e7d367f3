package policy

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// decode reads the resources of a set by their names.
func decode[M proto.Message](t *testing.T, set resource.Set, empty func() M) map[string]M {
	t.Helper()
	out := map[string]M{}
	for r := range set.All() {
		m := empty()
		if err := proto.Unmarshal(r.Body(), m); err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		out[r.Name] = m
	}
	return out
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// inboundFilters are the network filters that the generator makes for the workload's port, with
// what is fetched on its own put into its place.
func inboundFilters(t *testing.T, g *gen.Generator, sc *push.Scope, port uint32) []*listenerv3.Filter {
	t.Helper()
	fetched := decode(t, g.Set(resource.ExtensionConfigType, sc),
		func() *corev3.TypedExtensionConfig { return &corev3.TypedExtensionConfig{} })
	l := decode(t, g.Set(resource.ListenerType, sc),
		func() *listenerv3.Listener { return &listenerv3.Listener{} })["virtualInbound"]
	for _, c := range l.GetFilterChains() {
		if c.GetFilterChainMatch().GetDestinationPort().GetValue() != port {
			continue
		}
		for i, f := range c.Filters {
			if f.GetConfigDiscovery() != nil {
				c.Filters[i] = &listenerv3.Filter{Name: f.Name,
					ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: fetched[f.Name].GetTypedConfig()}}
				continue
			}
			m := &hcmv3.HttpConnectionManager{}
			if !f.GetTypedConfig().MessageIs(m) {
				continue
			}
			if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
				t.Fatal(err)
			}
			for _, h := range m.HttpFilters {
				if h.GetConfigDiscovery() != nil {
					h.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: fetched[h.Name].GetTypedConfig()}
				}
			}
			c.Filters[i] = &listenerv3.Filter{Name: f.Name,
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(t, m)}}
		}
		return c.Filters
	}
	t.Fatalf("there is no chain for port %d", port)
	return nil
}

// listen is a listener that takes mutual TLS and plaintext on one port, and does with both what
// filters say.
func (w *world) listen(t *testing.T, port uint32, filters []*listenerv3.Filter) *listenerv3.Listener {
	t.Helper()
	server := w.certificate(t, "shop/web")
	key, err := ca.EncodeKey(keyOf(t, server))
	if err != nil {
		t.Fatal(err)
	}
	leaf := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate[0]})
	inline := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	tls := &tlsv3.DownstreamTlsContext{
		RequireClientCertificate: wrapperspb.Bool(true),
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificates: []*tlsv3.TlsCertificate{{CertificateChain: inline(leaf), PrivateKey: inline(key)}},
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
				TrustedCa: inline(ca.EncodeCertificates(w.signer.Cert)),
			}},
		},
	}
	return &listenerv3.Listener{
		Name:    "on " + netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port)).String(),
		Address: socket(address, port),
		ListenerFilters: []*listenerv3.ListenerFilter{{
			Name:       "envoy.filters.listener.tls_inspector",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: pack(t, &tlsinspectorv3.TlsInspector{})},
		}},
		FilterChains: []*listenerv3.FilterChain{
			{
				Name:             "mutual TLS",
				FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: "tls"},
				Filters:          filters,
				TransportSocket: &corev3.TransportSocket{
					Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(t, tls)},
				},
			},
			{Name: "plaintext", FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"}, Filters: filters},
		},
	}
}

// cluster leads to one address; h2 says that it speaks HTTP/2.
func cluster(t *testing.T, name, to string, h2 bool) *clusterv3.Cluster {
	t.Helper()
	a := netip.MustParseAddrPort(to)
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
					Endpoint: &endpointv3.Endpoint{Address: socket(a.Addr().String(), uint32(a.Port()))},
				}}},
			}}},
	}
	if h2 {
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(t, &httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
			}},
		})}
	}
	return c
}

func socket(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// pool trusts the authority.
func (w *world) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(w.signer.Cert)
	return p
}

// isTLS says that a caller shows a certificate: "-" has none.
func isTLS(from string) bool { return !strings.HasPrefix(from, "-") }
