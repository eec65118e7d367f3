package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// peerPorts are those that policies of the laws speak of; nobody declares the last.
func peerPorts() []uint32 { return []uint32{80, 81, 82, 7777} }

// randomPeers are policies of every level, some of which say what is not understood.
func randomPeers(rnd *rand.Rand) []*security.PeerAuthentication {
	var out []*security.PeerAuthentication
	mode := func() *security.PeerAuthentication_MutualTLS {
		if rnd.IntN(6) == 0 {
			return nil
		}
		return &security.PeerAuthentication_MutualTLS{Mode: security.PeerAuthentication_MutualTLS_Mode(rnd.IntN(8))}
	}
	for range 1 + rnd.IntN(5) {
		p := &security.PeerAuthentication{Mtls: mode()}
		if rnd.IntN(2) == 0 {
			p.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": []string{"web",
				"other"}[rnd.IntN(2)]}}
			p.PortLevelMtls = map[uint32]*security.PeerAuthentication_MutualTLS{}
			for _, port := range peerPorts() {
				if rnd.IntN(2) == 0 {
					p.PortLevelMtls[port] = mode()
				}
			}
		}
		out = append(out, p)
	}
	return out
}

// understood is p without the modes that are not.
func understood(p *security.PeerAuthentication) *security.PeerAuthentication {
	p = proto.CloneOf(p)
	strip := func(m *security.PeerAuthentication_MutualTLS) {
		if m != nil && m.Mode > security.PeerAuthentication_MutualTLS_STRICT {
			m.Mode = security.PeerAuthentication_MutualTLS_UNSET
		}
	}
	strip(p.Mtls)
	for _, m := range p.PortLevelMtls {
		strip(m)
	}
	return p
}

// peerScope is what a workload sees of policies, with or without a certificate of the mesh.
func peerScope(t *testing.T, policies []*security.PeerAuthentication, identity bool, interception string) *push.Scope {
	t.Helper()
	in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
	k := registry.Key{Host: "web.example", Namespace: "shop"}
	in.Services = in.Services.With(k, &registry.Service{Key: k, Ports: []registry.Port{
		{Number: 80, Name: "http", Protocol: registry.HTTP}, {Number: 81, Name: "tcp", Protocol: registry.TCP}, {Number: 82, Name: "x"},
	}})
	in.Endpoints = in.Endpoints.With(k, &registry.EndpointList{Items: []registry.Endpoint{{Address: "10.0.0.1",
		Namespace: "shop"}}})
	for i, p := range policies {
		key := config.Key{Kind: config.PeerAuthentication, Namespace: []string{"shop", "istio-system"}[i%2],
			Name: fmt.Sprint(i)}
		in.Objects = in.Objects.With(key, &config.Object{Key: key, Spec: p})
	}
	key := config.Key{Kind: config.Sidecar, Namespace: "shop", Name: "bound"}
	if interception == "NONE" {
		in.Objects = in.Objects.With(key, &config.Object{Key: key,
			Spec: &networking.Sidecar{Ingress: []*networking.IstioIngressListener{
				{Port: &networking.SidecarPort{Number: 80, Name: "http", Protocol: "HTTP"}},
				{Port: &networking.SidecarPort{Number: 81, Name: "tcp", Protocol: "TCP"}},
			}}})
	}
	c := push.Build(nil, in)
	n := goldentest.Proxy{Addresses: []string{"10.0.0.1"}, Namespace: "shop",
		Labels: map[string]string{"app": "web"}, Identity: identity, Interception: interception}.Node(t)
	return c.Scope(c.Classify(n))
}

// What cannot be understood never makes a workload take more than it would without; and where only
// mutual TLS is allowed, every filter chain that a connection could reach ends it or closes.
func FuzzPeersNeverWeaker(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		policies := randomPeers(rnd)
		var stripped []*security.PeerAuthentication
		for _, p := range policies {
			stripped = append(stripped, understood(p))
		}
		modes := func(sc *push.Scope) push.PeerModes {
			return push.PeerModesOf(sc.PeerAuthentication.Items(), "istio-system", &intern.Lists[push.PortMode]{})
		}
		for _, identity := range []bool{true, false} {
			for _, interception := range []string{"REDIRECT", "NONE"} {
				sc := peerScope(t, policies, identity, interception)
				with, without := modes(sc), modes(peerScope(t, stripped, identity, interception))
				for _, port := range peerPorts() {
					if strictness(with.At(port)) < strictness(without.At(port)) {
						t.Errorf("port %d: %v with what is not understood, %v without", port, with.At(port),
							without.At(port))
					}
				}
				for _, l := range decodeListeners(t, New().Set(resource.ListenerType, sc)) {
					checkPeers(t, l, with, identity)
				}
			}
		}
	})
}

func strictness(m push.PeerMode) int {
	return map[push.PeerMode]int{push.PeerDisable: 0, push.PeerPermissive: 1, push.PeerStrict: 2}[m]
}

// checkPeers fails the test when a chain of an inbound listener takes what a mode forbids.
func checkPeers(t *testing.T, l *listenerv3.Listener, modes push.PeerModes, identity bool) {
	t.Helper()
	if l.TrafficDirection.String() != "INBOUND" {
		return
	}
	declared := map[uint32]bool{}
	for _, c := range l.FilterChains {
		declared[c.FilterChainMatch.GetDestinationPort().GetValue()] = true
	}
	for _, port := range peerPorts() {
		at := port
		if l.Name != "virtualInbound" {
			if l.Address.GetSocketAddress().GetPortValue() != port {
				continue
			}
			at = 0
		} else if !declared[port] {
			at = 0
		}
		chains := slices.Clone(l.FilterChains)
		if l.DefaultFilterChain != nil {
			chains = append(chains, l.DefaultFilterChain)
		}
		for _, c := range chains {
			m := c.FilterChainMatch
			if m.GetDestinationPort().GetValue() != at || goesNowhere(c) {
				continue
			}
			mutual := endsMutual(t, c)
			if mode := modes.At(port); mode == push.PeerStrict && !mutual || mutual && !identity {
				t.Errorf("%s, port %d: the mode is %v and a chain takes %v", l.Name, port, mode, m)
			}
			if slices.ContainsFunc(m.GetApplicationProtocols(),
				func(p string) bool { return slices.Contains(strings.Split(envoy.ALPNMeshAny, ","), p) }) && !mutual {
				t.Errorf("%s, port %d: peers of the mesh are not asked for a certificate: %v", l.Name, port, m)
			}
		}
	}
}

// goesNowhere says that a chain closes connections.
func goesNowhere(c *listenerv3.FilterChain) bool {
	last := c.Filters[len(c.Filters)-1]
	proxy := &tcpv3.TcpProxy{}
	return last.GetTypedConfig().UnmarshalTo(proxy) == nil && proxy.GetCluster() == envoy.BlackHole
}

// endsMutual says that a chain wants a certificate that names a workload of the mesh.
func endsMutual(t *testing.T, c *listenerv3.FilterChain) bool {
	t.Helper()
	if c.TransportSocket == nil {
		return false
	}
	m := &tlsv3.DownstreamTlsContext{}
	if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	v := m.CommonTlsContext.GetCombinedValidationContext()
	return m.RequireClientCertificate.GetValue() &&
		len(v.GetDefaultValidationContext().GetMatchTypedSubjectAltNames()) > 0 &&
		v.GetValidationContextSdsSecretConfig().GetName() == envoy.RootsSecret
}
