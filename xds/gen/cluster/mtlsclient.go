package cluster

import (
	"strconv"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/endpoint"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// withMutual sets what the cluster needs for mutual TLS, nothing where it speaks none.
func (s clusterSpec) withMutual(identity bool, ids push.Identities) clusterSpec {
	s.mutual, s.identities, s.anyName = s.reach().MutualTLS(s.mesh, identity, ids), nil, false
	if s.mutual == destination.MutualAuto || s.mutual == destination.MutualAlways {
		s.identities = ids.Names
		s.anyName = ids.AnyName || ids.Names == nil && s.reach().Discovery() == destination.ByOriginal
	}
	return s
}

// peerSpec is everything that TLS to the endpoints of a cluster is made of, without the name that
// is asked for.
type peerSpec struct {
	mesh       *push.Mesh
	identities *intern.List[push.Identity]
	// rule and names are set only when it is their subjectAltNames that count.
	rule  *networking.ClientTLSSettings
	names *registry.Service
	// anyName says that nothing names the endpoints, so that their certificates may have any name.
	anyName bool
	http2   bool
}

// encodedPeer is an UpstreamTlsContext without sni.
type encodedPeer struct{ bytes []byte }

// peer picks what counts: the names of the rule, else of the service, else who its endpoints are,
// else none. Source: istio.io, ClientTLSSettings.subjectAltNames and ServiceEntry.subjectAltNames.
func (s clusterSpec) peer(http2 bool) peerSpec {
	p := peerSpec{mesh: s.mesh, http2: http2}
	switch {
	case len(s.policy.Tls.GetSubjectAltNames()) > 0:
		p.rule = s.policy.Tls
	case len(s.service.SubjectAltNames) > 0:
		p.names = s.service
	default:
		p.identities, p.anyName = s.identities, s.anyName
	}
	return p
}

// encodePeer builds it. Without names no certificate will do, unless it may have any name. A
// cluster that has no endpoints yet accepts none: its first endpoints may arrive before the names
// that they have to prove.
//
// Sessions are not resumed, so that each connection looks at the endpoint's certificate anew.
func encodePeer(s peerSpec) *encodedPeer {
	alpn := []string{envoy.AlpnMesh}
	if s.http2 {
		alpn = append(alpn, "h2")
	}
	names := s.rule.GetSubjectAltNames()
	if s.names != nil {
		names = s.names.SubjectAltNames
	}
	for _, id := range s.identities.Items() {
		for _, d := range envoy.MeshDomains(s.mesh) {
			if name, err := spiffe.New(d, id.Namespace, id.ServiceAccount); err == nil { // else no certificate bears it
				names = append(names[:len(names):len(names)], name.String())
			}
		}
	}
	if len(names) == 0 && !s.anyName {
		names = []string{envoy.Nobody}
	}
	return &encodedPeer{resource.Encode(&tlsv3.UpstreamTlsContext{
		CommonTlsContext: envoy.MeshTLS(s.mesh, alpn, envoy.ExactNames(names)),
		MaxSessionKeys:   wrapperspb.UInt32(0),
	})}
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

// The fields of what follows, and of cluster.v3.Cluster where it stands.
const (
	fieldClusterSocket  protowire.Number = 24
	fieldClusterMatches protowire.Number = 43
	fieldMatchName      protowire.Number = 1 // Cluster.TransportSocketMatch
	fieldMatchCriteria  protowire.Number = 2
	fieldMatchSocket    protowire.Number = 3
	fieldSocketName     protowire.Number = 1 // TransportSocket
	fieldSocketConfig   protowire.Number = 3
	fieldAnyURL         protowire.Number = 1
	fieldAnyValue       protowire.Number = 2
	fieldUpstreamSNI    protowire.Number = 2 // UpstreamTlsContext
)

const upstreamTLSType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"

// append appends the transport socket to the cluster: for all endpoints, or for those that say they
// take it.
func (p *encodedPeer) append(b []byte, how destination.Mutual, sni string) []byte {
	if how == destination.MutualAlways {
		return p.appendSocket(b, fieldClusterSocket, sni)
	}
	return envoy.AppendMessage(b, fieldClusterMatches, func(b []byte) []byte {
		b = envoy.AppendText(b, fieldMatchName, "tlsMode-istio")
		b = envoy.AppendMessage(b, fieldMatchCriteria, endpoint.AppendTLSMode)
		return p.appendSocket(b, fieldMatchSocket, sni)
	})
}

func (p *encodedPeer) appendSocket(b []byte, field protowire.Number, sni string) []byte {
	return envoy.AppendMessage(b, field, func(b []byte) []byte {
		b = envoy.AppendText(b, fieldSocketName, envoy.TlsSocketName)
		return envoy.AppendMessage(b, fieldSocketConfig, func(b []byte) []byte {
			b = envoy.AppendText(b, fieldAnyURL, upstreamTLSType)
			return envoy.AppendMessage(b, fieldAnyValue, func(b []byte) []byte {
				return envoy.AppendText(append(b, p.bytes...), fieldUpstreamSNI, sni)
			})
		})
	})
}

// anyNameProblem is the problem of a cluster whose mutual TLS checks no name; nil: it does.
func (s clusterSpec) anyNameProblem(name string) *feed.Problem {
	if !s.peer(false).anyName {
		return nil
	}
	return s.problem("the cluster " + name + " checks no name in the certificates of its endpoints, so that any workload of the mesh can pass for one: " +
		"write serviceAccount of the endpoints, subjectAltNames of the ServiceEntry, or tls.subjectAltNames of the DestinationRule")
}

// withoutIdentity is the problem of a cluster that is to speak mutual TLS on a proxy that has no
// certificate.
func (s clusterSpec) withoutIdentity(name string) *feed.Problem {
	return s.problem("the cluster " + name + " closes its connections on proxies that have no certificate of the mesh, " +
		"because ISTIO_MUTUAL needs one: let their machines join, or set another tls.mode")
}

// problem is a warning about the rule that decides.
func (s clusterSpec) problem(text string) *feed.Problem {
	p := &feed.Problem{Severity: feed.Warning, Text: text}
	if s.rule != nil {
		p.Object, p.File, p.Line = s.rule.Key.String(), s.rule.Origin.File, s.rule.Origin.Line
	}
	return p
}
