package push

import (
	"cmp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	types "istio.io/api/type/v1beta1"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// ruleKey is the key by which a DestinationRule is looked up.
type ruleKey struct{ Namespace, Host, Name string }

// Compare orders by namespace, host, name.
func (k ruleKey) Compare(o ruleKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Host, o.Host), cmp.Compare(k.Name, o.Name))
}

// rules is the index of DestinationRules, by full host name.
type rules struct {
	byHost pmap.Map[ruleKey, *config.Object]
}

// with returns a copy of the index with o instead of old. Either may be nil.
func (x rules) with(old, o *config.Object, domain string) rules {
	key := func(o *config.Object) ruleKey {
		h := ruleHostOf(o, domain)
		return ruleKey{h.namespace, h.host, o.Name}
	}
	if old != nil {
		x.byHost = x.byHost.Without(key(old))
	}
	if o != nil {
		x.byHost = x.byHost.With(key(o), o)
	}
	return x
}

// ruleView looks up merged DestinationRules. It is built from the whole index whenever that or the
// services change.
type ruleView struct {
	in ruleViewIn
	// byHost holds the rules of each namespace and host, sorted by CompareAge.
	byHost map[ruleHost][]*config.Object
	// selective holds the rules of each namespace that have a workloadSelector.
	selective map[string][]*config.Object
	// perNamespace is the number of rules of each namespace.
	perNamespace map[string]int
	// namespacesWithOwnView are the namespaces in which rules apply that do not apply in others.
	namespacesWithOwnView map[string]bool
}

// ruleHost identifies the rules that are merged.
type ruleHost struct{ namespace, host string }

// ruleHostOf returns the ruleHost of a DestinationRule, with the full name of its host.
func ruleHostOf(o *config.Object, domain string) ruleHost {
	return ruleHost{o.Namespace, config.ResolveHost(o.Spec.(*networking.DestinationRule).Host, o.Namespace, domain)}
}

type ruleViewIn struct {
	mesh     *Mesh
	rules    rules
	services Services
	tables   *tables
}

func newRuleView(in ruleViewIn) *ruleView {
	v := &ruleView{
		in: in, byHost: map[ruleHost][]*config.Object{}, selective: map[string][]*config.Object{},
		perNamespace: map[string]int{}, namespacesWithOwnView: map[string]bool{},
	}
	for k, o := range in.rules.byHost.All() {
		h := ruleHost{k.Namespace, k.Host}
		v.byHost[h] = append(v.byHost[h], o)
		v.perNamespace[k.Namespace]++
		if ruleSelector(o) != nil {
			v.selective[k.Namespace] = append(v.selective[k.Namespace], o)
			v.namespacesWithOwnView[k.Namespace] = true
			continue
		}
		addNamespacesWithOwnView(v.namespacesWithOwnView, v.exportTo(o), k.Namespace)
		// A public rule in its service's namespace applies to all clients. A rule for a wildcard
		// also applies to services of other namespaces, for clients in its own.
		_, hasService := in.services.Get(registry.Key{Host: k.Host, Namespace: k.Namespace})
		if !hasService || strings.HasPrefix(k.Host, "*") || k.Namespace == v.root() {
			v.namespacesWithOwnView[k.Namespace] = true
		}
	}
	for _, objects := range v.byHost {
		slices.SortFunc(objects, CompareAge)
	}
	return v
}

func (v *ruleView) root() string { return v.in.mesh.Config.GetRootNamespace() }

// ruleSelector is the workloadSelector of a DestinationRule. Nil: the rule is for all proxies.
func ruleSelector(o *config.Object) *types.WorkloadSelector {
	return o.Spec.(*networking.DestinationRule).WorkloadSelector
}

func (v *ruleView) exportTo(o *config.Object) []string {
	return exportTo(o.Spec.(*networking.DestinationRule).ExportTo, v.in.mesh.Config.GetDefaultDestinationRuleExportTo())
}

// find returns the rule that a client in namespace applies to s, or nil if there is none. It
// searches the client's namespace, the service's, then the root namespace. The first one with a
// match decides; there, the most specific host wins. Of the rules with a workloadSelector it uses
// those in selected, which are of the client's namespace.
// Source: istio.io, DestinationRule exportTo and "Cross namespace configuration".
func (v *ruleView) find(namespace string, s *registry.Service, selected []*config.Object) *DestinationRule {
	if len(v.byHost) == 0 {
		return nil
	}
	for _, from := range []string{namespace, s.Namespace, v.root()} {
		if r := v.mostSpecific(from, s.Host, namespace, selected); r != nil {
			return r
		}
	}
	return nil
}

// mostSpecific returns the merged rule of namespace from that is exported to client and has the
// most specific pattern for host. The selected rules take precedence over those for all clients.
func (v *ruleView) mostSpecific(from, host, client string, selected []*config.Object) *DestinationRule {
	if from == "" || v.perNamespace[from] == 0 {
		return nil
	}
	for pattern := host; pattern != ""; pattern = WiderHost(pattern) {
		objects := v.byHost[ruleHost{from, pattern}]
		if len(objects) == 0 {
			continue
		}
		var own []*config.Object
		visible := make([]*config.Object, 0, len(objects))
		for _, o := range objects {
			switch {
			case ruleSelector(o) != nil:
				if slices.Contains(selected, o) {
					own = append(own, o)
				}
			case visibleTo(v.exportTo(o), from, client):
				visible = append(visible, o)
			}
		}
		if all := slices.Concat(own, visible); len(all) > 0 {
			return v.in.tables.merged.Get(mergeIn{v.in.tables.objects.Of(all), pattern})
		}
	}
	return nil
}

// WiderHost returns the next wider pattern of a host, as in a.b.c, *.b.c, *.c, *. After * it
// returns an empty text.
func WiderHost(pattern string) string {
	if pattern == "*" {
		return ""
	}
	_, rest, ok := strings.Cut(strings.TrimPrefix(pattern, "*."), ".")
	if !ok {
		return "*"
	}
	return "*." + rest
}

// mergeIn holds everything that a merged rule depends on.
type mergeIn struct {
	objects *intern.List[*config.Object]
	host    string
}

// mergeRules merges the rules of one host. The result has all subsets. The first traffic policy is
// used, and the first subset of each name.
// Source: istio.io, "Traffic management best practices: split large virtual services and
// destination rules".
func mergeRules(in mergeIn) *DestinationRule {
	objects := in.objects.Items()
	spec := proto.Clone(objects[0].Spec).(*networking.DestinationRule)
	spec.Host = in.host
	for _, o := range objects[1:] {
		other := o.Spec.(*networking.DestinationRule)
		if spec.TrafficPolicy == nil {
			spec.TrafficPolicy = other.TrafficPolicy
		}
		for _, s := range other.Subsets {
			if !slices.ContainsFunc(spec.Subsets, func(have *networking.Subset) bool { return have.Name == s.Name }) {
				spec.Subsets = append(spec.Subsets, s)
			}
		}
	}
	return &DestinationRule{Spec: spec, From: objects}
}
