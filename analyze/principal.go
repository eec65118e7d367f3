package analyze

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
)

// UnknownPrincipals finds callers in DENY policies that do not exist, most likely because their names are mistyped.
// joined are the workloads that joined. Call it only where the mesh's own authority alone issues certificates.
func UnknownPrincipals(ctx context.Context, c *push.Context, joined []spiffe.ID) []Finding {
	a := newAnalysis(ctx, c)
	var known *callers
	for o := range a.objects(config.AuthorizationPolicy) {
		spec := o.Spec.(*security.AuthorizationPolicy)
		if spec.Action != security.AuthorizationPolicy_DENY {
			continue
		}
		if known == nil {
			known = a.callers(joined)
		}
		check := func(path, key string, values []string) {
			for i, v := range values {
				if why := known.unknown(a, key, v, o.Namespace); why != "" {
					a.report(UnknownPrincipal, o, fmt.Sprintf("%s[%d]", path, i),
						why+", so this matches nobody until one joins", "use one that exists, or remove it")
				}
			}
		}
		for i, r := range spec.Rules {
			for k, f := range r.GetFrom() {
				at, from := fmt.Sprintf("spec.rules[%d].from[%d].source.", i, k), f.GetSource()
				check(at+"principals", "source.principal", from.GetPrincipals())
				check(at+"namespaces", "source.namespace", from.GetNamespaces())
				check(at+"serviceAccounts", "source.serviceaccount", from.GetServiceAccounts())
				check(at+"trustDomains", "source.trustDomain", from.GetTrustDomains())
			}
			for k, w := range r.GetWhen() {
				key := strings.Replace(w.GetKey(), "serviceAccount", "serviceaccount", 1)
				check(fmt.Sprintf("spec.rules[%d].when[%d].values", i, k), key, w.GetValues())
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	sortFindings(a.findings)
	return a.findings
}

// callers are everybody who is known.
type callers struct {
	domains    []string        // the mesh's trust domain and its aliases
	identities map[string]bool // "cluster.local/ns/shop/sa/web", in the mesh's trust domain
	accounts   map[string]bool // "shop/web"
	namespaces map[string]bool
	others     bool // some Gateway takes certificates of other authorities
}

// callers finds them.
func (a *analysis) callers(joined []spiffe.ID) *callers {
	domains := a.in.Mesh.TrustDomains()
	own := domains[0]
	x := &callers{
		domains:    domains,
		identities: map[string]bool{}, accounts: map[string]bool{}, namespaces: map[string]bool{},
	}
	add := func(namespace, account string) {
		account = cmp.Or(account, "default")
		x.identities[own+"/ns/"+namespace+"/sa/"+account] = true
		x.accounts[namespace+"/"+account], x.namespaces[namespace] = true, true
	}
	for _, id := range joined {
		add(id.Namespace, id.ServiceAccount)
	}
	for _, l := range a.in.Endpoints.All() {
		for i := range l.All() {
			add(l.Items[i].Namespace, l.Items[i].ServiceAccount)
		}
	}
	for _, s := range a.in.Services.All() {
		for _, name := range s.SubjectAltNames {
			if id, err := spiffe.Parse(name); err == nil {
				add(id.Namespace, id.ServiceAccount)
			}
		}
	}
	for o := range a.objects(config.WorkloadEntry) {
		add(o.Namespace, o.Spec.(*networking.WorkloadEntry).ServiceAccount)
	}
	for o := range a.objects(config.WorkloadGroup) {
		add(o.Namespace, o.Spec.(*networking.WorkloadGroup).GetTemplate().GetServiceAccount())
	}
	for o := range a.objects(config.Gateway) {
		for _, s := range o.Spec.(*networking.Gateway).Servers {
			mode := s.GetTls().GetMode()
			if mode == networking.ServerTLSSettings_MUTUAL || mode == networking.ServerTLSSettings_OPTIONAL_MUTUAL {
				x.others = true
			}
		}
	}
	return x
}

// unknown says why no caller has a value of an attribute, in a policy of a namespace; empty when one has, or when the
// attribute says nothing about callers.
func (x *callers) unknown(a *analysis, key, v, namespace string) string {
	known, text := x.identities, "no workload of this mesh has the identity "
	switch key {
	case "source.principal":
		v = strings.TrimPrefix(v, "spiffe://")
		domain, rest, _ := strings.Cut(v, "/")
		if domain == "cluster.local" || slices.Contains(x.domains, domain) {
			v = x.domains[0] + "/" + rest
		} else if x.others && !strings.Contains(domain, "*") {
			return ""
		}
	case "source.namespace":
		known, text = x.namespaces, "no workload is in namespace "
	case "source.serviceaccount":
		known, text = x.accounts, "no workload has the service account "
		if !strings.Contains(v, "/") {
			v = namespace + "/" + v
		}
	case "source.trustDomain":
		if x.others || slices.ContainsFunc(x.domains, func(d string) bool { return matches(v, d) }) {
			return ""
		}
		return fmt.Sprintf("no workload has the trust domain %s (this mesh's is %s)", v, strings.Join(x.domains, ", "))
	default:
		return ""
	}
	if known[v] {
		return ""
	}
	for name := range known {
		if strings.Contains(v, "*") && matches(v, name) {
			return ""
		}
	}
	return text + v + a.similar(v, slices.Sorted(maps.Keys(known)))
}

// matches reports whether text matches a pattern: a text, "prefix*", "*suffix" or "*".
// Source: Istio, AuthorizationPolicy. A star elsewhere is an ordinary character.
func matches(pattern, text string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(text, suffix)
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(text, prefix)
	}
	return pattern == text
}
