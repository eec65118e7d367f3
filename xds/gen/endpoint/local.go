package endpoint

import (
	"slices"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// localCluster is the cluster of the proxy's own service in its bootstrap. Envoy compares its zones
// with those of other services. Source: Istio, pilot/pkg/networking/util, SelfDiscoveryCluster.
const localCluster = "local_cluster"

// localIn is everything that the load assignment of localCluster depends on.
type localIn struct {
	// service is the first of the workload; nil: it has none.
	service   *registry.Service
	port      uint32
	endpoints *registry.EndpointList
	region    string
}

func localOf(sc *push.Scope) localIn {
	in := localIn{region: sc.Locality.Region}
	for _, i := range sc.Own.Inbound.Items() {
		in.service, in.port, in.endpoints = i.Service, i.Port.Number, sc.Endpoints.At(i.Service.Key)
		break
	}
	return in
}

// Layer implements envoy.Plan: the endpoints of the proxy's region.
func (in localIn) Layer() *envoy.Layer {
	a := Assignment{Service: in.service, Port: in.port, Endpoints: in.endpoints}
	var hosts []Host
	if in.service != nil {
		hosts = slices.DeleteFunc(a.Hosts(reachable), func(h Host) bool { return h.Locality.Region != in.region })
	}
	return envoy.NewLayer(resource.New(resource.EndpointType, localCluster, nil, func() []byte {
		return a.append(nil, localCluster, hosts)
	}))
}
