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
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
)

// UnknownPrincipals reports callers in DENY policies that do not exist, most likely because their
// names are mistyped. joined are the identities of the workloads that joined: none if files are
// analyzed alone. It must not be called if another authority issues certificates, too.
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
				why, hint := known.whyUnmatched(a, key, v, o.Namespace)
				if why == "" {
					continue
				}
				f := a.report(UnknownPrincipal, o, fmt.Sprintf("%s[%d]", path, i),
					why+hint+", so this matches no caller", "use one that exists, or remove it")
				if hint != "" {
					f.offline = feed.Warning
				}
			}
		}
		// A mistake in a negative field, such as notPrincipals, blocks callers, which is noticed. A
		// mistake in a positive field lets callers pass that were to be denied.
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

// callers are the identities that callers may have.
type callers struct {
	domain     string          // the mesh's trust domain
	domains    map[string]bool // with its aliases
	identities map[string]bool // "cluster.local/ns/shop/sa/web", in the mesh's trust domain
	accounts   map[string]bool // "shop/web"
	namespaces map[string]bool
	// externalClients means that a Gateway accepts client certificates of other authorities.
	externalClients bool
}

// callers collects the identities of joined workloads, endpoints, services, WorkloadEntries and
// WorkloadGroups.
func (a *analysis) callers(joined []spiffe.ID) *callers {
	domains := a.in.Mesh.TrustDomains()
	x := &callers{
		domain: domains[0], domains: map[string]bool{},
		identities: map[string]bool{}, accounts: map[string]bool{}, namespaces: map[string]bool{},
	}
	for _, d := range domains {
		x.domains[d] = true
	}
	add := func(namespace, account string) {
		account = cmp.Or(account, "default")
		x.identities[x.domain+"/ns/"+namespace+"/sa/"+account] = true
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
				x.externalClients = true
			}
		}
	}
	return x
}

// whyUnmatched returns why no caller has the value of an attribute in a policy of the namespace, and
// a hint from similar. why is empty if a caller has it, or if the attribute is not an identity.
func (x *callers) whyUnmatched(a *analysis, key, value, namespace string) (why, hint string) {
	known, text, name := x.identities, "no workload of this mesh has the identity ", value
	switch key {
	case "source.principal":
		// As in Istio, policies may name the mesh's trust domain as cluster.local, whatever it is
		// called.
		domain, rest, _ := strings.Cut(value, "/")
		if domain == "cluster.local" || x.domains[domain] {
			name = x.domain + "/" + rest
		} else if x.externalClients {
			return "", ""
		}
	case "source.namespace":
		known, text = x.namespaces, "no workload is in namespace "
	case "source.serviceaccount":
		known, text = x.accounts, "no workload has the service account "
		if !strings.Contains(value, "/") {
			name = namespace + "/" + value
		}
	case "source.trustDomain":
		if x.externalClients {
			return "", ""
		}
		known, text = x.domains, "no workload has the trust domain "
	default:
		return "", ""
	}
	for have := range known {
		if matches(name, have) {
			return "", ""
		}
	}
	return text + value, a.similar(name, slices.Sorted(maps.Keys(known)))
}

// matches reports whether a value of a policy matches a name. As in Istio, a star at the beginning
// or at the end of the value stands for any text. Namespaces may have stars elsewhere: these are
// not checked.
func matches(value, name string) bool {
	before, after, star := strings.Cut(value, "*")
	switch {
	case !star:
		return value == name
	case before != "" && after != "", strings.Contains(after, "*"):
		return true
	default:
		return strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
	}
}
