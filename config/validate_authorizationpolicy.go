package config

import (
	"slices"
	"strconv"
	"strings"

	security "istio.io/api/security/v1beta1"
)

// dryRunAnnotation says of a policy that it is only tried.
const dryRunAnnotation = "istio.io/dry-run"

// authorizationPolicy checks what a policy does with what it matches. A part that could not be
// enforced as it was meant is refused: left out, it would make the policy weaker.
func (c *checker) authorizationPolicy(p *security.AuthorizationPolicy) {
	if p.Action != security.AuthorizationPolicy_ALLOW && len(p.Rules) == 0 {
		c.errorf("spec.rules", "without rules it matches nothing: write rules: [{}] for everything, or remove the policy")
	}
	custom := p.Action == security.AuthorizationPolicy_CUSTOM
	switch {
	case custom && p.GetProvider().GetName() == "":
		c.errorf("spec.provider.name",
			"the provider is missing: write the name of one of the mesh's extensionProviders")
	case !custom && p.GetProvider() != nil:
		c.errorf("spec.provider", "only CUSTOM asks a provider: write action: CUSTOM, or remove the provider")
	}
	for i, r := range p.Rules {
		if p.Action == security.AuthorizationPolicy_DENY && deniesTCP(r) {
			c.warnf(at("spec.rules", i), "raw TCP connections are denied too, because a DENY rule ignores their missing methods, "+
				"paths, hosts and tokens: write the ports of HTTP in to.operation.ports")
		}
	}
	value, ok := c.object.Annotations[dryRunAnnotation]
	if !ok {
		return
	}
	path := entry("metadata.annotations", dryRunAnnotation)
	if on, err := strconv.ParseBool(value); err != nil {
		c.errorf(path, "%s is neither \"true\" nor \"false\"", quote(value))
	} else if on && custom {
		c.unsupported(path, "trying a CUSTOM policy", "remove the annotation, or the policy")
	}
}

// deniesTCP reports whether a rule asks only for what raw TCP connections do not have.
// Source: Istio, pkg/config/validation.
func deniesTCP(r *security.Rule) bool {
	ofPort := func(w *security.Condition) bool { return w.GetKey() == "destination.port" }
	ports := func(to *security.Rule_To) bool { return len(present(to.GetOperation(), "ports", "notPorts")) > 0 }
	caller := func(f *security.Rule_From) bool {
		return len(others(f.GetSource(), "requestPrincipals", "notRequestPrincipals")) > 0
	}
	switch {
	case slices.ContainsFunc(r.GetWhen(), ofPort):
		return false
	case len(r.GetTo()) > 0:
		return !slices.ContainsFunc(r.GetTo(), ports)
	}
	return len(r.GetFrom()) > 0 && !slices.ContainsFunc(r.GetFrom(), caller)
}

// policySource checks a list of conditions on the caller.
func (c *checker) policySource(path string, s *security.Source) {
	if len(others(s)) == 0 {
		c.errorf(path, noCondition, "the caller")
	}
	if len(present(s, "serviceAccounts", "notServiceAccounts")) > 0 &&
		len(present(s, "principals", "notPrincipals", "namespaces", "notNamespaces")) > 0 {
		c.errorf(path+".serviceAccounts",
			"service accounts do not stand beside principals or namespaces: write all of them as principals, or two rules")
	}
}

const noCondition = "no condition on %s is set: set one, or leave out the whole list, which matches everything"

// policyOperation checks a list of conditions on what is called.
func (c *checker) policyOperation(path string, o *security.Operation) {
	if len(others(o)) == 0 {
		c.errorf(path, noCondition, "what is called")
	}
}

// policyValue is the rule for a value that is not empty and that check allows.
func policyValue(check func(string) string) func(string) string {
	return func(v string) string {
		if v == "" {
			return "the value is empty, which matches nothing: remove it"
		}
		return check(v)
	}
}

// policyCondition checks one condition of when.
// Source: istio.io, Authorization Policy Conditions.
func (c *checker) policyCondition(path string, w *security.Condition) {
	check, why := policyAttribute(w.GetKey())
	c.why(path+".key", why)
	if len(w.GetValues())+len(w.GetNotValues()) == 0 {
		c.errorf(path+".values", "neither values nor notValues are set: set one of them")
	}
	c.conditionValues(path+".values", w.GetKey(), w.GetValues(), check)
	c.conditionValues(path+".notValues", w.GetKey(), w.GetNotValues(), check)
}

func (c *checker) conditionValues(path, key string, values []string, check func(string) string) {
	for i, v := range values {
		c.why(at(path, i), policyValue(check)(v))
		if why := suspectPrincipal(v); why != "" && key == "source.principal" {
			c.warnf(at(path, i), "%s", why)
		}
	}
}

// policyAttribute is the rule for the values of an attribute, or what is wrong with its name.
func policyAttribute(key string) (check func(string) string, why string) {
	anything := func(string) string { return "" }
	switch key {
	case "source.ip", "remote.ip", "destination.ip":
		return checkSubnet, ""
	case "source.namespace":
		return checkPolicyNamespace, ""
	case "source.principal":
		return checkPolicyPrincipal, ""
	case "source.serviceaccount", "source.serviceAccount":
		return checkPolicyAccount, ""
	case "source.trustDomain":
		return checkPolicyDomain, ""
	case "request.auth.principal", "connection.sni":
		return checkPolicyName, ""
	case "request.auth.audiences", "request.auth.presenter":
		return anything, ""
	case "destination.port":
		return checkPolicyPort, ""
	}
	for _, prefix := range []string{"request.headers", "request.auth.claims", "experimental.envoy.filters."} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			return anything, checkPolicyKey(key, prefix, rest)
		}
	}
	return anything, "the attribute " + quote(key) + " is unknown" + meantOrOneOf(key, policyAttributes())
}

// policyAttributes are the names that a condition may have.
func policyAttributes() []string {
	return []string{
		"request.headers[NAME]", "source.ip", "remote.ip", "source.namespace", "source.principal", "source.serviceaccount", "source.trustDomain",
		"request.auth.principal", "request.auth.audiences", "request.auth.presenter", "request.auth.claims[NAME]",
		"destination.ip", "destination.port", "connection.sni", "experimental.envoy.filters.FILTER[KEY]",
	}
}

// checkPolicyKey is the rule for attributes with a name in brackets.
func checkPolicyKey(key, prefix, rest string) string {
	if strings.HasPrefix(prefix, "experimental") {
		i := strings.IndexByte(rest, '[')
		if i < 1 {
			return quote(key) + " lacks a key: write experimental.envoy.filters.FILTER[KEY]"
		}
		rest = rest[i:]
	}
	if len(rest) < 3 || rest[0] != '[' || rest[len(rest)-1] != ']' {
		return quote(key) + " lacks a name: write " + prefix + "[NAME]"
	}
	names := strings.Split(rest[1:len(rest)-1], "][")
	for _, n := range names {
		if n == "" || strings.ContainsAny(n, "[]") {
			return quote(key) + " has a bracket too many: write " + prefix + "[NAME]"
		}
	}
	if len(names) > 1 && prefix != "request.auth.claims" {
		return quote(key) + " has two names, it takes one: " + prefix + "[NAME]"
	}
	if prefix != "request.headers" {
		return ""
	}
	switch name := names[0]; {
	case slices.Contains(requestParts(), name):
		return ""
	case isAuthority(name) || strings.HasPrefix(name, ":"):
		return quote(name) + " is a part of the request: write it as hosts, methods or paths of to.operation"
	default:
		return checkHeaderName(name)
	}
}
