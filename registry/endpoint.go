package registry

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Locality is where an endpoint or a proxy runs. The last parts may be empty.
type Locality struct{ Region, Zone, SubZone string }

// ParseLocality parses Istio's "region/zone/subzone". Missing parts stay empty.
func ParseLocality(s string) Locality {
	p := strings.SplitN(s, "/", 3)
	p = append(p, "", "", "")
	return Locality{p[0], p[1], p[2]}
}

// String returns "region/zone/subzone" without empty parts at the end.
func (l Locality) String() string {
	return strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.SubZone, "/")
}

// Health says whether an endpoint gets traffic.
type Health uint8

const (
	// Healthy is the default.
	Healthy Health = iota
	// Unhealthy endpoints get no traffic.
	Unhealthy
	// Draining endpoints finish open requests and get no new ones.
	Draining
)

// Endpoint is one workload of a service.
type Endpoint struct {
	// Address is an IP address, a DNS name (Resolution DNS), or "unix://" and a path. It may be empty
	// if the endpoint is reached through a gateway of its Network.
	Address string
	// Ports holds the port numbers of the endpoint by the name of the service port. Zero if the
	// endpoint does not have that port. May be nil.
	Ports map[string]uint32
	// Labels are matched by the labels of subsets. May be nil.
	Labels map[string]string
	// Locality and Network are where the endpoint runs. They may be empty.
	Locality Locality
	Network  string
	// Weight is relative to other endpoints of the locality. Zero means 1.
	Weight uint32
	// ServiceAccount is the service account of the endpoint's identity. May be empty.
	ServiceAccount string
	// Namespace and Workload are the namespace and the name of the workload.
	Namespace, Workload string
	// TLSMode is TLSModeIstio if the endpoint accepts the mesh's mutual TLS, else empty.
	TLSMode string
	// Health says whether the endpoint gets traffic.
	Health Health
	// States holds the states of the endpoint's ports.
	States PortStates
}

// NetworkLabel sets the network of a workload that has no other. In failoverPriority it stands for the
// network of a workload. Source: istio.io.
const NetworkLabel = "topology.istio.io/network"

// ClusterLabel is the label with the ID of an endpoint's cluster of Kubernetes. Source: istio.io.
const ClusterLabel = "topology.istio.io/cluster"

// InterceptionLabel with the value InterceptionNone marks an endpoint whose proxy is bypassed:
// connections reach the application, except at the ports of a Sidecar's ingress listeners.
const InterceptionLabel, InterceptionNone = "ashore.io/interception", "none"

// Intercepted reports whether connections to the endpoint reach its proxy at every port.
func (e *Endpoint) Intercepted() bool { return e.Labels[InterceptionLabel] != InterceptionNone }

// TLSModeIstio is the TLSMode of endpoints that accept the mesh's mutual TLS. Source: Istio, label
// security.istio.io/tlsMode.
const TLSModeIstio = "istio"

// HasName reports whether the address is a DNS name.
func (e Endpoint) HasName() bool {
	_, err := netip.ParseAddr(e.Address)
	return err != nil && e.Address != "" && !strings.HasPrefix(e.Address, "unix://")
}

// Port returns the port at which the endpoint serves service port p: the number in Ports, or else
// the target port, or else the number of p. Zero if the endpoint does not serve p.
func (e *Endpoint) Port(p Port) uint32 {
	if n, ok := e.Ports[p.Name]; ok {
		return n
	}
	if p.TargetPort != 0 {
		return p.TargetPort
	}
	return p.Number
}

// EndpointList holds the endpoints of one service. Immutable: the pointer is the version.
type EndpointList struct{ Items []Endpoint }

// Len returns the number of endpoints. A nil list has none.
func (l *EndpointList) Len() int {
	if l == nil {
		return 0
	}
	return len(l.Items)
}

// All returns the endpoints. The caller must not change them. A nil list has none.
func (l *EndpointList) All() []Endpoint {
	if l == nil {
		return nil
	}
	return l.Items
}

// Equal reports whether two lists hold the same endpoints in the same order.
func (l *EndpointList) Equal(o *EndpointList) bool {
	same := func(a, b Endpoint) bool { return a.Equal(&b) }
	return l == o || l != nil && o != nil && slices.EqualFunc(l.Items, o.Items, same)
}

// Equal reports whether two endpoints are the same in all fields.
func (e *Endpoint) Equal(o *Endpoint) bool {
	return e.Address == o.Address && e.Locality == o.Locality && e.Network == o.Network && e.Weight == o.Weight &&
		e.ServiceAccount == o.ServiceAccount && e.Namespace == o.Namespace && e.Workload == o.Workload &&
		e.TLSMode == o.TLSMode && e.Health == o.Health && e.States == o.States &&
		maps.Equal(e.Ports, o.Ports) && maps.Equal(e.Labels, o.Labels)
}

// Instances is one service with its endpoints. The two are replaced separately.
type Instances struct {
	Service   *Service
	Endpoints *EndpointList
}

// SelectsAll reports whether labels has every pair of want. An empty want selects everything.
func SelectsAll(want, labels map[string]string) bool {
	for k, v := range want {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
