package patch

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	_ "github.com/ashore-mesh/ashore/xds/envoytypes" // what patches may contain
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Patcher applies patches. Safe for concurrent use.
type Patcher struct {
	layers *memo.Func[envoy.Plan, envoy.Layer]

	lists     intern.Lists[push.Patch]
	patches   *memo.Func[push.Patch, patch]
	changes   *memo.Func[changeIn, envoy.Part]
	additions *memo.Func[addIn, envoy.Part]
}

// New makes a Patcher of what layers makes.
func New(layers *memo.Func[envoy.Plan, envoy.Layer]) *Patcher {
	p := &Patcher{layers: layers, patches: memo.New(newPatch)}
	p.changes, p.additions = memo.New(p.change), memo.New(p.add)
	return p
}

// patch is a patch with its value.
type patch struct {
	push.Patch
	*networking.EnvoyFilter_EnvoyConfigObjectPatch
	operation networking.EnvoyFilter_Patch_Operation
	// value is not to be changed; nil: there is none.
	value proto.Message
	// refs are the clusters that value names.
	refs []resource.Ref
	// names says that the match names the filter or route that is meant.
	names bool
	// err is what is wrong with the value.
	err error
}

func newPatch(from push.Patch) *patch {
	spec := from.Spec()
	p := &patch{Patch: from, EnvoyFilter_EnvoyConfigObjectPatch: spec, operation: spec.GetPatch().GetOperation(),
		names: config.PatchNames(spec)}
	if spec.GetPatch().GetValue() != nil {
		p.value, p.err = config.PatchValue(spec)
	}
	if p.value != nil && p.err == nil {
		p.refs, p.err = inspect(p.value, config.PatchMerges(p.operation))
	}
	return p
}

// String names the patch to people. Both embedded types have such a method.
func (p *patch) String() string { return p.Patch.String() }

// leftOut is the problem that a patch is not applied.
func (p *patch) leftOut(what string, err error) *feed.Problem {
	problem := envoy.Refused(p.Filter, "the patch of "+what+" is left out", err)
	problem.Field = p.Field() + ".patch"
	return problem
}

// side says which resources a layer has.
type side = networking.EnvoyFilter_PatchContext

// plan is a layer with patches.
type plan struct {
	patcher *Patcher
	base    envoy.Plan
	typeURL string
	side    side
	patches *intern.List[push.Patch] // those that concern the layer
}

// Plans returns the plans with the patches of the scope.
func (p *Patcher) Plans(typeURL string, sc *push.Scope, shared, own envoy.Plan) (envoy.Plan, envoy.Plan) {
	switch typeURL {
	case resource.ListenerType, resource.RouteType, resource.ClusterType, resource.ExtensionConfigType:
	default:
		return shared, own
	}
	if sc.Patches == nil {
		return shared, own
	}
	of := networking.EnvoyFilter_SIDECAR_OUTBOUND
	if sc.Type == push.Router {
		of = networking.EnvoyFilter_GATEWAY
	}
	if own != nil {
		own = p.plan(plan{p, own, typeURL, networking.EnvoyFilter_SIDECAR_INBOUND, sc.Patches})
	}
	return p.plan(plan{p, shared, typeURL, of, sc.Patches}), own
}

// plan returns the plan with those of its patches that concern the layer, or its base if none does.
func (p *Patcher) plan(in plan) envoy.Plan {
	var concerned []push.Patch
	for _, one := range in.patches.Items() {
		if in.concerns(one) {
			concerned = append(concerned, one)
		}
	}
	if len(concerned) == 0 {
		return in.base
	}
	in.patches = p.lists.Of(concerned)
	return in
}

// concerns reports whether a patch is for what a layer has.
//
// Routes of the inbound side are in its listeners. Without a context, what is added is not for the
// inbound side. A patch of inbound clusters is for both sides, because they share one. Source: Istio.
func (in plan) concerns(p push.Patch) bool {
	inbound := in.side == networking.EnvoyFilter_SIDECAR_INBOUND
	patched := resource.ListenerType
	switch p.Spec().ApplyTo {
	case networking.EnvoyFilter_CLUSTER:
		patched = resource.ClusterType
	case networking.EnvoyFilter_EXTENSION_CONFIG:
		return in.typeURL == resource.ExtensionConfigType // which have no inbound side
	case networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST,
		networking.EnvoyFilter_HTTP_ROUTE:
		if !inbound {
			patched = resource.RouteType
		}
	}
	switch context := p.Spec().GetMatch().GetContext(); {
	case patched != in.typeURL:
		return false
	case context == networking.EnvoyFilter_SIDECAR_INBOUND:
		return inbound || patched == resource.ClusterType && !addsResource(p)
	case context == networking.EnvoyFilter_ANY:
		return !inbound || !addsResource(p)
	}
	return !inbound
}

// addsResource reports whether a patch adds a whole listener, cluster or extension.
func addsResource(p push.Patch) bool {
	switch s := p.Spec(); s.ApplyTo {
	case networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_CLUSTER, networking.EnvoyFilter_EXTENSION_CONFIG:
		return config.PatchInserts(s.GetPatch().GetOperation())
	}
	return false
}

// Layer implements envoy.Plan. Of a patch that is left out of several resources one is reported.
func (in plan) Layer() *envoy.Layer {
	base := in.patcher.layers.Get(in.base)
	out := &envoy.Layer{Held: []any{base}}
	problems := slices.Clone(base.Problems)
	var items []*resource.Resource
	changed := false
	take := func(p *envoy.Part, before *resource.Resource) {
		changed = changed || p.Resource != before || len(p.Problems) > 0
		out.Held = append(out.Held, p)
		if p.Resource != nil {
			items = append(items, p.Resource)
		}
		for _, problem := range p.Problems {
			if !slices.ContainsFunc(problems, func(q feed.Problem) bool {
				return q.Object == problem.Object && q.Field == problem.Field
			}) {
				problems = append(problems, problem)
			}
		}
	}
	for _, r := range base.Items() {
		c := changeIn{base: r, side: in.sideOf(r)}
		if c.patches = in.matching(c); c.patches == nil {
			items = append(items, r)
			continue
		}
		take(in.patcher.changes.Get(c), r)
	}
	for _, p := range in.patches.Items() {
		if addsResource(p) {
			take(in.patcher.additions.Get(addIn{p, in.typeURL}), nil)
		}
	}
	if !changed {
		return base
	}
	out.Layer = *resource.NewLayer(items)
	out.Problems = problems
	return out
}

// sideOf is the side of one resource.
func (in plan) sideOf(r *resource.Resource) side {
	if in.side == networking.EnvoyFilter_SIDECAR_OUTBOUND && r.Name == envoy.InboundPassthrough {
		return networking.EnvoyFilter_SIDECAR_INBOUND
	}
	return in.side
}

// matching returns the patches that may match a resource; nil: none.
func (in plan) matching(c changeIn) *intern.List[push.Patch] {
	var out []push.Patch
	cluster := clusterNameOf(c.base.Name)
	for _, p := range in.patches.Items() {
		if !addsResource(p) && mayMatch(p.Spec(), c, cluster) {
			out = append(out, p)
		}
	}
	return in.patcher.lists.Of(out)
}

// mayMatch decides by the name of a resource whether a patch may match it.
func mayMatch(p *networking.EnvoyFilter_EnvoyConfigObjectPatch, c changeIn, cluster clusterName) bool {
	if context := p.GetMatch().GetContext(); context != networking.EnvoyFilter_ANY && context != c.side {
		return false
	}
	switch c.base.TypeURL {
	case resource.ClusterType:
		return matchesCluster(p.GetMatch().GetCluster(), cluster, nil)
	case resource.RouteType:
		return matchesRoutes(p.GetMatch().GetRouteConfiguration(), c.base.Name, c.side)
	}
	name := p.GetMatch().GetListener().GetName()
	return name == "" || name == c.base.Name
}

// changeIn is all that a changed resource is made of.
type changeIn struct {
	base    *resource.Resource
	side    side
	patches *intern.List[push.Patch]
}

// change makes a changed resource.
func (p *Patcher) change(in changeIn) *envoy.Part {
	out := &envoy.Part{Resource: in.base}
	what := short(in.base.TypeURL) + " " + in.base.Name
	var all []*patch
	for _, c := range in.patches.Items() {
		one := p.patches.Get(c)
		if one.err != nil {
			out.Report(one.leftOut(what, one.err))
			continue
		}
		all = append(all, one)
	}
	out.Held = all
	e, r, err := in.apply(all)
	if err != nil { // find out which ones are to blame
		var good []*patch
		for _, one := range all {
			if !e.touched[one] {
				continue
			}
			if _, _, err := in.apply(append(good[:len(good):len(good)], one)); err != nil {
				out.Report(one.leftOut(what, err))
				continue
			}
			good = append(good, one)
		}
		if _, r, err = in.apply(good); err != nil {
			return out // without patches it is invalid, too
		}
	}
	out.Resource = r
	return out
}

// apply applies patches. Errors: Envoy would refuse the result.
func (in changeIn) apply(patches []*patch) (*edit, *resource.Resource, error) {
	m := newMessage(in.base.TypeURL)
	e := newEdit(in.side, patches)
	if err := proto.Unmarshal(in.base.Body(), m); err != nil {
		return e, in.base, err
	}
	if !e.resource(m) {
		return e, nil, nil
	}
	if len(e.touched) == 0 || e.err != nil {
		return e, in.base, e.err
	}
	refs, names := slices.Clone(in.base.Refs), []string(nil)
	for _, p := range patches {
		if e.touched[p] {
			refs, names = append(refs, p.refs...), append(names, p.String())
		}
	}
	r, err := newResource(in.base.TypeURL, in.base.Name, m, refs)
	if err != nil {
		return e, nil, err
	}
	r.Guards, r.Patches = in.base.Guards, names
	return e, r, nil
}

// addIn is a patch that adds a resource of a type.
type addIn struct {
	push.Patch
	typeURL string
}

// add makes a resource that a patch adds.
func (p *Patcher) add(in addIn) *envoy.Part {
	c := p.patches.Get(in.Patch)
	out := &envoy.Part{Held: c}
	name := ""
	if named, ok := c.value.(interface{ GetName() string }); ok {
		name = named.GetName()
	}
	r, err := (*resource.Resource)(nil), c.err
	if err == nil {
		r, err = newResource(in.typeURL, name, c.value, c.refs)
	}
	if err != nil {
		out.Report(c.leftOut(short(in.typeURL)+" "+name, err))
		return out
	}
	r.Patches = []string{c.String()}
	out.Resource = r
	return out
}

// short is the last part of a type.
func short(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }
