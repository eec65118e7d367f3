package config

import (
	"strconv"
	"strings"

	security "istio.io/api/security/v1beta1"
)

// dryRunAnnotation says of a policy that it is only tried.
const dryRunAnnotation = "istio.io/dry-run"

// validateAuthorizationPolicy checks who may call what. A part that could not be enforced as it was
// meant is refused: left out, it would make the policy weaker.
func validateAuthorizationPolicy(c *checker) {
	p := spec[*security.AuthorizationPolicy](c)
	c.selector(p.Selector)
	c.policyAction(p)
	for i, r := range p.Rules {
		c.policyRule(at("spec.rules", i), r)
	}
}

// policyAction checks what the policy does with what it matches.
func (c *checker) policyAction(p *security.AuthorizationPolicy) {
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

// policyRule checks one rule.
func (c *checker) policyRule(path string, r *security.Rule) {
	for i, f := range r.From {
		c.policySource(at(path+".from", i)+".source", f.GetSource())
	}
	for i, t := range r.To {
		c.policyOperation(at(path+".to", i)+".operation", t.GetOperation())
	}
	for i, w := range r.When {
		c.policyCondition(at(path+".when", i), w)
	}
}

// policySource checks a list of conditions on the caller.
func (c *checker) policySource(path string, s *security.Source) {
	fields := []policyField{
		{"principals", s.GetPrincipals(), s.GetNotPrincipals(), checkPolicyPrincipal},
		{"requestPrincipals", s.GetRequestPrincipals(), s.GetNotRequestPrincipals(), checkPolicyName},
		{"namespaces", s.GetNamespaces(), s.GetNotNamespaces(), checkPolicyNamespace},
		{"serviceAccounts", s.GetServiceAccounts(), s.GetNotServiceAccounts(), checkPolicyAccount},
		{"trustDomains", s.GetTrustDomains(), s.GetNotTrustDomains(), checkPolicyDomain},
		{"ipBlocks", s.GetIpBlocks(), s.GetNotIpBlocks(), checkSubnet},
		{"remoteIpBlocks", s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), checkSubnet},
	}
	c.policyFields(path, "the caller", fields)
	c.suspectValues(path+".principals", s.GetPrincipals(), suspectPrincipal)
	c.suspectValues(path+".notPrincipals", s.GetNotPrincipals(), suspectPrincipal)
	if len(s.GetServiceAccounts())+len(s.GetNotServiceAccounts()) > 0 &&
		len(s.GetPrincipals())+len(s.GetNotPrincipals())+len(s.GetNamespaces())+len(s.GetNotNamespaces()) > 0 {
		c.errorf(path+".serviceAccounts",
			"service accounts do not stand beside principals or namespaces: write all of them as principals, or two rules")
	}
}

// policyOperation checks a list of conditions on what is called.
func (c *checker) policyOperation(path string, o *security.Operation) {
	c.policyFields(path, "what is called", []policyField{
		{"hosts", o.GetHosts(), o.GetNotHosts(), checkPolicyHost},
		{"ports", o.GetPorts(), o.GetNotPorts(), checkPolicyPort},
		{"methods", o.GetMethods(), o.GetNotMethods(), checkPolicyMethod},
		{"paths", o.GetPaths(), o.GetNotPaths(), checkPolicyPath},
	})
	c.suspectValues(path+".paths", o.GetPaths(), suspectPath)
	c.suspectValues(path+".notPaths", o.GetNotPaths(), suspectPath)
}

// policyField is one pair of lists: of what is wanted, and of what is not.
type policyField struct {
	name      string
	want, not []string
	check     func(string) string
}

// policyFields checks the lists of one condition, of which one at least has to be there.
func (c *checker) policyFields(path, about string, fields []policyField) {
	some := false
	for _, f := range fields {
		some = some || len(f.want)+len(f.not) > 0
		c.policyValues(path+"."+f.name, f.want, f.check)
		c.policyValues(path+".not"+strings.ToUpper(f.name[:1])+f.name[1:], f.not, f.check)
	}
	if !some {
		c.errorf(path, "no condition on %s is set: set one, or leave out the whole list, which matches everything",
			about)
	}
}

// policyValues checks one list.
func (c *checker) policyValues(path string, values []string, check func(string) string) {
	for i, v := range values {
		if v == "" {
			c.errorf(at(path, i), "the value is empty, which matches nothing: remove it")
			continue
		}
		c.why(at(path, i), check(v))
	}
}

// suspectValues warns of values that are allowed and most likely a mistake.
func (c *checker) suspectValues(path string, values []string, suspect func(string) string) {
	for i, v := range values {
		if text := suspect(v); text != "" {
			c.warnf(at(path, i), "%s", text)
		}
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
	if check != nil {
		c.policyValues(path+".values", w.GetValues(), check)
		c.policyValues(path+".notValues", w.GetNotValues(), check)
	}
	if w.GetKey() == "source.principal" {
		c.suspectValues(path+".values", w.GetValues(), suspectPrincipal)
		c.suspectValues(path+".notValues", w.GetNotValues(), suspectPrincipal)
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
	return nil, "the attribute " + quote(key) + " is unknown" + meantOrOneOf(key, policyAttributes())
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
	if isAuthority(names[0]) || strings.HasPrefix(names[0], ":") {
		return quote(names[0]) + " is a part of the request: write it as hosts, methods or paths of to.operation"
	}
	return checkHeaderName(names[0])
}
