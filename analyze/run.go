package analyze

import (
	"context"
	"iter"
	"slices"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Run returns what is wrong in a context, sorted by place. It uses one core, and its cost grows with the number of
// objects and endpoints. It returns nil soon after ctx ends.
func Run(ctx context.Context, c *push.Context) []Finding {
	a := newAnalysis(ctx, c)
	for _, check := range []func(){
		a.virtualServices, a.routeConflicts,
		a.rules, a.ruleConflicts,
		a.sidecars, a.gatewayConflicts,
		a.services, a.addressConflicts,
		a.peerConflicts, a.selectors, a.policyPorts, a.providers,
	} {
		check()
		if ctx.Err() != nil {
			return nil
		}
	}
	sortFindings(a.findings)
	return slices.Compact(a.findings)
}

// analysis is one run.
type analysis struct {
	stopped   func() bool // the run is cancelled
	c         *push.Context
	in        push.Inputs
	mesh      *mesh.MeshConfig
	clients   []string        // push.Context.ClientNamespaces
	inhabited map[string]bool // namespaces that have services or Gateways
	findings  []Finding

	// The following are made when they are first needed.
	byPattern map[string][]*registry.Service // services by each pattern that covers their host
	gateways  map[string]*gateway            // by "namespace/name"
	known     *workloads
	hints     int // how many unknown names were compared with known ones
}

func newAnalysis(ctx context.Context, c *push.Context) *analysis {
	in := c.Inputs()
	a := &analysis{
		stopped: func() bool { return ctx.Err() != nil },
		c:       c, in: in, mesh: in.Mesh.Config, clients: c.ClientNamespaces(), inhabited: map[string]bool{},
	}
	for k := range in.Services.All() {
		a.inhabited[k.Namespace] = true
	}
	for o := range a.objects(config.Gateway) {
		a.inhabited[o.Namespace] = true
	}
	return a
}

// report adds a finding and returns it, for changes.
func (a *analysis) report(code Code, o *config.Object, field, text, remedy string) *Finding {
	a.findings = append(a.findings, finding(code, a.current(o), field, text, remedy))
	return &a.findings[len(a.findings)-1]
}

// current is o as it stands in its file now: an index may hold an equal object from before it moved.
func (a *analysis) current(o *config.Object) *config.Object {
	if now := a.in.Objects.At(o.Key); now != nil {
		return now
	}
	return o
}

// objects yields the objects of a kind, until the run is cancelled.
func (a *analysis) objects(kind config.Kind) iter.Seq[*config.Object] {
	return func(yield func(*config.Object) bool) {
		for k, o := range a.in.Objects.From(config.Key{Kind: kind}) {
			if k.Kind != kind || a.stopped() || !yield(o) {
				return
			}
		}
	}
}

// covered are the services that a host, which may be a wildcard, covers.
func (a *analysis) covered(host string) []*registry.Service {
	if a.byPattern == nil {
		a.byPattern = map[string][]*registry.Service{}
		for _, s := range a.in.Services.All() {
			for p := s.Host; p != ""; p = push.WiderHost(p) {
				a.byPattern[p] = append(a.byPattern[p], s)
			}
		}
	}
	return a.byPattern[host]
}

// root is the namespace whose objects hold for the whole mesh.
func (a *analysis) root() string { return a.mesh.GetRootNamespace() }

// covers reports whether all clients to which narrow is exported are among those to which wide is exported. Both are
// namespaces as push.Context.ExportedTo returns them.
func covers(wide, narrow []string) bool {
	outside := func(ns string) bool { return !slices.Contains(wide, ns) }
	return slices.Contains(wide, "") || !slices.ContainsFunc(narrow, outside)
}
