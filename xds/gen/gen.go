package gen

import (
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/agent"
	"github.com/ashore-mesh/ashore/xds/gen/cluster"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/endpoint"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/layout"
	"github.com/ashore-mesh/ashore/xds/gen/listener"
	"github.com/ashore-mesh/ashore/xds/gen/patch"
	"github.com/ashore-mesh/ashore/xds/gen/route"
	"github.com/ashore-mesh/ashore/xds/gen/secret"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Generator makes the resources of every type. What it remembers never changes an answer; one
// Generator serves all proxies, so that equal ones share their resources. Safe for concurrent use.
type Generator struct {
	kinds  map[string]envoy.Kind // by type URL
	layers *memo.Func[envoy.Plan, envoy.Layer]
	// patcher changes what the kinds plan.
	patcher *patch.Patcher
}

// New makes a Generator.
func New() *Generator {
	indexes, layouts := destination.NewIndexes(), layout.New()
	layers := memo.New(envoy.Plan.Layer)
	return &Generator{
		kinds: map[string]envoy.Kind{
			resource.ClusterType:         cluster.New(indexes),
			resource.EndpointType:        endpoint.New(),
			resource.ListenerType:        listener.New(layouts, indexes),
			resource.RouteType:           route.New(layouts),
			resource.SecretType:          secret.Generator{},
			resource.ExtensionConfigType: &access.Generator{},
			resource.NameTableType:       agent.NameTables{Indexes: indexes},
			agent.ProxyConfigType:        &agent.TrustBundles{},
			agent.ProbeType:              agent.Probes{},
		},
		layers: layers, patcher: patch.New(layers),
	}
}

// Set returns the resources of one type that proxies of a scope have; the empty set for a type that
// the Generator does not make. Equal inputs of the type give the same layers, by pointer, for as
// long as anybody holds them.
func (g *Generator) Set(typeURL string, sc *push.Scope) resource.Set {
	kind := g.kinds[typeURL]
	if kind == nil {
		return resource.Set{}
	}
	shared, own := kind.Plans(sc)
	shared, own = g.patcher.Plans(typeURL, sc, shared, own)
	return resource.Set{Shared: g.layer(shared), Own: g.layer(own)}
}

func (g *Generator) layer(p envoy.Plan) *resource.Layer {
	if p == nil {
		return nil
	}
	return &g.layers.Get(p).Layer // a pointer into a struct keeps the struct
}
