package patch

import (
	"fmt"
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
	additions *memo.Func[push.Patch, envoy.Part]
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
	// names says that the match names the filter or route that is meant.
	names bool
	// err is why there is no value.
	err error
}

func newPatch(from push.Patch) *patch {
	spec := from.Spec()
	p := &patch{Patch: from, EnvoyFilter_EnvoyConfigObjectPatch: spec, operation: spec.GetPatch().GetOperation(),
		names: config.PatchNames(spec)}
	if spec.GetPatch().GetValue() != nil {
		p.value, p.err = config.PatchValue(spec)
	}
	return p
}

// String names a patch to people.
func (p *patch) String() string {
	return fmt.Sprintf("%s/%s configPatches[%d]", p.Filter.Namespace, p.Filter.Name, p.Index)
}

// leftOut is the problem that a patch is not applied.
func (p *patch) leftOut(what string, err error) *feed.Problem {
	problem := envoy.Refused(p.Filter, "the patch of "+what+" is left out", err)
	problem.Field = fmt.Sprintf("spec.configPatches[%d].patch", p.Index)
	return problem
}

// side says which resources a layer has.
type side = networking.EnvoyFilter_PatchContext

// plan is a layer with patches.
type plan struct {
	patcher *Patcher
	base    envoy.Plan // nil: nothing
	typeURL string
	side    side
	patches *intern.List[push.Patch]
}

// Plans returns the plans with the patches of the scope.
func (p *Patcher) Plans(typeURL string, sc *push.Scope, shared, own envoy.Plan) (envoy.Plan, envoy.Plan) {
	if sc.Patches.Len() == 0 {
		return shared, own
	}
	if sc.Type == push.Router {
		return p.plan(plan{p, shared, typeURL, networking.EnvoyFilter_GATEWAY, sc.Patches}), own
	}
	return p.plan(plan{p, shared, typeURL, networking.EnvoyFilter_SIDECAR_OUTBOUND, sc.Patches}),
		p.plan(plan{p, own, typeURL, networking.EnvoyFilter_SIDECAR_INBOUND, sc.Patches})
}

// plan returns the plan with the patches that concern it alone, or what it is based on.
func (p *Patcher) plan(in plan) envoy.Plan {
	var out []push.Patch
	for _, c := range in.patches.Items() {
		if in.adds(c.Spec()) || in.base != nil && in.concerns(c.Spec()) {
			out = append(out, c)
		}
	}
	if out == nil {
		return in.base
	}
	in.patches = p.lists.Of(out)
	return in
}

// adds reports whether a patch adds a resource to the layer. Without a context it is added to what a
// workload sends.
func (in plan) adds(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) bool {
	context := p.GetMatch().GetContext()
	switch {
	case typeOf(p.ApplyTo) != in.typeURL || !addsResource(p):
		return false
	case p.ApplyTo == networking.EnvoyFilter_EXTENSION_CONFIG, context == networking.EnvoyFilter_ANY:
		return in.side != networking.EnvoyFilter_SIDECAR_INBOUND
	}
	return context == in.side
}

// addsResource reports whether a patch adds a whole resource.
func addsResource(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) bool {
	switch p.ApplyTo {
	case networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_CLUSTER, networking.EnvoyFilter_EXTENSION_CONFIG:
		return config.PatchInserts(p.GetPatch().GetOperation())
	}
	return false
}

// concerns reports whether a patch may change a resource of the layer. Inbound listeners contain
// their routes. One inbound cluster is shared.
func (in plan) concerns(p *networking.EnvoyFilter_EnvoyConfigObjectPatch) bool {
	inbound := in.side == networking.EnvoyFilter_SIDECAR_INBOUND
	typeURL := typeOf(p.ApplyTo)
	if typeURL == resource.RouteType && inbound {
		typeURL = resource.ListenerType
	}
	if typeURL != in.typeURL || addsResource(p) {
		return false
	}
	context := p.GetMatch().GetContext()
	return inContext(context, in.side) || typeURL == resource.ClusterType && context ==
		networking.EnvoyFilter_SIDECAR_INBOUND
}

// inContext reports whether a patch for context is for a side.
func inContext(context, of side) bool { return context == networking.EnvoyFilter_ANY || context == of }

// typeOf is the type of the resources that have what is patched.
func typeOf(to networking.EnvoyFilter_ApplyTo) string {
	switch to {
	case networking.EnvoyFilter_CLUSTER:
		return resource.ClusterType
	case networking.EnvoyFilter_EXTENSION_CONFIG:
		return resource.ExtensionConfigType
	case networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST,
		networking.EnvoyFilter_HTTP_ROUTE:
		return resource.RouteType
	}
	return resource.ListenerType
}

// Layer implements envoy.Plan. Of a patch that is left out of several resources one is reported.
func (in plan) Layer() *envoy.Layer {
	base := &envoy.Layer{}
	if in.base != nil {
		base = in.patcher.layers.Get(in.base)
	}
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
		if in.adds(p.Spec()) {
			take(in.patcher.additions.Get(p), nil)
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

// matching are the patches that may match a resource; nil: none.
func (in plan) matching(c changeIn) *intern.List[push.Patch] {
	var out []push.Patch
	for _, p := range in.patches.Items() {
		if spec := p.Spec(); in.concerns(spec) && inContext(spec.GetMatch().GetContext(), c.side) && mayMatch(spec, c) {
			out = append(out, p)
		}
	}
	return in.patcher.lists.Of(out)
}

// mayMatch decides by the name of a resource whether a patch may match it.
func mayMatch(p *networking.EnvoyFilter_EnvoyConfigObjectPatch, c changeIn) bool {
	switch c.base.TypeURL {
	case resource.ClusterType:
		return matchesCluster(p.GetMatch().GetCluster(), c.base.Name, nil)
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
	if len(e.touched) == 0 {
		return e, in.base, nil
	}
	r, err := newResource(in.base.TypeURL, in.base.Name, m, in.base.Refs)
	if err != nil {
		return e, nil, err
	}
	r.Guards = in.base.Guards
	for _, p := range patches {
		if e.touched[p] {
			r.Patches = append(r.Patches, p.String())
		}
	}
	return e, r, nil
}

// add makes a resource that a patch adds.
func (p *Patcher) add(from push.Patch) *envoy.Part {
	c := p.patches.Get(from)
	out := &envoy.Part{Held: c}
	name, typeURL := "", typeOf(c.ApplyTo)
	if named, ok := c.value.(interface{ GetName() string }); ok {
		name = named.GetName()
	}
	r, err := (*resource.Resource)(nil), c.err
	if err == nil {
		r, err = newResource(typeURL, name, c.value, nil)
	}
	if err != nil {
		out.Report(c.leftOut(short(typeURL)+" "+name, err))
		return out
	}
	r.Patches = []string{c.String()}
	out.Resource = r
	return out
}

// short is the last part of a type.
func short(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }
