package analyze

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// secrets checks that the secrets exist which Gateways and DestinationRules name.
func (a *analysis) secrets() {
	if a.in.Secrets == nil {
		return // it is not known which there are
	}
	for o := range a.objects(config.Gateway) {
		spec := o.Spec.(*networking.Gateway)
		for i, s := range spec.Servers {
			names, authorities := push.ServerSecrets(s.GetTls())
			if authorities != "" {
				names = append(names, authorities)
			}
			for _, name := range names {
				a.secret(o, fmt.Sprintf("spec.servers[%d].tls", i), name, a.namespacesOf(spec.Selector),
					"TLS connections to "+few(s.Hosts)+" fail")
			}
		}
	}
	for o := range a.objects(config.DestinationRule) {
		spec := o.Spec.(*networking.DestinationRule)
		var namespaces []string // those of gateways are not known
		if spec.WorkloadSelector != nil {
			namespaces = []string{o.Namespace}
		}
		for t := range clientTLS(spec) {
			if t.GetCredentialName() == "" {
				continue
			}
			const consequence = "connections to the host fail"
			if t.Mode == networking.ClientTLSSettings_MUTUAL {
				a.secret(o, "spec.trafficPolicy", secret.CertificateResource(t.CredentialName), namespaces, consequence)
			}
			if !t.InsecureSkipVerify.GetValue() {
				a.secret(o, "spec.trafficPolicy", secret.AuthoritiesResource(t.CredentialName), namespaces, consequence)
			}
		}
	}
}

// clientTLS yields the TLS settings of a DestinationRule, for all ports and subsets. Some are nil.
func clientTLS(r *networking.DestinationRule) iter.Seq[*networking.ClientTLSSettings] {
	return func(yield func(*networking.ClientTLSSettings) bool) {
		policies := []*networking.TrafficPolicy{r.TrafficPolicy}
		for _, s := range r.Subsets {
			policies = append(policies, s.TrafficPolicy)
		}
		for _, p := range policies {
			if !yield(p.GetTls()) {
				return
			}
			for _, port := range p.GetPortLevelSettings() {
				if !yield(port.Tls) {
					return
				}
			}
		}
	}
}

// namespacesOf returns the namespaces of the workloads that have these labels, as far as they are
// known.
func (a *analysis) namespacesOf(selector map[string]string) []string {
	var out []string
	for namespace, list := range a.allWorkloads() {
		selected := func(w workload) bool { return registry.SelectsAll(selector, w.labels) }
		if namespace != unknownNamespace && slices.ContainsFunc(list, selected) {
			out = append(out, namespace)
		}
	}
	slices.Sort(out)
	return out
}

// secret reports a secret that is missing in one of the namespaces, or everywhere if there are none.
func (a *analysis) secret(o *config.Object, field, resource string, namespaces []string, consequence string) {
	have := a.in.Secrets.Having(resource)
	missing := slices.DeleteFunc(slices.Clone(namespaces), func(ns string) bool { return slices.Contains(have, ns) })
	if len(missing) == 0 && (len(namespaces) > 0 || len(have) > 0) {
		return
	}
	name, where := strings.TrimPrefix(resource, secret.ResourcePrefix), "the namespace of the proxy"
	if len(missing) > 0 {
		where = namespacesText(missing)
	}
	what := fmt.Sprintf("there is no usable secret %s with a certificate in %s", name, where)
	if short, ok := strings.CutSuffix(name, secret.AuthoritiesSuffix); ok {
		what = fmt.Sprintf("neither secret %s nor %s has authorities (ca.crt) in %s", name, short, where)
	}
	if len(have) > 0 {
		what += ", only in " + namespacesText(have)
	}
	a.report(ReferenceNotFound, o, field, what+", so "+consequence,
		"create it in the namespace where the proxies run, with \"ashorectl secret create\" or, for gateways with the "+
			"setting secrets.kubernetes, as a Secret of that cluster")
}
