package xds

import (
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Types that agents ask for.
const (
	// ProxyConfigType holds the trusted authorities of the mesh, for agents.
	ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
	// ProbeType holds the readiness probe of the WorkloadGroup that a workload registered from, for
	// agents.
	ProbeType = "type.googleapis.com/istio.networking.v1alpha3.ReadinessProbe"

	// healthType is a client's report about its workload. It has no response.
	healthType = "type.googleapis.com/istio.v1.HealthInformation"
)

// served are the types in the order of delivery: a resource comes before what names it. name is
// what ShortType returns.
var served = []struct {
	name string
	kind ads.Kind
}{
	{"cds", ads.Kind{TypeURL: resource.ClusterType, Whole: true, MaxPending: 32}},
	{"eds", ads.Kind{TypeURL: resource.EndpointType, Empty: emptyAssignment}},
	{"sds", ads.Kind{TypeURL: resource.SecretType, Single: true, MaxPending: 16}},
	{"lds", ads.Kind{TypeURL: resource.ListenerType, Whole: true}},
	{"rds", ads.Kind{TypeURL: resource.RouteType}},
	{"ecds", ads.Kind{TypeURL: resource.ExtensionConfigType}},
	{"nds", ads.Kind{TypeURL: resource.NameTableType, Whole: true}},
	{"pcds", ads.Kind{TypeURL: ProxyConfigType, Whole: true}},
	{"probe", ads.Kind{TypeURL: ProbeType, Whole: true}},
}

// rankOf is the index of a type in served, or its length for an unknown type.
func rankOf(typeURL string) int {
	for i := range served {
		if served[i].kind.TypeURL == typeURL {
			return i
		}
	}
	return len(served)
}

// kindOf returns how a type is delivered. An unknown type has no resources, and is answered: its
// client may wait for a first response.
func kindOf(typeURL string) *ads.Kind {
	if i := rankOf(typeURL); i < len(served) {
		return &served[i].kind
	}
	return &ads.Kind{TypeURL: typeURL, Whole: true}
}

// emptyAssignment is the answer for a cluster without endpoints. Without an answer Envoy would keep
// the cluster warming until its fetch timeout.
func emptyAssignment(name string) *resource.Resource {
	return resource.New(resource.EndpointType, name, nil, func() []byte {
		return resource.Encode(&endpointv3.ClusterLoadAssignment{ClusterName: name})
	})
}

// ShortType is the name of a type that proxies ask for, "cds"; empty: they do not.
func ShortType(typeURL string) string {
	if i := rankOf(typeURL); i < len(served) {
		return served[i].name
	}
	return ""
}

// short is the name of a type in logs and metrics: "cds".
func short(typeURL string) string {
	if name := ShortType(typeURL); name != "" {
		return name
	}
	if _, rest, ok := strings.Cut(typeURL, "."); ok && strings.HasPrefix(rest, "istio.io/") {
		return "mcp"
	}
	return "other"
}
