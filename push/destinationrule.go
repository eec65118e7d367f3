package push

import (
	"cmp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// ruleKey is a DestinationRule by what it is looked up by.
type ruleKey struct{ Namespace, Host, Name string }

// Compare orders by namespace, host, name.
func (k ruleKey) Compare(o ruleKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Host, o.Host), cmp.Compare(k.Name, o.Name))
}

// rules is the index of DestinationRules, by full host name.
type rules struct {
	byHost pmap.Map[ruleKey, *config.Object]
}

// with returns the index with object old replaced by o; either may be nil.
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

// ruleView are all rules, merged by host and ordered for look-ups. Made from the whole index when
// it or the services changed.
type ruleView struct {
	in ruleViewIn
	// byHost are the rules of one namespace and host, the older first.
	byHost map[ruleHost][]*config.Object
	// perNamespace counts the rules.
	perNamespace map[string]int
	// special are the namespaces to which rules apply that do not apply to others.
	special map[string]bool
}

// ruleHost is what the rules that are merged have in common.
type ruleHost struct{ namespace, host string }

// ruleHostOf is that of the DestinationRule o, with the host's full name.
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
		in: in, byHost: map[ruleHost][]*config.Object{}, perNamespace: map[string]int{}, special: map[string]bool{},
	}
	for k, o := range in.rules.byHost.All() {
		h := ruleHost{k.Namespace, k.Host}
		v.byHost[h] = append(v.byHost[h], o)
		v.perNamespace[k.Namespace]++
		addSpecial(v.special, v.exportTo(o), nil, k.Namespace)
		// A public rule in its service's namespace applies to all clients. A rule for a wildcard
		// also applies to services of other namespaces, for clients in its own.
		_, beside := in.services.Get(registry.Key{Host: k.Host, Namespace: k.Namespace})
		if !beside || strings.HasPrefix(k.Host, "*") || k.Namespace == v.root() {
			v.special[k.Namespace] = true
		}
	}
	for _, objects := range v.byHost {
		slices.SortFunc(objects, CompareAge)
	}
	return v
}

func (v *ruleView) root() string { return v.in.mesh.Config.GetRootNamespace() }

func (v *ruleView) exportTo(o *config.Object) []string {
	return exportTo(o.Spec.(*networking.DestinationRule).ExportTo, v.in.mesh.Config.GetDefaultDestinationRuleExportTo())
}

// find returns what a client in namespace applies to s, nil when there is no rule: the rule of the
// client's namespace, else of the service's, else of the root namespace; in each the most specific
// host.
// Source: istio.io, DestinationRule exportTo and "Cross namespace configuration".
func (v *ruleView) find(namespace string, s *registry.Service) *DestinationRule {
	if len(v.byHost) == 0 {
		return nil
	}
	if r := v.mostSpecific(namespace, s.Host, namespace); r != nil {
		return r
	}
	if r := v.mostSpecific(s.Namespace, s.Host, namespace); r != nil {
		return r
	}
	return v.mostSpecific(v.root(), s.Host, namespace)
}

// mostSpecific returns the merged rule of namespace from with the most specific host that covers
// host, among those exported to client.
func (v *ruleView) mostSpecific(from, host, client string) *DestinationRule {
	if from == "" || v.perNamespace[from] == 0 {
		return nil
	}
	for pattern := host; pattern != ""; pattern = WiderHost(pattern) {
		objects := v.byHost[ruleHost{from, pattern}]
		if len(objects) == 0 {
			continue
		}
		visible := make([]*config.Object, 0, len(objects))
		for _, o := range objects {
			if visibleTo(v.exportTo(o), from, client) {
				visible = append(visible, o)
			}
		}
		if len(visible) > 0 {
			return v.in.tables.merged.Get(mergeIn{v.in.tables.objects.Of(visible), pattern})
		}
	}
	return nil
}

// WiderHost returns the next wider pattern of a host, as in a.b.c, *.b.c, *.c, *. After * it returns an
// empty text.
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

// mergeIn is what a merged rule depends on.
type mergeIn struct {
	objects *intern.List[*config.Object]
	host    string
}

// mergeRules makes one rule of several for one host: subsets are united, and the first subset of a
// name and the first traffic policy are used.
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
