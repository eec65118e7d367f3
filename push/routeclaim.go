package push

import (
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
)

// routeClaims are what the routes of a VirtualService ask for on a gateway, in their order.
func routeClaims(o *config.Object, gateway string) []claim {
	spec := o.Spec.(*networking.VirtualService)
	b := claimBuilder{gateway: gateway, namespace: o.Namespace}
	for i, r := range spec.Http {
		b.field = fmt.Sprintf("spec.http[%d]", i)
		if b.http(r) {
			break
		}
	}
	b.behind = false
	for i, r := range spec.Tcp {
		b.field = fmt.Sprintf("spec.tcp[%d]", i)
		if len(r.Route) > 0 {
			b.tcp(r)
		}
	}
	for i, r := range spec.Tls {
		b.field = fmt.Sprintf("spec.tls[%d]", i)
		if len(r.Route) > 0 {
			b.tls(r)
		}
	}
	return b.out
}

// claimBuilder makes the claims of one VirtualService on one gateway.
type claimBuilder struct {
	gateway, namespace string
	field              string // of the route at hand
	behind             bool   // a route before it takes all requests, under some conditions
	out                []claim
}

func (b *claimBuilder) mesh() bool { return b.gateway == meshGateway }

// add claims a name, which may be part of a wider one, under the conditions of a match, unless the match is for
// other gateways.
func (b *claimBuilder) add(name, within string, port uint32, m sourceMatch, gateways []string) bool {
	if len(gateways) > 0 && !slices.Contains(resolveGateways(slices.Clone(gateways), b.namespace), b.gateway) {
		return false
	}
	b.out = append(b.out, claim{name: name, within: within, behind: b.behind, field: b.field, port: port, labels: m.GetSourceLabels(), namespace: m.GetSourceNamespace()})
	return true
}

// http adds what an HTTP route asks for. On sidecars that is the host. On a gateway it is requests of its kind; it
// says whether these are all, since no route after it is reached.
func (b *claimBuilder) http(r *networking.HTTPRoute) (all bool) {
	if len(r.Match) == 0 {
		b.add("http", "", 0, &networking.HTTPMatchRequest{}, nil)
		return !b.mesh()
	}
	for _, m := range r.Match {
		name := "http"
		if !b.mesh() {
			name += requests(m)
		}
		if b.add(name, "", m.Port, m, m.Gateways) && !b.mesh() && name == "http" {
			if m.Port == 0 && len(m.SourceLabels) == 0 && m.SourceNamespace == "" {
				return true
			}
			b.behind = true
		}
	}
	return false
}

// requests names the requests that a match is about, its conditions on gateway, port and source aside; empty: all.
// Equal ones have one name.
func requests(m *networking.HTTPMatchRequest) string {
	only := proto.Clone(m).(*networking.HTTPMatchRequest)
	only.Name, only.StatPrefix, only.Port, only.Gateways, only.SourceLabels, only.SourceNamespace = "", "", 0, nil, nil, ""
	if everyRequest(only.Uri) {
		only.Uri, only.IgnoreUriCase = nil, false
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(only)
	if err != nil { // a text that is not UTF-8: like no other
		return fmt.Sprintf(" %p", m)
	}
	return string(body)
}

// everyRequest says that a condition on the path holds for every path.
func everyRequest(uri *networking.StringMatch) bool {
	switch p := uri.GetMatchType().(type) {
	case nil:
		return true
	case *networking.StringMatch_Prefix:
		return p.Prefix == "/" || p.Prefix == ""
	case *networking.StringMatch_Regex:
		return p.Regex == ".*"
	default:
		return false
	}
}

// tcp adds what a TCP route asks for: on sidecars connections to its subnets, on a gateway all.
func (b *claimBuilder) tcp(r *networking.TCPRoute) {
	if len(r.Match) == 0 {
		b.add("tcp", "", 0, &networking.L4MatchAttributes{}, nil)
	}
	for _, m := range r.Match {
		if len(m.DestinationSubnets) == 0 || !b.mesh() {
			b.add("tcp", "", m.Port, b.source(m), m.Gateways)
			continue
		}
		for _, subnet := range m.DestinationSubnets {
			b.add("tcp "+subnet, "tcp", m.Port, m, m.Gateways)
		}
	}
}

// tls adds what a TLS route asks for: connections to its subnets by SNI.
func (b *claimBuilder) tls(r *networking.TLSRoute) {
	for _, m := range r.Match {
		for _, subnet := range orAny(m.DestinationSubnets) {
			for _, sni := range orAny(m.SniHosts) {
				b.add("tls "+subnet+" "+strings.ToLower(sni), "", m.Port, b.source(m), m.Gateways)
			}
		}
	}
}

// source is the match for its conditions on the source, which are for sidecars alone where connections are routed.
func (b *claimBuilder) source(m sourceMatch) sourceMatch {
	if b.mesh() {
		return m
	}
	return &networking.L4MatchAttributes{}
}

// orAny is the list, or one empty text when it is empty.
func orAny(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}
