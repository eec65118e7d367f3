package analyze

import (
	"context"
	"iter"
	"slices"

	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// Run returns the findings about a context, sorted by place. It uses one core, and its cost grows
// with the number of objects and endpoints. It returns nil soon after ctx ends.
func Run(ctx context.Context, c *push.Context) []Finding {
	a := newAnalysis(ctx, c)
	for _, check := range []func(){
		a.virtualServices, a.routeConflicts,
		a.rules, a.ruleConflicts,
		a.gatewayConflicts, a.secrets,
		a.services, a.addressConflicts,
		a.sameSelectors, a.overlaps, a.selectors, a.policyPorts, a.providers,
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
	stopped      func() bool // reports whether the run is cancelled
	c            *push.Context
	in           push.Inputs
	mesh         *mesh.MeshConfig
	clients      []string        // push.Context.ClientNamespaces
	hasWorkloads map[string]bool // namespaces that have services or Gateways
	findings     []Finding

	// The following are built on first use.
	hosts     []string                       // of all services
	byPattern map[string][]*registry.Service // services by each pattern that covers their host
	gateways  map[string]*gateway            // by "namespace/name"
	workloads map[string][]workload          // by namespace
	hints     int                            // how many unknown names were compared with known ones
}

func newAnalysis(ctx context.Context, c *push.Context) *analysis {
	in := c.Inputs()
	a := &analysis{
		stopped: func() bool { return ctx.Err() != nil },
		c:       c, in: in, mesh: in.Mesh.Config, clients: c.ClientNamespaces(), hasWorkloads: map[string]bool{},
	}
	for k := range in.Services.All() {
		a.hasWorkloads[k.Namespace] = true
	}
	for o := range a.objects(config.Gateway) {
		a.hasWorkloads[o.Namespace] = true
	}
	return a
}

// report adds a finding about a part of o, or of the settings if o is nil. It returns the finding,
// for changes.
func (a *analysis) report(code Code, o *config.Object, field, text, remedy string) *Finding {
	p := feed.Problem{Severity: code.Severity(), Source: "settings", Field: field, Text: text}
	if o != nil {
		o = a.current(o)
		p.Source, p.Object, p.File, p.Line = o.Origin.Source, o.Key.String(), o.Origin.File, o.Origin.Line
	}
	f := Finding{Problem: p, Code: code, Remedy: remedy, offline: p.Severity}
	if code.FromRegistry() {
		f.offline = Info
	}
	a.findings = append(a.findings, f)
	return &a.findings[len(a.findings)-1]
}

// current returns the version of o that is in its file now. An index keeps an equal object from
// before it moved there.
func (a *analysis) current(o *config.Object) *config.Object {
	if current := a.in.Objects.At(o.Key); current != nil {
		return current
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

// covered returns the services that a host, which may be a wildcard, covers.
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

// allHosts returns the hosts of all services.
func (a *analysis) allHosts() []string {
	if a.hosts == nil {
		for k := range a.in.Services.All() {
			a.hosts = append(a.hosts, k.Host)
		}
	}
	return a.hosts
}

// root returns the namespace whose objects apply to the whole mesh.
func (a *analysis) root() string { return a.mesh.GetRootNamespace() }

// covers reports whether all clients to which narrow is exported are among those to which wide is
// exported. Both are namespaces as push.Context.ExportedTo returns them.
func covers(wide, narrow []string) bool {
	outside := func(ns string) bool { return !slices.Contains(wide, ns) }
	return slices.Contains(wide, "") || !slices.ContainsFunc(narrow, outside)
}
