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

// syntheticPrefix begins the names of the ServiceEntries that Synthetic makes, so that they are no operator's.
const syntheticPrefix = "registry-"

// Synthetic is the ServiceEntry that declares a service as a registry knows it, for control planes that know
// no such registry. Endpoints that may be sent nothing are left out, since a ServiceEntry cannot say so; addresses that were
// allocated are too, since they have a meaning here alone, and endpoints that do not have all ports, which it cannot say either.
func Synthetic(in registry.Instances) *config.Object {
	s := in.Service
	spec := &networking.ServiceEntry{
		Hosts: []string{s.Host}, Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: resolutionOf(s.Resolution),
		ExportTo: s.ExportTo, SubjectAltNames: s.SubjectAltNames,
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
	names := portNames(s)
	for i, p := range s.Ports {
		port := &networking.ServicePort{Number: p.Number, Name: names[i], TargetPort: p.TargetPort}
		if p.Protocol != registry.Unknown {
			port.Protocol = p.Protocol.String()
		}
		spec.Ports = append(spec.Ports, port)
	}
	for i := range in.Endpoints.All() {
		if ep := &in.Endpoints.Items[i]; ep.Health == registry.Healthy && hasAll(ep, s) {
			spec.Endpoints = append(spec.Endpoints, workloadOf(ep, s, names))
		}
	}
	o := &config.Object{
		Key:    SyntheticKey(s.Key),
		Labels: s.Labels, Annotations: map[string]string{config.SourceAnnotation: kindOf(s.Source)}, Created: s.Created,
		Origin: config.Origin{Source: s.Source}, Spec: spec,
	}
	o.Hash = config.HashOf(o)
	return o
}

// hasAll says that an endpoint has all ports of a service.
func hasAll(ep *registry.Endpoint, s *registry.Service) bool {
	return !slices.ContainsFunc(s.Ports, func(p registry.Port) bool { return ep.Port(p) == 0 })
}

// kindOf is of what kind a source is: its whole name may differ from one control plane to the next.
func kindOf(source string) string {
	kind, _, _ := strings.Cut(source, ":")
	return kind
}

// SyntheticKey is the key of the ServiceEntry that Synthetic makes of a service.
func SyntheticKey(k registry.Key) config.Key {
	return config.Key{Kind: config.ServiceEntry, Namespace: k.Namespace, Name: syntheticPrefix + k.Host}
}

// SyntheticOf is the service of which Synthetic would make an object of that key; false: of none.
func SyntheticOf(k config.Key) (registry.Key, bool) {
	host, ok := strings.CutPrefix(k.Name, syntheticPrefix)
	return registry.Key{Host: host, Namespace: k.Namespace}, ok && k.Kind == config.ServiceEntry
}

// synthetic says that an object is one that Synthetic made, here or in another control plane: what it says is what a registry
// knows there, and nobody declared it.
func synthetic(o *config.Object) bool {
	spec, ok := o.Spec.(*networking.ServiceEntry)
	return ok && o.Annotations[config.SourceAnnotation] != "" && len(spec.Hosts) == 1 && o.Name == syntheticPrefix+spec.Hosts[0]
}

// portNames are the names of a service's ports; one without is called by its number, for a ServiceEntry needs them.
func portNames(s *registry.Service) []string {
	out := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		if out[i] = p.Name; p.Name == "" {
			out[i] = fmt.Sprintf("port-%d", p.Number)
		}
	}
	return out
}

// workloadOf is an endpoint as a ServiceEntry lists it.
func workloadOf(ep *registry.Endpoint, s *registry.Service, names []string) *networking.WorkloadEntry {
	w := &networking.WorkloadEntry{
		Address: ep.Address, Labels: maps.Clone(ep.Labels), Network: ep.Network, Locality: ep.Locality.String(), Weight: ep.Weight, ServiceAccount: ep.ServiceAccount,
	}
	for i, p := range s.Ports {
		if n := ep.Port(p); n != p.Number && n != p.TargetPort || ep.Ports[p.Name] != 0 {
			if w.Ports == nil {
				w.Ports = map[string]uint32{}
			}
			w.Ports[names[i]] = n
		}
	}
	if mode := cmp.Or(ep.TLSMode, "disabled"); mode != endpoint(w, "", "", w.Labels).TLSMode && (ep.TLSMode != "" || w.ServiceAccount != "") {
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		w.Labels[tlsModeLabel] = mode
	}
	return w
}

// resolutionOf is resolution the other way round.
func resolutionOf(r registry.Resolution) networking.ServiceEntry_Resolution {
	switch r {
	case registry.Static:
		return networking.ServiceEntry_STATIC
	case registry.DNS:
		return networking.ServiceEntry_DNS
	case registry.DNSRoundRobin:
		return networking.ServiceEntry_DNS_ROUND_ROBIN
	default:
		return networking.ServiceEntry_NONE
	}
}
