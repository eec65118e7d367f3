package entry

import (
	"net/netip"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// service returns the service of one host of a ServiceEntry.
func service(o *config.Object, host string) *registry.Service {
	spec := o.Spec.(*networking.ServiceEntry)
	return &registry.Service{
		Key:             registry.Key{Host: host, Namespace: o.Namespace},
		Addresses:       prefixes(spec.Addresses),
		Ports:           ports(spec.Ports),
		Resolution:      resolution(spec.Resolution),
		External:        spec.Location == networking.ServiceEntry_MESH_EXTERNAL,
		ExportTo:        spec.ExportTo,
		Distribution:    registry.ParseDistribution(o.Annotations[registry.DistributionAnnotation]),
		Labels:          o.Labels,
		SubjectAltNames: spec.SubjectAltNames,
		Created:         o.Created,
		Declared:        !synthetic(o),
		Relayed:         synthetic(o),
		AutoAddress:     true,
		Source:          source,
		Object:          o.Key.String(),
	}
}

func ports(in []*networking.ServicePort) []registry.Port {
	out := make([]registry.Port, len(in))
	for i, p := range in {
		protocol, _ := registry.ParseProtocol(p.Protocol)
		if p.Protocol == "" {
			protocol = registry.ProtocolByName(p.Name)
		}
		out[i] = registry.Port{Number: p.Number, Name: p.Name, Protocol: protocol, TargetPort: p.TargetPort}
	}
	return out
}

// prefixes parses virtual IPs, single addresses or CIDR ranges. config.Validate rejects other
// values.
func prefixes(in []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(in))
	for _, s := range in {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		} else if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// resolution returns the resolution of that name. An unknown one is Passthrough.
func resolution(r networking.ServiceEntry_Resolution) registry.Resolution {
	out := registry.Passthrough
	_ = out.UnmarshalText([]byte(r.String())) // an error leaves Passthrough
	return out
}
