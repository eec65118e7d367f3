package xds

import (
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Types that proxies ask for.
const (
	ClusterType         = resource.ClusterType
	EndpointType        = resource.EndpointType
	ListenerType        = resource.ListenerType
	RouteType           = resource.RouteType
	SecretType          = resource.SecretType
	ExtensionConfigType = resource.ExtensionConfigType
	NameTableType       = resource.NameTableType

	// ProxyConfigType holds the trusted authorities of the mesh, for agents.
	ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
	// ProbeType holds the readiness probe of the WorkloadGroup that a workload registered from, for
	// agents.
	ProbeType = "type.googleapis.com/istio.networking.v1alpha3.ReadinessProbe"

	// healthType is a client's report about its workload. It has no response.
	healthType = "type.googleapis.com/istio.v1.HealthInformation"
)

// kinds are the types with how they are delivered.
type kinds struct {
	known map[string]*ads.Kind
	order []string // of delivery
}

// newKinds lists the types in the order of delivery: a resource comes before what names it.
func newKinds() kinds {
	k := kinds{known: map[string]*ads.Kind{}}
	for _, kind := range []*ads.Kind{
		{TypeURL: ClusterType, Wildcard: true, Whole: true, Supersede: true},
		{TypeURL: EndpointType, Empty: emptyAssignment},
		{TypeURL: SecretType, Single: true},
		{TypeURL: ListenerType, Wildcard: true, Whole: true},
		{TypeURL: RouteType},
		{TypeURL: ExtensionConfigType},
		{TypeURL: NameTableType, Wildcard: true, Whole: true},
		{TypeURL: ProxyConfigType, Wildcard: true, Whole: true},
		{TypeURL: ProbeType, Wildcard: true, Whole: true},
	} {
		k.known[kind.TypeURL] = kind
		k.order = append(k.order, kind.TypeURL)
	}
	return k
}

// of returns how a type is delivered. An unknown type has no resources, and is answered: its client
// may wait for a first response.
func (k kinds) of(typeURL string) *ads.Kind {
	if kind := k.known[typeURL]; kind != nil {
		return kind
	}
	return &ads.Kind{TypeURL: typeURL, Wildcard: true, Whole: true}
}

// rank is the place of a type in the order of delivery; unknown types come last.
func (k kinds) rank(typeURL string) int {
	if i := slices.Index(k.order, typeURL); i >= 0 {
		return i
	}
	return len(k.order)
}

// emptyAssignment is the answer for a cluster without endpoints. Without an answer Envoy would keep
// the cluster warming until its fetch timeout.
func emptyAssignment(name string) *resource.Resource {
	return resource.New(EndpointType, name, nil, func() []byte {
		return resource.Encode(&endpointv3.ClusterLoadAssignment{ClusterName: name})
	})
}

// short is the name of a type in logs and metrics: "cds".
func short(typeURL string) string {
	switch typeURL {
	case ClusterType:
		return "cds"
	case EndpointType:
		return "eds"
	case ListenerType:
		return "lds"
	case RouteType:
		return "rds"
	case SecretType:
		return "sds"
	case ExtensionConfigType:
		return "ecds"
	case NameTableType:
		return "nds"
	case ProxyConfigType:
		return "pcds"
	case ProbeType:
		return "probe"
	}
	if _, rest, ok := strings.Cut(typeURL, "."); ok && strings.HasPrefix(rest, "istio.io/") {
		return "mcp"
	}
	return "other"
}
