package entry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// syntheticPrefix begins the names of the ServiceEntries that Synthetic makes.
const syntheticPrefix = "registry-"

// Synthetic describes a service of a registry as a ServiceEntry, for other control planes. It omits
// what a ServiceEntry cannot describe: endpoints that are not healthy or do not have all ports, and
// allocated addresses.
func Synthetic(in registry.Instances) *config.Object {
	s := in.Service
	resolution := networking.ServiceEntry_Resolution_value[s.Resolution.String()]
	spec := &networking.ServiceEntry{
		Hosts:           []string{s.Host},
		Location:        networking.ServiceEntry_MESH_INTERNAL,
		Resolution:      networking.ServiceEntry_Resolution(resolution),
		ExportTo:        s.ExportTo,
		SubjectAltNames: s.SubjectAltNames,
	}
	if s.External {
		spec.Location = networking.ServiceEntry_MESH_EXTERNAL
	}
	for _, a := range s.Addresses {
		if a.IsSingleIP() {
			spec.Addresses = append(spec.Addresses, a.Addr().String())
		} else {
			spec.Addresses = append(spec.Addresses, a.String())
		}
	}
	for _, p := range s.Ports {
		port := &networking.ServicePort{Number: p.Number, Name: portName(p), TargetPort: p.TargetPort}
		if p.Protocol != registry.Unknown {
			port.Protocol = p.Protocol.String()
		}
		spec.Ports = append(spec.Ports, port)
	}
	for i := range in.Endpoints.All() {
		if ep := &in.Endpoints.Items[i]; ep.Health == registry.Healthy && hasAllPorts(ep, s) {
			spec.Endpoints = append(spec.Endpoints, workloadEntry(ep, s))
		}
	}
	kind, _, _ := strings.Cut(s.Source, ":") // the rest may differ between replicas
	o := &config.Object{
		Key:         SyntheticKey(s.Key),
		Labels:      s.Labels,
		Annotations: map[string]string{config.SourceAnnotation: kind},
		Created:     s.Created,
		Origin:      config.Origin{Source: s.Source},
		Spec:        spec,
	}
	o.Hash = config.HashOf(o)
	return o
}

func hasAllPorts(ep *registry.Endpoint, s *registry.Service) bool {
	return !slices.ContainsFunc(s.Ports, func(p registry.Port) bool { return ep.Port(p) == 0 })
}

// SyntheticKey returns the key of the ServiceEntry that Synthetic returns for a service.
func SyntheticKey(k registry.Key) config.Key {
	return config.Key{Kind: config.ServiceEntry, Namespace: k.Namespace, Name: syntheticPrefix + k.Host}
}

// synthetic reports whether an object is the result of Synthetic in another control plane.
func synthetic(o *config.Object) bool {
	spec, ok := o.Spec.(*networking.ServiceEntry)
	return ok && o.Annotations[config.SourceAnnotation] != "" && len(spec.Hosts) == 1 &&
		o.Name == syntheticPrefix+spec.Hosts[0]
}

// portName returns the name of a port. A ServiceEntry needs one for each.
func portName(p registry.Port) string { return cmp.Or(p.Name, fmt.Sprintf("port-%d", p.Number)) }

// workloadEntry describes an endpoint as a ServiceEntry lists it.
func workloadEntry(ep *registry.Endpoint, s *registry.Service) *networking.WorkloadEntry {
	w := &networking.WorkloadEntry{
		Address:        ep.Address,
		Ports:          map[string]uint32{},
		Labels:         map[string]string{},
		Network:        ep.Network,
		Locality:       ep.Locality.String(),
		Weight:         ep.Weight,
		ServiceAccount: ep.ServiceAccount,
	}
	maps.Copy(w.Labels, ep.Labels)
	for _, p := range s.Ports {
		if n := ep.Port(p); n != p.Number && n != p.TargetPort || ep.Ports[p.Name] != 0 {
			w.Ports[portName(p)] = n
		}
	}
	mode := cmp.Or(ep.TLSMode, "disabled")
	inferred := endpoint(w, "", "", w.Labels).TLSMode
	if mode != inferred && (ep.TLSMode != "" || w.ServiceAccount != "") {
		w.Labels[tlsModeLabel] = mode
	}
	return w
}
