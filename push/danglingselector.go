package push

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
)

// selectors warns of policies that select workloads which nobody declares: what they are to protect may stand open.
func (d *dangling) selectors() {
	var known carriers
	for _, policies := range []policies{d.context.peers, d.context.requests, d.context.authorization} {
		for _, o := range policies.byKey.All() {
			want := selectorLabels(o)
			if len(want) == 0 {
				continue
			}
			if known.byLabel == nil {
				known = d.context.carriers()
			}
			if !known.some(d.context.policyNamespace(o), want) {
				d.warn(o.Key, "spec.selector.matchLabels", "nothing that is declared%s has these labels, neither an endpoint, a WorkloadEntry or a WorkloadGroup nor the selector of a Gateway, so that this does nothing "+
					"unless a proxy comes with them: write the labels of those it is for, or remove it", d.context.within(o))
			}
		}
	}
}

// policyNamespace is that of the workloads which a policy may select; empty: any.
func (c *Context) policyNamespace(o *config.Object) string {
	if o.Namespace == c.in.Mesh.Config.GetRootNamespace() {
		return ""
	}
	return o.Namespace
}

// within says in a sentence where the workloads of a policy are.
func (c *Context) within(o *config.Object) string {
	if ns := c.policyNamespace(o); ns != "" {
		return " in namespace " + ns
	}
	return ""
}

// carriers are the labels of all that may have a proxy, by each of them and the namespace, where "" is that of those
// whose namespace is not known.
type carriers struct {
	byLabel map[string]map[Label][]map[string]string
}

// add takes in the labels of something.
func (x carriers) add(namespace string, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	at := x.byLabel[namespace]
	if at == nil {
		at = map[Label][]map[string]string{}
		x.byLabel[namespace] = at
	}
	for k, v := range labels {
		at[Label{k, v}] = append(at[Label{k, v}], labels)
	}
}

// some says whether something of a namespace has all of these labels; no namespace: of any.
func (x carriers) some(namespace string, want map[string]string) bool {
	for at, byLabel := range x.byLabel {
		if namespace != "" && at != "" && at != namespace {
			continue
		}
		for k, v := range want {
			for _, have := range byLabel[Label{k, v}] {
				if selectsAll(want, have) {
					return true
				}
			}
			break // one of the labels finds all that have it
		}
	}
	return false
}

// carriers finds them.
func (c *Context) carriers() carriers {
	x := carriers{byLabel: map[string]map[Label][]map[string]string{}}
	for _, l := range c.in.Endpoints.All() {
		for i := range l.All() {
			x.add(l.Items[i].Namespace, l.Items[i].Labels)
		}
	}
	for _, kind := range []config.Kind{config.WorkloadEntry, config.WorkloadGroup, config.Gateway} {
		for k, o := range c.in.Objects.From(config.Key{Kind: kind}) {
			if k.Kind != kind {
				break
			}
			switch s := o.Spec.(type) {
			case *networking.WorkloadEntry:
				x.add(k.Namespace, s.Labels)
			case *networking.WorkloadGroup:
				x.add(k.Namespace, groupLabels(s))
			case *networking.Gateway:
				x.add("", s.Selector)
			}
		}
	}
	return x
}
