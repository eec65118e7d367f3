package destination

import (
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// EndpointsOf lists the endpoints of services, a nil list where a service has none.
func EndpointsOf(lists *intern.Lists[*registry.EndpointList], keys []registry.Key,
	sc *push.Scope) *intern.List[*registry.EndpointList] {
	if len(keys) == 0 {
		return nil
	}
	out := make([]*registry.EndpointList, len(keys))
	for i, k := range keys {
		out[i] = sc.Endpoints.At(k)
	}
	return lists.Of(out)
}
