package push

import (
	"fmt"
	"slices"
	"sync"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// place is where what is found among the rules of one namespace and host is kept.
func (h ruleHost) place() place {
	return place{config.Key{Kind: config.DestinationRule}, h.namespace + "/" + h.host}
}

// changeRules brings a changed DestinationRule among those of its host.
func (c *crossings) changeRules(ch objectChange, m *Mesh) {
	if ch.Old != nil {
		c.rules.remove(ruleHostOf(ch.Old, m.Domain), ch.Key)
	}
	if ch.New != nil {
		spec := ch.New.Spec.(*networking.DestinationRule)
		to := exportTo(spec.ExportTo, m.Config.GetDefaultDestinationRuleExportTo())
		c.rules.put(ruleHostOf(ch.New, m.Domain), ch.Key, &contender{object: ch.New, to: to, claims: sync.OnceValue(func() []claim { return ruleClaims(spec) })})
	}
}

// ruleClaims are what only one of several rules of a host can say.
func ruleClaims(spec *networking.DestinationRule) []claim {
	var out []claim
	if spec.TrafficPolicy != nil {
		out = append(out, claim{name: "a trafficPolicy", field: "spec.trafficPolicy"})
	}
	for i, s := range spec.Subsets {
		out = append(out, claim{name: "a subset " + s.Name, field: fmt.Sprintf("spec.subsets[%d]", i)})
	}
	return out
}

// ruleClashes finds parts of the rules of one host that are left out, because a rule that comes first has the like.
// See mergeRules.
func ruleClashes(at ruleHost, members []*contender) []finding {
	slices.SortFunc(members, func(a, b *contender) int { return olderFirst(a.object, b.object) })
	taken := ledger{}
	var out []finding
	for _, m := range members {
		var granted []claim
		for _, c := range m.claims() {
			first := taken.winner(m, c)
			if first == nil {
				granted = append(granted, c)
				continue
			}
			text := fmt.Sprintf("has no effect, because %s (%s), which is for host %s too and comes first, by age or by name, has %s already: put the rules of that host into one object, or leave one of the two out",
				first.object.Key, placeIn(first.object), at.host, c.name)
			out = append(out, complaint(m.object, feed.Error, c.field, text, first.object.Key.String()+" "+c.name))
		}
		for _, c := range granted {
			taken.grant(m, c)
		}
	}
	return out
}
