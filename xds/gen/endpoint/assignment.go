package endpoint

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/peername"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Assignment is everything that the endpoints of one cluster are made of. Comparable.
type Assignment struct {
	Service *registry.Service
	Port    uint32
	// Mutual says whether the cluster speaks mutual TLS. Peers, set only for MutualAuto, are the
	// policies by which endpoints may not. Inbound is set when some of them have no redirection.
	Mutual    destination.Mutual
	Subset    *networking.Subset
	Endpoints *registry.EndpointList
	Order     destination.Order
	// Cluster is the cluster ID of the mesh.
	Cluster string
	Peers   *push.PeerPolicies
	Inbound *push.InboundListeners
	// Gateways are those of other networks.
	Gateways *push.NetworkGateways
	// Forwarded says that a gateway forwards the mutual TLS of clients to the endpoints.
	Forwarded bool
}

// buildAssignment makes the load assignment of a spec; an empty one where there are no endpoints,
// so that the cluster does not wait for one.
func buildAssignment(s Assignment) *resource.Resource {
	name := destination.ClusterName(s.Service.Host, s.Port, s.Subset, s.Forwarded)
	return resource.New(resource.EndpointType, name, nil, func() []byte {
		return slices.Clip(s.append(nil, name, s.Hosts(reachable)))
	})
}

// Host is an endpoint at the port that the cluster means.
type Host struct {
	*registry.Endpoint
	port uint32
	// cluster is the cluster ID of its mesh.
	cluster string
	// mutual says that it is spoken to by mutual TLS.
	mutual bool
	// priority is smaller for what is nearer to the client.
	priority int
	// scale multiplies the weight; zero: by 1.
	scale uint32
}

// reachable says that Envoy can connect to an endpoint's address as it stands.
func reachable(ep *registry.Endpoint) bool {
	if strings.HasPrefix(ep.Address, envoy.UnixScheme) {
		return true
	}
	a, err := netip.ParseAddr(ep.Address)
	return err == nil && a.Zone() == "" // an interface's name means nothing on another machine, and Envoy refuses it
}

// Resolvable says that Envoy can look an endpoint's address up.
func Resolvable(ep *registry.Endpoint) bool {
	return ep.Address != "" && !strings.HasPrefix(ep.Address, envoy.UnixScheme)
}

// Hosts lists the endpoints that take part, in the order in which they are sent: by priority,
// locality, address and port. The order of declaration does not matter, so that equal endpoints are
// equal bytes whatever source they came from. Of several at one address the first counts: Envoy
// does not tell them apart.
//
// Unhealthy and draining endpoints do not take part; requests that draining ones have are finished.
// Endpoints that are reached by mutual TLS through gateways of another network are replaced by these;
// others there are not reached. Source: Istio, EndpointsByNetworkFilter. A gateway that forwards
// connections reaches only endpoints of its network that take mutual TLS, so that no connection goes
// around in circles. Source: Istio, EndpointsWithMTLSFilter, and ISTIO_META_REQUESTED_NETWORK_VIEW of
// its east-west gateways.
func (s Assignment) Hosts(usable func(*registry.Endpoint) bool) []Host {
	port, _ := s.Service.Port(s.Port)
	order := s.Order.Ordering()
	out := make([]Host, 0, s.Endpoints.Len())
	behind := gatewayHosts{}
	for i := range s.Endpoints.All() {
		ep := &s.Endpoints.Items[i]
		if ep.Health != registry.Healthy || !registry.SelectsAll(s.Subset.GetLabels(), ep.Labels) {
			continue
		}
		h := Host{Endpoint: ep, port: ep.Port(port), cluster: s.Cluster, scale: s.Gateways.Scale()}
		if h.port == 0 || h.port > math.MaxUint16 {
			continue
		}
		if state := ep.States.At(h.port); state == registry.PortClosed || state == registry.PortLoopback {
			continue
		}
		if strings.HasPrefix(ep.Address, envoy.UnixScheme) {
			h.port = 0
		}
		h.mutual = s.takesMutual(ep, h.port)
		if order != nil && order.Failover {
			h.priority = order.Priority(ep)
		}
		gateways, direct := s.Gateways.To(ep.Network)
		mutual := h.mutual || s.Mutual == destination.MutualAlways
		switch {
		case direct && usable(ep) && (mutual || !s.Forwarded):
			out = append(out, h)
		case !direct && mutual && !s.Forwarded:
			behind.add(h, gateways)
		}
	}
	for _, h := range behind {
		out = append(out, *h)
	}
	return inOrder(out)
}

// gatewayHosts are gateways that stand for endpoints of other networks, by their address.
type gatewayHosts map[netip.AddrPort]*Host

// add divides the weight of an endpoint among the gateways of its network. A gateway is where the
// nearest endpoint behind it is.
func (g gatewayHosts) add(h Host, gateways []netip.AddrPort) {
	for _, at := range gateways {
		to := g[at]
		if to == nil {
			to = &Host{port: uint32(at.Port()), cluster: h.cluster, mutual: h.mutual, priority: h.priority}
			to.Endpoint = &registry.Endpoint{Address: at.Addr().String(), Locality: h.Locality}
			g[at] = to
		}
		if byPlace(h, *to) < 0 {
			to.priority, to.Locality = h.priority, h.Locality
		}
		to.Weight = min(to.Weight+h.weight()/uint32(len(gateways)), maxWeight)
	}
}

// inOrder sorts hosts, drops repeated addresses, and makes priorities count from zero without gaps.
func inOrder(hosts []Host) []Host {
	byAddress := func(a, b Host) int { return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.port, b.port)) }
	slices.SortFunc(hosts, func(a, b Host) int {
		return cmp.Or(byAddress(a, b), byPlace(a, b),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Weight, b.Weight))
	})
	hosts = slices.CompactFunc(hosts, func(a, b Host) bool { return byAddress(a, b) == 0 })
	slices.SortStableFunc(hosts, byPlace)
	next, last := -1, math.MinInt
	for i := range hosts {
		if hosts[i].priority != last {
			next, last = next+1, hosts[i].priority
		}
		hosts[i].priority = min(next, maxPriority)
	}
	return hosts
}

// byPlace orders hosts by their distance to the client, then by locality.
func byPlace(a, b Host) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), compareLocality(a.Locality, b.Locality))
}

// maxPriority is Envoy's last priority.
const maxPriority = 128

func compareLocality(a, b registry.Locality) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone))
}

// The fields of endpoint.v3 and core.v3 that assignments are made of.
const (
	fieldAssignmentName     protowire.Number = 1 // ClusterLoadAssignment
	fieldAssignmentGroups   protowire.Number = 2
	fieldGroupLocality      protowire.Number = 1 // LocalityLbEndpoints
	fieldGroupEndpoints     protowire.Number = 2
	fieldGroupWeight        protowire.Number = 3
	fieldGroupPriority      protowire.Number = 5
	fieldRegion             protowire.Number = 1 // Locality
	fieldZone               protowire.Number = 2
	fieldSubZone            protowire.Number = 3
	fieldLbEndpointEndpoint protowire.Number = 1 // LbEndpoint
	fieldLbEndpointMetadata protowire.Number = 3
	fieldLbEndpointWeight   protowire.Number = 4
	fieldEndpointAddress    protowire.Number = 1 // Endpoint
	fieldSocketAddress      protowire.Number = 1 // Address
	fieldPipe               protowire.Number = 2
	fieldSocketHost         protowire.Number = 2 // SocketAddress
	fieldSocketPort         protowire.Number = 3
	fieldPipePath           protowire.Number = 1 // Pipe
)

// Message is the assignment of a cluster that carries its endpoints.
func (s Assignment) Message(name string, hosts []Host) *endpointv3.ClusterLoadAssignment {
	m := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(s.append(nil, name, hosts), m); err != nil {
		panic(err) // what we encoded ourselves
	}
	return m
}

// append appends the message: hosts, which are in order, by priority and locality.
func (s Assignment) append(b []byte, name string, hosts []Host) []byte {
	b = envoy.AppendText(b, fieldAssignmentName, name)
	for _, g := range s.groups(hosts) {
		b = envoy.AppendMessage(b, fieldAssignmentGroups, g.append)
	}
	return b
}

// hostGroup is the hosts of one priority and locality.
type hostGroup struct {
	hosts []Host
	// weight is that of the locality: the sum of the hosts', or its share.
	weight uint32
}

func (g hostGroup) locality() registry.Locality { return g.hosts[0].Locality }

// groups divides hosts and weighs the groups.
func (s Assignment) groups(hosts []Host) []hostGroup {
	var out []hostGroup
	for start := 0; start < len(hosts); {
		end := start + 1
		for end < len(hosts) && hosts[end].priority == hosts[start].priority &&
			hosts[end].Locality == hosts[start].Locality {
			end++
		}
		g := hostGroup{hosts: hosts[start:end]}
		for _, h := range g.hosts {
			g.weight += h.weight()
		}
		out = append(out, g)
		start = end
	}
	if order := s.Order.Ordering(); order != nil && !order.Failover {
		return distribute(order, out)
	}
	return out
}

func (g hostGroup) append(b []byte) []byte {
	if l := g.locality(); l != (registry.Locality{}) {
		b = envoy.AppendMessage(b, fieldGroupLocality, func(b []byte) []byte {
			b = envoy.AppendText(b, fieldRegion, l.Region)
			b = envoy.AppendText(b, fieldZone, l.Zone)
			return envoy.AppendText(b, fieldSubZone, l.SubZone)
		})
	}
	for i := range g.hosts {
		b = envoy.AppendMessage(b, fieldGroupEndpoints, g.hosts[i].append)
	}
	b = appendUint32Value(b, fieldGroupWeight, g.weight)
	if p := g.hosts[0].priority; p > 0 {
		b = envoy.AppendUint(b, fieldGroupPriority, uint64(p))
	}
	return b
}

// append appends the endpoint's message. Envoy's default weight, 1, is left out.
func (h Host) append(b []byte) []byte {
	b = envoy.AppendMessage(b, fieldLbEndpointEndpoint, func(b []byte) []byte {
		return envoy.AppendMessage(b, fieldEndpointAddress, h.appendAddress)
	})
	b = h.appendMetadata(b)
	if weight := h.weight(); weight != 1 {
		b = appendUint32Value(b, fieldLbEndpointWeight, weight)
	}
	return b
}

func (h Host) appendAddress(b []byte) []byte {
	if path, ok := strings.CutPrefix(h.Address, envoy.UnixScheme); ok {
		return envoy.AppendMessage(b, fieldPipe, func(b []byte) []byte { return envoy.AppendText(b, fieldPipePath, path) })
	}
	return envoy.AppendMessage(b, fieldSocketAddress, func(b []byte) []byte {
		b = envoy.AppendText(b, fieldSocketHost, h.Address)
		return envoy.AppendUint(b, fieldSocketPort, uint64(h.port))
	})
}

// maxWeight is the most that a weight counts: Envoy holds the sum of all in 32 bits.
const maxWeight = 100_000

// weight is the share of requests that the endpoint gets.
func (h Host) weight() uint32 {
	return min(min(max(h.Weight, 1), maxWeight)*max(h.scale, 1), maxWeight)
}

// distribute gives localities the shares that the rule sets for the client: those that it does not
// name get nothing. Localities that one pattern names together divide its share by their weights.
// Source: istio.io, LocalityLoadBalancerSetting.distribute.
func distribute(o *destination.Ordering, groups []hostGroup) []hostGroup {
	shares := o.Distribution()
	if shares == nil {
		return groups
	}
	var out []hostGroup
	// the more specific of two patterns sorts later ("a/*" before "a/b") and takes its localities
	// first
	for _, pattern := range slices.Backward(slices.Sorted(maps.Keys(shares))) {
		first := len(out)
		var sum uint64
		groups = slices.DeleteFunc(groups, func(g hostGroup) bool {
			if !destination.MatchesLocality(pattern, g.locality()) {
				return false
			}
			out = append(out, g)
			sum += uint64(g.weight)
			return true
		})
		for i := range out[first:] {
			g := &out[first+i]
			g.weight = uint32((uint64(g.weight)*uint64(shares[pattern]) + sum - 1) / sum)
		}
	}
	out = slices.DeleteFunc(out, func(g hostGroup) bool { return g.weight == 0 })
	slices.SortFunc(out, func(a, b hostGroup) int { return compareLocality(a.locality(), b.locality()) })
	return out
}

// workloadName tells telemetry which workload an endpoint is: "name;namespace;canonical
// name;canonical revision;cluster"; empty when it is not known.
// Source: Istio, pilot/pkg/networking/util, which leaves the default revision out.
func workloadName(ep *registry.Endpoint, cluster string) string {
	if ep.Workload == "" {
		return ""
	}
	n := peername.Of(ep.Labels, ep.Workload, cmp.Or(ep.Labels[registry.ClusterLabel], cluster))
	if n.Revision == peername.DefaultRevision {
		n.Revision = ""
	}
	return n.Workload + ";" + ep.Namespace + ";" + n.Service + ";" + n.Revision + ";" + n.Cluster
}

// TLSMode and TLSModeIstio mark endpoints that take mutual TLS. Source: Istio, TLSModeLabelShortname.
const (
	TLSMode      = "tlsMode"
	TLSModeIstio = registry.TLSModeIstio
)

// takesMutual says that an endpoint takes mutual TLS at a port: it says so, its proxy stands before
// the port, and no PeerAuthentication denies it.
func (s Assignment) takesMutual(ep *registry.Endpoint, port uint32) bool {
	return s.Mutual == destination.MutualAuto && s.Inbound.AcceptsMTLS(ep, port) && !s.Peers.Disabled(ep.Namespace, ep.Labels, port)
}

// appendMetadata appends what the endpoint's metadata says of it; nothing when it is empty. Keys are in
// the order of their names.
func (h Host) appendMetadata(b []byte) []byte {
	workload := workloadName(h.Endpoint, h.cluster)
	if workload == "" && !h.mutual {
		return b
	}
	return envoy.AppendMessage(b, fieldLbEndpointMetadata, func(b []byte) []byte {
		if h.mutual {
			b = appendTextMetadata(b, "envoy.transport_socket_match", TLSMode, TLSModeIstio)
		}
		if workload != "" {
			b = appendTextMetadata(b, envoy.IstioMetadata, "workload", workload)
		}
		return b
	})
}
