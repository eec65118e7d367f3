package services

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// exportToAnnotation is an annotation of Services. Source: istio.io, "Resource Annotations".
const exportToAnnotation = "networking.istio.io/exportTo"

// meshService is what a Service is in the mesh.
type meshService struct {
	// instances is empty if the Service cannot be a service of the mesh.
	instances []registry.Instances
	// selector is nil if the Service selects no workloads.
	selector *registry.Selector
	// problems are warnings about the annotations of the Service.
	problems []feed.Problem
}

// keep returns current with the pointers of previous where the contents are equal.
func (m meshService) keep(previous meshService) meshService {
	if len(m.instances) == 0 || len(previous.instances) == 0 {
		return m
	}
	m.instances[0] = registry.Keep(previous.instances[0], m.instances[0])
	if s, p := m.selector, previous.selector; s != nil && p != nil {
		s.Service = m.instances[0].Service
		if s.Service == p.Service && maps.Equal(s.Labels, p.Labels) && maps.Equal(s.Targets, p.Targets) {
			m.selector = p
		}
	}
	return m
}

// equal reports whether two services have the same pointers and problems.
func (m meshService) equal(o meshService) bool {
	return slices.Equal(m.instances, o.instances) && m.selector == o.selector && slices.Equal(m.problems, o.problems)
}

// meshService converts a Service. It is empty if there is no such Service, or if it has no TCP port.
// Source: Istio, ConvertService.
func (o *objects) meshService(k key, s *service) meshService {
	if s.object == nil {
		return meshService{}
	}
	spec := &s.object.Spec
	ports, targets := portsOfService(spec.Ports)
	host := strings.ToLower(k.Name + "." + k.Namespace + ".svc." + o.options.Domain)
	if len(ports) == 0 || !dnsname.Valid(host) {
		return meshService{}
	}
	out := &registry.Service{
		Key:      registry.Key{Host: host, Namespace: k.Namespace},
		Ports:    ports,
		ExportTo: exportTo(s.object.Annotations[exportToAnnotation]),
		Labels:   s.object.Labels,
		Created:  s.object.CreationTimestamp.Time,
		Distribution: registry.ParseDistribution(cmp.Or(deref(spec.TrafficDistribution),
			s.object.Annotations[registry.DistributionAnnotation], o.namespaces[k.Namespace].distribution)),
		Source: o.source,
		Object: "Service " + k.String(),
	}
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		name := strings.ToLower(strings.TrimSuffix(spec.ExternalName, "."))
		if !dnsname.Valid(name) {
			return meshService{}
		}
		out.Resolution, out.External, out.AutoAddress = registry.DNS, true, true
		endpoint := registry.Endpoint{Address: name, Namespace: k.Namespace}
		return meshService{instances: []registry.Instances{{Service: out, Endpoints: list(endpoint)}},
			problems: checkAnnotations(s.object)}
	case spec.ClusterIP == corev1.ClusterIPNone && !onlyHTTP(ports):
		// Clients choose a Pod by its address, and there is no number to translate.
		out.Resolution = registry.Passthrough
		for i := range out.Ports {
			out.Ports[i].TargetPort = 0
		}
	default:
		out.Cluster, out.Addresses = o.options.Cluster, clusterIPs(spec)
		out.ExternalAddresses = externalAddresses(s.object)
	}
	in := registry.Instances{Service: out, Endpoints: list(o.endpoints(k, s, ports)...)}
	m := meshService{instances: []registry.Instances{in}, problems: checkAnnotations(s.object)}
	if len(spec.Selector) > 0 && out.Resolution == registry.Static {
		m.selector = &registry.Selector{Service: out, Labels: spec.Selector, Targets: targets}
	}
	return m
}

func list(items ...registry.Endpoint) *registry.EndpointList {
	return &registry.EndpointList{Items: items}
}

// onlyHTTP reports whether all ports are known to speak HTTP. Requests, unlike connections, can be
// balanced although the client chose a Pod.
func onlyHTTP(ports []registry.Port) bool {
	return !slices.ContainsFunc(ports, func(p registry.Port) bool { return !p.Protocol.IsHTTP() })
}

// clusterIPs returns the virtual IPs of a Service.
func clusterIPs(spec *corev1.ServiceSpec) (out []netip.Prefix) {
	for _, text := range append([]string{spec.ClusterIP}, spec.ClusterIPs...) {
		if a, err := netip.ParseAddr(text); err == nil {
			if p := netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()); !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// externalAddresses returns the addresses of the load balancer of a Service, and its externalIPs.
func externalAddresses(s *corev1.Service) (out []netip.Addr) {
	texts := slices.Clone(s.Spec.ExternalIPs)
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range s.Status.LoadBalancer.Ingress {
			texts = append(texts, in.IP) // Ashore resolves no host name of a gateway
		}
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// exportTo parses the annotation of a Service.
func exportTo(text string) (out []string) {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			out = append(out, one)
		}
	}
	return out
}

// checkAnnotations returns warnings about annotations of a Service whose values have no effect.
func checkAnnotations(s *corev1.Service) (out []feed.Problem) {
	warn := func(annotation, value, want string) {
		out = append(out, feed.Problem{Severity: feed.Warning, Object: "Service " + s.Namespace + "/" + s.Name,
			Field: "metadata.annotations[" + annotation + "]", Text: fmt.Sprintf("%q is ignored: want %s", value, want)})
	}
	for _, to := range exportTo(s.Annotations[exportToAnnotation]) {
		if !slices.Contains([]string{"*", ".", "~"}, to) && !dnsname.ValidLabel(to) {
			warn(exportToAnnotation, to, "names of namespaces, * for all, . for that of the Service, or ~ for none")
		}
	}
	d := s.Annotations[registry.DistributionAnnotation]
	if d != "" && registry.ParseDistribution(d) == "" && !strings.EqualFold(d, "Any") {
		warn(registry.DistributionAnnotation, d, "PreferSameZone, PreferSameNode, PreferClose or Any")
	}
	return out
}

// portsOfService returns the TCP ports of a Service, and the named target ports by name of the port.
func portsOfService(in []corev1.ServicePort) (out []registry.Port, targets map[string]string) {
	for _, p := range in {
		number, ok := portNumber(p.Port)
		taken := slices.ContainsFunc(out, func(q registry.Port) bool { return q.Number == number || q.Name == p.Name })
		if !isTCP(p.Protocol) || !ok || taken {
			continue
		}
		port := registry.Port{Number: number, Name: p.Name, Protocol: protocolOf(p)}
		if p.TargetPort.Type == intstr.String && p.TargetPort.StrVal != "" {
			if targets == nil {
				targets = map[string]string{}
			}
			targets[p.Name] = p.TargetPort.StrVal
		} else if target, ok := portNumber(p.TargetPort.IntVal); ok && target != number {
			port.TargetPort = target
		}
		out = append(out, port)
	}
	return out, targets
}

// protocolOf returns the protocol of a port. appProtocol has precedence over the name of the port.
// Source: Istio, ConvertProtocol; Kubernetes, ServicePort.appProtocol.
func protocolOf(p corev1.ServicePort) registry.Protocol {
	name := p.Name
	if p.AppProtocol != nil {
		name = *p.AppProtocol
	}
	switch name {
	case "kubernetes.io/h2c":
		return registry.HTTP2
	case "kubernetes.io/ws":
		return registry.HTTP
	case "kubernetes.io/wss":
		return registry.HTTPS
	}
	protocol := registry.ProtocolByName(name)
	switch {
	case protocol == registry.UDP: // the port is TCP
		return registry.Unknown
	case protocol == registry.Unknown && slices.Contains([]int32{25, 53, 3306, 27017}, p.Port):
		return registry.TCP // the server speaks first, so the proxy cannot detect the protocol
	}
	return protocol
}

// endpoints returns the endpoints of a Service with these ports, sorted by address.
func (o *objects) endpoints(k key, s *service, ports []registry.Port) (out []registry.Endpoint) {
	at := map[string]int{} // index in out, by address
	for _, sl := range ofFamily(s) {
		numbers := sl.numbers(ports)
		for _, e := range sl.endpoints {
			ep, ok := o.endpoint(k, e)
			if !ok {
				continue
			}
			ep.Address, ep.Ports, ep.Health = e.address, numbers, e.health
			if s.object.Spec.PublishNotReadyAddresses {
				ep.Health = registry.Healthy
			}
			i, found := at[e.address]
			switch {
			case !found || !maps.Equal(out[i].Ports, ep.Ports):
				at[e.address] = len(out)
				out = append(out, ep)
			case ep.Health < out[i].Health: // an endpoint may be in two EndpointSlices while it moves
				out[i] = ep
			}
		}
	}
	slices.SortStableFunc(out, func(a, b registry.Endpoint) int { return cmp.Compare(a.Address, b.Address) })
	return out
}

// ofFamily returns the EndpointSlices of the first IP family of a Service. A Pod with two addresses
// is one endpoint. Those of another family are used if there are none of the first.
func ofFamily(s *service) []*slice {
	families := s.object.Spec.IPFamilies
	if len(families) == 0 {
		return s.slices
	}
	first := slices.DeleteFunc(slices.Clone(s.slices), func(sl *slice) bool {
		return string(sl.family) != string(families[0]) || len(sl.endpoints) == 0
	})
	if len(first) == 0 {
		return s.slices
	}
	return first
}

// endpoint returns the Pod of an endpoint. It returns false if the Pod is not known yet, or has
// another address: the EndpointSlice is older or newer than the Pod.
func (o *objects) endpoint(k key, e sliceEndpoint) (registry.Endpoint, bool) {
	if e.pod == "" {
		ep := registry.Endpoint{Namespace: k.Namespace, Labels: labels(nil, o.options.Cluster)}
		o.place(&ep, "")
		return ep, true
	}
	p := o.pods[key{Namespace: k.Namespace, Name: e.pod}]
	if p == nil || !slices.Contains(p.addresses, e.address) {
		return registry.Endpoint{}, false
	}
	return p.endpoint, true
}

// numbers returns Endpoint.Ports for the endpoints of an EndpointSlice. Nil if all ports are those of
// the service.
func (s *slice) numbers(ports []registry.Port) (out map[string]uint32) {
	for _, p := range ports {
		number := s.ports[p.Name]
		if number == cmp.Or(p.TargetPort, p.Number) {
			continue
		}
		if out == nil {
			out = map[string]uint32{}
		}
		out[p.Name] = number
	}
	return out
}
