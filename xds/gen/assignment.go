package gen

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// assignmentSpec is everything that the endpoints of one cluster are made of. Comparable.
type assignmentSpec struct {
	service   *registry.Service
	port      uint32
	subset    *networking.Subset
	endpoints *registry.EndpointList
	order     *ordering
}

// buildAssignment makes the load assignment of a spec; an empty one where there are no endpoints, so
// that the cluster does not wait for one.
func buildAssignment(s assignmentSpec) *resource.Resource {
	name := outboundCluster(s.port, s.subset.GetName(), s.service.Host)
	return resource.New(EndpointType, name, nil, func() []byte {
		return resource.Encode(s.assignment(name, s.hosts(reachable)))
	})
}

// host is an endpoint at the port that the cluster means.
type host struct {
	*registry.Endpoint
	port uint32
	// priority is smaller for what is nearer to the client.
	priority int
}

// reachable says that Envoy can connect to an endpoint's address as it stands.
func reachable(ep *registry.Endpoint) bool {
	if strings.HasPrefix(ep.Address, unixScheme) {
		return true
	}
	_, err := netip.ParseAddr(ep.Address)
	return err == nil
}

// resolvable says that Envoy can look an endpoint's address up.
func resolvable(ep *registry.Endpoint) bool {
	return ep.Address != "" && !strings.HasPrefix(ep.Address, unixScheme)
}

// hosts lists the endpoints that take part, in the order in which they are sent: by priority,
// locality, address and port. The order of declaration does not matter, so that equal endpoints are
// equal bytes whatever source they came from. Of several at one address the first counts: Envoy
// does not tell them apart.
//
// Unhealthy and draining endpoints do not take part; requests that draining ones have are finished.
func (s assignmentSpec) hosts(usable func(*registry.Endpoint) bool) []host {
	port, _ := s.service.Port(s.port)
	out := make([]host, 0, s.endpoints.Len())
	for i := range s.endpoints.All() {
		ep := &s.endpoints.Items[i]
		if ep.Health != registry.Healthy || !usable(ep) || !selected(s.subset, ep) {
			continue
		}
		h := host{Endpoint: ep, port: ep.Port(port)}
		if strings.HasPrefix(ep.Address, unixScheme) {
			h.port = 0
		}
		if s.order != nil && s.order.failover {
			h.priority = s.order.priority(ep)
		}
		out = append(out, h)
	}
	return inOrder(out)
}

// selected says that an endpoint has every label of a subset.
func selected(s *networking.Subset, ep *registry.Endpoint) bool {
	for k, v := range s.GetLabels() {
		if have, ok := ep.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// inOrder sorts hosts, drops repeated addresses, and makes priorities count from zero without gaps.
func inOrder(hosts []host) []host {
	byAddress := func(a, b host) int { return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.port, b.port)) }
	slices.SortFunc(hosts, func(a, b host) int {
		return cmp.Or(byAddress(a, b), cmp.Compare(a.priority, b.priority), compareLocality(a.Locality, b.Locality),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Weight, b.Weight))
	})
	hosts = slices.CompactFunc(hosts, func(a, b host) bool { return byAddress(a, b) == 0 })
	slices.SortStableFunc(hosts, func(a, b host) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), compareLocality(a.Locality, b.Locality))
	})
	next, last := -1, math.MinInt
	for i := range hosts {
		if hosts[i].priority != last {
			next, last = next+1, hosts[i].priority
		}
		hosts[i].priority = next
	}
	return hosts
}

func compareLocality(a, b registry.Locality) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone))
}

// assignment is the message: hosts, which are in order, by priority and locality.
func (s assignmentSpec) assignment(name string, hosts []host) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	weights := localityWeights(hosts)
	for start := 0; start < len(hosts); {
		end := start + 1
		for end < len(hosts) && hosts[end].priority == hosts[start].priority && hosts[end].Locality == hosts[start].Locality {
			end++
		}
		out.Endpoints = append(out.Endpoints, s.group(hosts[start:end], weights))
		start = end
	}
	if s.order != nil && !s.order.failover {
		s.order.distribute(out)
	}
	return out
}

// group is the endpoints of one locality. Its weight is the sum of theirs.
func (s assignmentSpec) group(hosts []host, scale weightScale) *endpointv3.LocalityLbEndpoints {
	g := &endpointv3.LocalityLbEndpoints{Priority: uint32(hosts[0].priority), LbEndpoints: make([]*endpointv3.LbEndpoint, len(hosts))}
	if l := hosts[0].Locality; l != (registry.Locality{}) {
		g.Locality = &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
	}
	var sum uint32
	for i, h := range hosts {
		w := scale.of(h)
		sum += w
		g.LbEndpoints[i] = h.envoy(w)
	}
	g.LoadBalancingWeight = wrapperspb.UInt32(sum)
	return g
}

// envoy is the endpoint's message. Envoy's default weight, 1, is left out.
func (h host) envoy(weight uint32) *endpointv3.LbEndpoint {
	to := socketAddress(h.Address, h.port)
	if strings.HasPrefix(h.Address, unixScheme) {
		to = pipeAddress(h.Address)
	}
	ep := &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: to}},
		Metadata:       workloadMetadata(h.Endpoint),
	}
	if weight != 1 {
		ep.LoadBalancingWeight = wrapperspb.UInt32(weight)
	}
	return ep
}

// weightScale divides weights, so that their sums are not more than Envoy can hold.
type weightScale struct{ by uint64 }

// localityWeights finds the scale: 1 unless the sum of all weights overflows 32 bits.
func localityWeights(hosts []host) weightScale {
	var sum uint64
	for _, h := range hosts {
		sum += uint64(max(h.Weight, 1))
	}
	// what is rounded up adds at most one for each host
	if room := uint64(math.MaxUint32) - uint64(len(hosts)); sum > room {
		return weightScale{sum/room + 1}
	}
	return weightScale{1}
}

func (s weightScale) of(h host) uint32 {
	return uint32(max(uint64(h.Weight)/s.by, 1))
}

// distribute gives localities the shares that the rule sets for the client: those that it does not
// name get nothing. Localities that one pattern names together divide its share by their weights.
// Source: istio.io, LocalityLoadBalancerSetting.distribute.
func (o *ordering) distribute(a *endpointv3.ClusterLoadAssignment) {
	shares := o.distribution()
	if shares == nil {
		return
	}
	left := a.Endpoints
	a.Endpoints = nil
	// the more specific of two patterns sorts later ("a/*" before "a/b") and takes its localities first
	for _, pattern := range slices.Backward(slices.Sorted(maps.Keys(shares))) {
		var named []*endpointv3.LocalityLbEndpoints
		var sum uint64
		left = slices.DeleteFunc(left, func(g *endpointv3.LocalityLbEndpoints) bool {
			l := g.GetLocality()
			if !matchesLocality(pattern, registry.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}) {
				return false
			}
			named = append(named, g)
			sum += uint64(g.LoadBalancingWeight.Value)
			return true
		})
		for _, g := range named {
			w := (uint64(g.LoadBalancingWeight.Value)*uint64(shares[pattern]) + sum - 1) / sum
			if w > 0 {
				g.LoadBalancingWeight = wrapperspb.UInt32(uint32(w))
				a.Endpoints = append(a.Endpoints, g)
			}
		}
	}
	slices.SortFunc(a.Endpoints, func(a, b *endpointv3.LocalityLbEndpoints) int {
		place := func(l *corev3.Locality) registry.Locality {
			return registry.Locality{Region: l.GetRegion(), Zone: l.GetZone(), SubZone: l.GetSubZone()}
		}
		return compareLocality(place(a.Locality), place(b.Locality))
	})
}

// workloadMetadata tells telemetry which workload an endpoint is: "name;namespace;canonical
// name;canonical revision;cluster". Source: wire.md 2.3; Istio leaves the default revision out.
func workloadMetadata(ep *registry.Endpoint) *corev3.Metadata {
	if ep.Workload == "" {
		return nil
	}
	name := cmp.Or(ep.Labels["service.istio.io/canonical-name"], ep.Labels["app.kubernetes.io/name"], ep.Labels["app"], ep.Workload)
	revision := cmp.Or(ep.Labels["service.istio.io/canonical-revision"], ep.Labels["app.kubernetes.io/version"], ep.Labels["version"])
	if revision == "latest" {
		revision = ""
	}
	value := ep.Workload + ";" + ep.Namespace + ";" + name + ";" + revision + ";"
	return istioFields(map[string]*structpb.Value{"workload": structpb.NewStringValue(value)})
}
