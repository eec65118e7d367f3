package entry

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// source names the registry to people.
const source = "serviceentry"

// tlsModeLabel decides whether a workload takes the mesh's mutual TLS.
// Source: Istio, label security.istio.io/tlsMode; without it, a service account means that it does.
const tlsModeLabel = "security.istio.io/tlsMode"

// services makes one service for each host of a ServiceEntry.
func services(o *config.Object) []*registry.Service {
	spec := o.Spec.(*networking.ServiceEntry)
	shared := registry.Service{
		Addresses:       prefixes(spec.Addresses),
		Ports:           ports(spec.Ports),
		Resolution:      resolution(spec.Resolution),
		External:        spec.Location == networking.ServiceEntry_MESH_EXTERNAL,
		ExportTo:        spec.ExportTo,
		Labels:          o.Labels,
		SubjectAltNames: spec.SubjectAltNames,
		Created:         o.Created,
		Relayed:         synthetic(o),
		AutoAddress:     true,
		Source:          source,
		Object:          o.Key.String(),
	}
	out := make([]*registry.Service, len(spec.Hosts))
	for i, h := range spec.Hosts {
		s := shared
		s.Key = registry.Key{Host: h, Namespace: o.Namespace}
		out[i] = &s
	}
	return out
}

func ports(in []*networking.ServicePort) []registry.Port {
	out := make([]registry.Port, len(in))
	for i, p := range in {
		out[i] = registry.Port{Number: p.Number, Name: p.Name, Protocol: protocolOf(p.Protocol, p.Name), TargetPort: p.TargetPort}
	}
	return out
}

// prefixes reads virtual addresses, single ones or CIDR.
func prefixes(in []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(in))
	for _, s := range in {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		} else if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		} // else: refused by config.Validate
	}
	return out
}

func resolution(r networking.ServiceEntry_Resolution) registry.Resolution {
	switch r {
	case networking.ServiceEntry_STATIC:
		return registry.Static
	case networking.ServiceEntry_DNS:
		return registry.DNS
	case networking.ServiceEntry_DNS_ROUND_ROBIN:
		return registry.DNSRoundRobin
	default:
		return registry.Passthrough
	}
}

// endpoint makes an endpoint of a WorkloadEntry, inline or an object of its own.
func endpoint(w *networking.WorkloadEntry, namespace, name string, labels map[string]string) registry.Endpoint {
	ep := registry.Endpoint{
		Address:        w.Address,
		Ports:          w.Ports,
		Labels:         labels,
		Locality:       registry.ParseLocality(w.Locality),
		Network:        w.Network,
		Weight:         w.Weight,
		ServiceAccount: w.ServiceAccount,
		Namespace:      namespace,
		Workload:       name,
	}
	switch mode, ok := labels[tlsModeLabel]; {
	case ok && mode != "disabled":
		ep.TLSMode = mode
	case !ok && w.ServiceAccount != "":
		ep.TLSMode = "istio"
	}
	return ep
}

// labelsOf are those of a WorkloadEntry object: its metadata's, and its spec's over them.
func labelsOf(o *config.Object) map[string]string {
	own := o.Spec.(*networking.WorkloadEntry).Labels
	if len(o.Labels) == 0 {
		return own
	}
	all := maps.Clone(o.Labels)
	maps.Copy(all, own)
	return all
}

// inline are the endpoints that a ServiceEntry lists, in their order.
func inline(o *config.Object) []registry.Endpoint {
	spec := o.Spec.(*networking.ServiceEntry)
	out := make([]registry.Endpoint, len(spec.Endpoints))
	for i, w := range spec.Endpoints {
		out[i] = endpoint(w, o.Namespace, o.Name, w.Labels)
	}
	return out
}

// hostEndpoint is what a DNS service without endpoints resolves: its own host.
func hostEndpoint(s *registry.Service) []registry.Endpoint {
	return []registry.Endpoint{{Address: s.Host, Namespace: s.Namespace}}
}

// byAge orders ServiceEntries of one host: the older counts.
func byAge(a, b *config.Object) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Key.Compare(b.Key))
}

// differences are the settings in which a declaration of a host is not as the first one, which
// decides.
func differences(first, other *registry.Service) []string {
	var out []string
	for _, c := range registry.Differences(first, other) {
		switch c.Field {
		case "resolution":
			return []string{fmt.Sprintf("its resolution is %s, not %s, so its ports and endpoints are not used",
				resolutionOf(other.Resolution), resolutionOf(first.Resolution))}
		case "ports":
			out = append(out, "its "+c.Text+", so its endpoints do not serve that port")
		case "addresses": // compared below, since the first one may have none
		default:
			out = append(out, "its "+c.Field+" "+c.Text)
		}
	}
	if len(other.Addresses) > 0 && !slices.Equal(first.Addresses, other.Addresses) {
		out = append(out, fmt.Sprintf("its addresses are %v, not %v", other.Addresses, first.Addresses))
	}
	if !slices.Equal(first.ExportTo, other.ExportTo) {
		out = append(out, fmt.Sprintf("its exportTo is %q, not %q, so its ports and endpoints are not used",
			other.ExportTo, first.ExportTo))
	}
	if !slices.Equal(first.SubjectAltNames, other.SubjectAltNames) {
		out = append(out, fmt.Sprintf("its subjectAltNames are %q, not %q", other.SubjectAltNames, first.SubjectAltNames))
	}
	return out
}

// clash warns of a host that two ServiceEntries of one namespace declare differently.
func clash(host string, winner, other *config.Object, differs []string) feed.Problem {
	by := winner.Key.String()
	if other.Origin.Source != winner.Origin.Source {
		by += " of " + winner.Origin.Source
	}
	rank := "it is older"
	if winner.Created.Equal(other.Created) {
		rank = "it comes first by name, and neither is older"
	}
	return feed.Problem{
		Severity: feed.Warning, Source: cmp.Or(other.Origin.Source, source),
		Object: other.Key.String(), Field: "spec.hosts", File: other.Origin.File, Line: other.Origin.Line,
		Text: fmt.Sprintf("host %s is also declared by %s, which is used (%s): %s; make the two agree",
			host, by, rank, strings.Join(differs, "; ")),
	}
}

// sorted are the keys of a set in order.
func sorted[K interface {
	comparable
	Compare(K) int
}](set map[K]bool) []K {
	return slices.SortedFunc(maps.Keys(set), func(a, b K) int { return a.Compare(b) })
}
