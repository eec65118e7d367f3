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

// UnknownPrincipals reports workloads in DENY policies that do not exist, most likely because their
// names are mistyped. joined are the identities of the workloads that joined: none if files are
// analyzed alone. It must not be called if another authority issues certificates, too.
func UnknownPrincipals(ctx context.Context, c *push.Context, joined []spiffe.ID) []Finding {
	a := newAnalysis(ctx, c)
	var accounts map[string]bool
	for o := range a.objects(config.AuthorizationPolicy) {
		spec := o.Spec.(*security.AuthorizationPolicy)
		if spec.Action != security.AuthorizationPolicy_DENY {
			continue
		}
		if accounts == nil {
			accounts = a.accounts(joined)
		}
		check := func(path, key string, values []string) {
			for i, v := range values {
				account := a.accountOf(key, v, o.Namespace)
				if account == "" || accounts[account] {
					continue
				}
				hint := a.similar(account, slices.Sorted(maps.Keys(accounts)))
				f := a.report(UnknownPrincipal, o, fmt.Sprintf("%s[%d]", path, i),
					"no workload has the service account "+account+hint+", so this matches no caller",
					"use one that exists, or remove it")
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
				check(at+"serviceAccounts", "source.serviceaccount", from.GetServiceAccounts())
			}
			for k, w := range r.GetWhen() {
				check(fmt.Sprintf("spec.rules[%d].when[%d].values", i, k), strings.ToLower(w.GetKey()), w.GetValues())
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	sortFindings(a.findings)
	return a.findings
}

// accounts returns the service accounts, "shop/web", of joined workloads, endpoints, services,
// WorkloadEntries and WorkloadGroups.
func (a *analysis) accounts(joined []spiffe.ID) map[string]bool {
	out := map[string]bool{}
	add := func(namespace, account string) { out[namespace+"/"+cmp.Or(account, "default")] = true }
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
	return out
}

// accountOf returns the service account that a value of an attribute names, in a policy of the
// namespace. It returns an empty text if the value may match others: if it has a star, or another
// authority's trust domain.
func (a *analysis) accountOf(key, value, namespace string) string {
	switch {
	case strings.Contains(value, "*"):
		return ""
	case key == "source.serviceaccount" && strings.Contains(value, "/"):
		return value
	case key == "source.serviceaccount":
		return namespace + "/" + value
	}
	id, err := spiffe.Parse("spiffe://" + value)
	// As in Istio, policies may name the mesh's trust domain as cluster.local, whatever it is called.
	ofMesh := id.TrustDomain == "cluster.local" || slices.Contains(a.in.Mesh.TrustDomains(), id.TrustDomain)
	if key != "source.principal" || err != nil || !ofMesh {
		return ""
	}
	return id.Namespace + "/" + id.ServiceAccount
}
