package cluster

import (
	"slices"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/endpoint"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// withMutual sets what the cluster needs for mutual TLS, nothing where it speaks none.
func (s clusterSpec) withMutual(identity bool, ids push.Identities) clusterSpec {
	s.mutual, s.identities, s.anyName = s.reach().MutualTLS(s.mesh, identity, ids), nil, false
	if s.mutual == destination.MutualAuto || s.mutual == destination.MutualAlways {
		by := s.reach().Discovery()
		s.identities = ids.Names
		s.anyName = ids.AnyName || ids.Names == nil && (by == destination.ByOriginal || by == destination.ByHost)
	}
	return s
}

// names are those of which an endpoint's certificate has to bear one: those of the rule, else of the
// service, else who the endpoints are. Without any no certificate will do, unless anyName says that
// each does: a cluster that has no endpoints yet accepts none, because its first endpoints may arrive
// before the names that they have to prove.
// Source: istio.io, ClientTLSSettings.subjectAltNames and ServiceEntry.subjectAltNames.
func (s clusterSpec) names() []string {
	if names := s.policy.Tls.GetSubjectAltNames(); len(names) > 0 {
		return names
	}
	if len(s.service.SubjectAltNames) > 0 {
		return s.service.SubjectAltNames
	}
	var names []string
	for _, id := range s.identities.Items() {
		for _, d := range s.mesh.TrustDomains() {
			if name, err := spiffe.New(d, id.Namespace, id.ServiceAccount); err == nil { // else no certificate bears it
				names = append(names, name.String())
			}
		}
	}
	if len(names) == 0 && !s.anyName {
		return []string{envoy.Nobody}
	}
	return names
}

// mutualTLS is the TLS context of clusters that speak mutual TLS, without server names. Sessions are
// not resumed, so that each connection looks at the endpoint's certificate anew.
func (s clusterShape) mutualTLS() *tlsv3.UpstreamTlsContext {
	alpn := []string{envoy.ALPNMesh}
	if s.upstreamHTTP().protocol == upstreamHTTP2 {
		alpn = append(alpn, "h2")
	}
	common := envoy.MeshTLS(s.mesh, alpn, nil)
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common, MaxSessionKeys: wrapperspb.UInt32(0)}
}

// speakMutual makes c speak mutual TLS where the cluster does: to all endpoints, or to those that say
// they take it. shared is the encoded clusterShape.mutualTLS; the server names follow it.
func (s clusterSpec) speakMutual(c *clusterv3.Cluster, shared []byte) {
	if s.mutual != destination.MutualAuto && s.mutual != destination.MutualAlways {
		return
	}
	socket := envoy.TLSSocket(&tlsv3.UpstreamTlsContext{Sni: s.sni(), CommonTlsContext: &tlsv3.CommonTlsContext{
		ValidationContextType: envoy.PeerValidation(nil, envoy.ExactNames(s.names())),
	}})
	config := socket.GetTypedConfig()
	config.Value = slices.Concat(shared, config.Value)
	socket = proxied(socket, s.policy.Proxied)
	if s.mutual == destination.MutualAlways {
		c.TransportSocket = socket
		return
	}
	c.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{{
		Name: "tlsMode-istio", TransportSocket: socket,
		Match: &structpb.Struct{Fields: map[string]*structpb.Value{
			endpoint.TLSMode: structpb.NewStringValue(endpoint.TLSModeIstio)}},
	}}
}

// sni is what the cluster asks endpoints for: what the rule says, else the cluster's name in a form
// that gateways take apart; empty where that is longer than Envoy allows. Source: Istio,
// model.BuildDNSSrvSubsetKey.
func (s clusterSpec) sni() string {
	if sni := s.policy.Tls.GetSni(); sni != "" {
		return sni
	}
	const longest = 255
	name := "outbound_." + strconv.FormatUint(uint64(s.port), 10) + "_." + s.subset.GetName() + "_." + s.service.Host
	if len(name) > longest {
		return ""
	}
	return name
}

// anyNameProblem is the problem of a cluster whose mutual TLS checks no name; nil: it does.
func (s clusterSpec) anyNameProblem(name string) *feed.Problem {
	if len(s.names()) > 0 {
		return nil
	}
	return envoy.ProblemOf(s.rule, feed.Warning, "the cluster "+name+" checks no name in the certificates of its "+
		"endpoints, so that any workload of the mesh can pass for one: write serviceAccount of the endpoints, subjectAltNames of the ServiceEntry, or tls.subjectAltNames of the DestinationRule")
}

// withoutIdentity is the problem of a cluster that is to speak mutual TLS on a proxy that has no
// certificate.
func (s clusterSpec) withoutIdentity(name string) *feed.Problem {
	return envoy.ProblemOf(s.rule, feed.Warning, "the cluster "+name+" closes its connections on proxies that have "+
		"no certificate of the mesh, because ISTIO_MUTUAL needs one: let their machines join, or set another tls.mode")
}
