package push

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/nearest"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Strangers tells of callers whom AuthorizationPolicies deny and whom nobody in the mesh can be: most likely their names are
// mistyped, and nobody is denied. more are workloads that are known otherwise than by what is declared: those that joined. Ask
// only where no other authority than the mesh's own lets workloads in.
func (c *Context) Strangers(more []spiffe.ID) []feed.Problem {
	s := &strangers{dangling: dangling{context: c}, domains: append([]string{c.trustDomain()}, c.in.Mesh.Config.GetTrustDomainAliases()...)}
	for _, o := range c.authorization.byKey.All() {
		spec, ok := o.Spec.(*security.AuthorizationPolicy)
		if !ok || spec.Action != security.AuthorizationPolicy_DENY {
			continue
		}
		for i, r := range spec.Rules {
			for k, f := range r.GetFrom() {
				at, from := fmt.Sprintf("spec.rules[%d].from[%d].source.", i, k), f.GetSource()
				s.check(o, at+"principals", from.GetPrincipals(), more, s.principal)
				s.check(o, at+"namespaces", from.GetNamespaces(), more, s.namespace)
				s.check(o, at+"serviceAccounts", from.GetServiceAccounts(), more, s.account(o.Namespace))
				s.check(o, at+"trustDomains", from.GetTrustDomains(), more, s.domain)
			}
			for k, w := range r.GetWhen() {
				if test := s.condition(w.GetKey(), o.Namespace); test != nil {
					s.check(o, fmt.Sprintf("spec.rules[%d].when[%d].values", i, k), w.GetValues(), more, test)
				}
			}
		}
	}
	return s.problems
}

// strangers looks for them. What is known is found when the first policy asks.
type strangers struct {
	dangling
	domains    []string // the mesh's trust domain and its aliases
	known      map[Identity]bool
	namespaces map[string]bool
	clients    bool // some Gateway takes certificates of others
}

// check warns of those values of one list that test says something against.
func (s *strangers) check(o *config.Object, path string, values []string, more []spiffe.ID, test func(v string) string) {
	if len(values) > 0 && s.known == nil {
		s.find(more)
	}
	for i, v := range values {
		if why := test(v); why != "" {
			s.warn(o.Key, fmt.Sprintf("%s[%d]", path, i), "%s, so this matches nobody until one joins: write one that exists, or remove it", why)
		}
	}
}

// condition is what tests the values of an attribute; nil: they say nothing of who calls.
func (s *strangers) condition(key, namespace string) func(v string) string {
	switch key {
	case "source.principal":
		return s.principal
	case "source.namespace":
		return s.namespace
	case "source.serviceaccount", "source.serviceAccount":
		return s.account(namespace)
	case "source.trustDomain":
		return s.domain
	}
	return nil
}

// principal says why nobody has an identity. Those of trust domains of others, which gateways may let in, are left alone.
func (s *strangers) principal(v string) string {
	domain, _, named := strings.Cut(v, "/")
	if named && !strings.Contains(domain, "*") && domain != "cluster.local" && !slices.Contains(s.domains, domain) {
		return s.domain(domain)
	}
	exact, err := spiffe.Parse("spiffe://" + v)
	if err == nil && s.known[Identity{exact.Namespace, exact.ServiceAccount}] {
		return ""
	}
	var names []string
	for _, id := range s.sorted() {
		for _, d := range s.domains {
			if err == nil {
				break // only who is just that would do
			}
			j := ruleJudge{call: Call{From: spiffe.ID{TrustDomain: d, Namespace: id.Namespace, ServiceAccount: id.ServiceAccount}}, domains: s.domains, widen: true}
			if t, ok := j.principal(true)(v); !ok || t == yes {
				return ""
			}
		}
		names = append(names, s.domains[0]+"/ns/"+id.Namespace+"/sa/"+id.ServiceAccount)
	}
	return fmt.Sprintf("no workload of this mesh has the identity %s%s", v, meantFor(v, names))
}

// namespace says why nobody is in a namespace.
func (s *strangers) namespace(v string) string {
	for ns := range s.namespaces {
		if matchStars(v, ns) {
			return ""
		}
	}
	return fmt.Sprintf("no workload is in namespace %s%s", v, meantFor(v, slices.Sorted(maps.Keys(s.namespaces))))
}

// account says why nobody has a service account, by what the policy of a namespace writes.
func (s *strangers) account(namespace string) func(v string) string {
	return func(v string) string {
		id := Identity{namespace, v}
		if ns, name, ok := strings.Cut(v, "/"); ok {
			id = Identity{ns, name}
		}
		if s.known[id] {
			return ""
		}
		var names []string
		for _, k := range s.sorted() {
			names = append(names, k.Namespace+"/"+k.ServiceAccount)
		}
		name := id.Namespace + "/" + id.ServiceAccount
		return fmt.Sprintf("no workload has the service account %s%s", name, meantFor(name, names))
	}
}

// domain says why nobody has a trust domain.
func (s *strangers) domain(v string) string {
	if s.clients || slices.ContainsFunc(s.domains, func(d string) bool { return matchText(v, d) }) {
		return ""
	}
	return fmt.Sprintf("no workload has the trust domain %s (this mesh's is %s)", v, strings.Join(s.domains, ", "))
}

// meantFor is a question in brackets about the name that may have been meant; empty when none is like it.
func meantFor(name string, known []string) string {
	if near := nearest.Name(name, known); near != "" {
		return fmt.Sprintf(" (did you mean %s?)", near)
	}
	return ""
}

func (s *strangers) sorted() []Identity {
	return slices.SortedFunc(maps.Keys(s.known), func(a, b Identity) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ServiceAccount, b.ServiceAccount))
	})
}

// add takes in who somebody is.
func (s *strangers) add(namespace, account string) {
	s.known[Identity{namespace, cmp.Or(account, defaultServiceAccount)}] = true
	s.namespaces[namespace] = true
}

// find takes in everybody who is declared, and more.
func (s *strangers) find(more []spiffe.ID) {
	s.known, s.namespaces = map[Identity]bool{}, map[string]bool{}
	for _, id := range more {
		s.add(id.Namespace, id.ServiceAccount)
	}
	in := &s.context.in
	for _, l := range in.Endpoints.All() {
		for i := range l.All() {
			s.add(l.Items[i].Namespace, l.Items[i].ServiceAccount)
		}
	}
	for _, sv := range in.Services.All() {
		for _, name := range sv.SubjectAltNames {
			if id, err := spiffe.Parse(name); err == nil {
				s.add(id.Namespace, id.ServiceAccount)
			}
		}
	}
	for _, kind := range []config.Kind{config.WorkloadEntry, config.WorkloadGroup, config.Gateway} {
		for k, o := range in.Objects.From(config.Key{Kind: kind}) {
			if k.Kind != kind {
				break
			}
			switch spec := o.Spec.(type) {
			case *networking.WorkloadEntry:
				s.add(k.Namespace, spec.ServiceAccount)
			case *networking.WorkloadGroup:
				s.add(k.Namespace, spec.GetTemplate().GetServiceAccount())
			case *networking.Gateway:
				s.clients = s.clients || slices.ContainsFunc(spec.Servers, asksClients)
			}
		}
	}
}

// asksClients says that a server of a Gateway takes certificates of clients.
func asksClients(s *networking.Server) bool {
	switch s.GetTls().GetMode() {
	case networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		return true
	}
	return false
}
