package authz

import (
	"slices"
	"strconv"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
)

// Verdict is what becomes of a request.
type Verdict string

const (
	Allowed Verdict = "allowed"
	Denied  Verdict = "denied"
	// Depends means that something unknown decides.
	Depends Verdict = "depends"
)

// Decision is what a proxy decides about a request, and why.
type Decision struct {
	Verdict Verdict
	// Reason is one sentence without a final period.
	Reason string
	// Closed means that the connection is closed before there is a request.
	Closed bool
	// Steps are the AuthorizationPolicies of the proxy, in the order in which they decide.
	Steps []Step
}

// Step is one AuthorizationPolicy.
type Step struct {
	Policy *config.Object
	// Action is "ALLOW", "DENY", "AUDIT" or "CUSTOM".
	Action string
	// Rule is the first rule that matches, counted from zero, or else the first that may match; -1:
	// none does.
	Rule int
	// Unsure means that Rule matches only if something unknown holds.
	Unsure bool
	// DryRun means that the policy is only tried.
	DryRun bool
	// Decides means that the verdict is this policy's.
	Decides bool
	// Why is what does not match or is unknown; empty when the rule matches.
	Why string
}

// Judge says what the proxies of a scope decide about a request.
//
// Connections without the right certificate are closed first, as PeerAuthentication says. Then the
// filters decide in their order: revocation, CUSTOM, DENY, ALLOW. A request passes when every
// filter lets it pass.
func Judge(sc *push.Scope, r Request) Decision {
	if r.Port == 0 && r.From == (spiffe.ID{}) && modesByPort(sc) {
		return Decision{Verdict: Depends,
			Reason: "PeerAuthentication has a mode for some ports only, and the port is unknown"}
	}
	note, closed := handshake(sc, &r)
	if closed != "" {
		return Decision{Verdict: Denied, Reason: closed, Closed: true}
	}
	if r.From != (spiffe.ID{}) && r.Revoked != "" {
		return Decision{Verdict: Denied, Reason: r.Revoked + " is revoked"}
	}
	r.Host = normalHost(r.Host)
	written := r.Path
	r.Path = pathOf(r.Path, sc)
	results := evaluate(sc, r)
	d := Decision{Steps: steps(sc, results.rules)}
	d.decide(results)
	if d.Verdict == Depends && written != "" && r.Path == "" {
		d.Reason += "; proxies may rewrite the path: write it as they do"
	}
	if note != "" {
		d.Reason += "; " + note
	}
	return d
}

// handshake says why the connection is closed; empty when it is not. Where mutual TLS is disabled
// the caller has no identity, as note says. Routers take the certificates that their Gateways say.
func handshake(sc *push.Scope, r *Request) (note, closed string) {
	if sc.Type == push.Router {
		return "", ""
	}
	mode, by := sc.PeerModeAt(r.Port)
	domains := sc.Mesh.TrustDomains()
	switch {
	case r.From == (spiffe.ID{}) && mode == push.PeerStrict:
		return "", by.Key.String() + " is STRICT: connections without a certificate of the mesh are closed " +
			"before any policy is checked"
	case r.From == (spiffe.ID{}):
		return "", ""
	case !slices.Contains(domains, r.From.TrustDomain) && mode != push.PeerDisable:
		return "", "certificates of the trust domain " + r.From.TrustDomain + " are refused in the handshake: " +
			"the mesh takes those of " + strings.Join(domains, ", ")
	case slices.Contains(domains, r.From.TrustDomain) && mode == push.PeerDisable:
		r.From = spiffe.ID{}
		return by.Key.String() + " disables mutual TLS, so the caller has no identity", ""
	}
	return "", ""
}

// modesByPort says that proxies of a scope have a mode of mutual TLS for some ports. Routers take
// the certificates that their Gateways say.
func modesByPort(sc *push.Scope) bool {
	return sc.Type != push.Router && slices.ContainsFunc(sc.PeerAuthentication.Items(), func(o *config.Object) bool {
		return len(o.Spec.(*security.PeerAuthentication).GetPortLevelMtls()) > 0
	})
}

// evaluation is the results of the rules that proxies of a scope are sent.
type evaluation struct {
	rules  map[ruleID]result // of policies
	asks   bool              // the provider of CUSTOM policies can be asked
	denied string            // why something else than a policy denies the request; empty: nothing does
}

// evaluate evaluates the rules of all filters.
func evaluate(sc *push.Scope, r Request) evaluation {
	out := evaluation{rules: map[ruleID]result{}}
	add := func(rules *rbacv3.RBAC) {
		for name, p := range rules.GetPolicies() {
			result := r.rule(p)
			if id, ok := parseRule(name); ok {
				out.rules[id] = result
			} else if result.truth == yes && out.denied == "" {
				out.denied = r.denial(name)
			}
		}
	}
	for _, config := range access.Filters(sc, r.TCP) {
		switch m := config.(type) {
		case *httprbacv3.RBAC:
			add(m.ShadowRules)
			add(m.Rules)
		case *networkrbacv3.RBAC:
			add(m.ShadowRules)
			add(m.Rules)
		case *httpauthzv3.ExtAuthz, *networkauthzv3.ExtAuthz:
			out.asks = true
		}
	}
	return out
}

// denial is what a rule says that is of no policy and denies the request.
func (r Request) denial(rule string) string {
	if rule == "revoked-identity" {
		return "the identity " + r.From.String() + " is revoked"
	}
	return "proxies answer 400 to the invalid Host header " + strconv.Quote(r.Host)
}

// ruleID is a rule of an AuthorizationPolicy.
type ruleID struct {
	namespace, policy string
	index             int
}

// parseRule reads the name that package gen gives a rule, "ns[shop]-policy[web]-rule[0]" with other
// text around it. It returns false when the rule is of no policy, such as a revocation.
func parseRule(name string) (ruleID, bool) {
	_, rest, _ := strings.Cut(name, "ns[")
	namespace, rest, _ := strings.Cut(rest, "]-policy[")
	policy, rest, _ := strings.Cut(rest, "]-rule[")
	index, _, _ := strings.Cut(rest, "]")
	i, err := strconv.Atoi(index)
	return ruleID{namespace, policy, i}, err == nil
}

// steps are the policies of a scope with the results of their rules.
func steps(sc *push.Scope, rules map[ruleID]result) []Step {
	var out []Step
	for _, action := range []security.AuthorizationPolicy_Action{
		security.AuthorizationPolicy_CUSTOM, security.AuthorizationPolicy_AUDIT,
		security.AuthorizationPolicy_DENY, security.AuthorizationPolicy_ALLOW,
	} {
		for _, o := range sc.AuthorizationPolicy.Items() {
			if spec, ok := o.Spec.(*security.AuthorizationPolicy); ok && spec.Action == action {
				out = append(out, step(o, spec, rules))
			}
		}
	}
	return out
}

// step is one policy: the first rule that matches, or else the first that may match.
func step(o *config.Object, spec *security.AuthorizationPolicy, rules map[ruleID]result) Step {
	out := Step{Policy: o, Action: spec.Action.String(), Rule: -1, DryRun: access.IsDryRun(o), Why: "it has no rules"}
	for i := range spec.Rules {
		r, sent := rules[ruleID{o.Namespace, o.Name, i}]
		why := r.about + " does not match"
		if !sent {
			why = "it has a condition that does not apply to this kind of request, so it allows nothing"
		}
		switch {
		case r.truth == yes:
			out.Rule, out.Unsure, out.Why = i, false, ""
			return out
		case r.truth == unknown && !out.Unsure:
			out.Rule, out.Unsure, out.Why = i, true, r.about+" is unknown"
		case i == 0:
			out.Why = why
		}
	}
	return out
}

// decide makes the verdict. What denies for sure decides, whatever is unknown of the rest.
func (d *Decision) decide(e evaluation) {
	custom, deny, allow := d.first("CUSTOM"), d.first("DENY"), d.first("ALLOW")
	sure := func(step int) bool { return step >= 0 && !d.Steps[step].Unsure }
	allows := slices.ContainsFunc(d.Steps, func(s Step) bool { return s.Action == "ALLOW" && !s.DryRun })
	switch {
	case e.denied != "":
		d.Verdict, d.Reason = Denied, e.denied
	case sure(custom) && !e.asks:
		d.set(Denied, custom, "the provider of %s cannot be asked, so what it matches is denied")
	case sure(deny):
		d.set(Denied, deny, "%s denies it")
	case allows && allow < 0:
		d.Verdict, d.Reason = Denied, "there are policies that allow, and none of them matches"
	case custom >= 0 && e.asks:
		d.set(Depends, custom, "the provider of %s decides")
	case custom >= 0:
		d.set(Depends, custom, "%s may deny it: "+d.Steps[custom].Why)
	case deny >= 0:
		d.set(Depends, deny, "%s may deny it: "+d.Steps[deny].Why)
	case allow < 0:
		d.Verdict, d.Reason = Allowed, "no policy denies it, and there is none that allows"
	case sure(allow):
		d.set(Allowed, allow, "%s allows it")
	default:
		d.set(Depends, allow, "%s may allow it: "+d.Steps[allow].Why)
	}
}

// first is the step of an action that matches, or else one that may match; -1: there is none.
func (d *Decision) first(action string) int {
	out := -1
	for i, s := range d.Steps {
		if s.Action == action && !s.DryRun && s.Rule >= 0 && (out < 0 || d.Steps[out].Unsure && !s.Unsure) {
			out = i
		}
	}
	return out
}

// set makes the verdict that of a step. In the reason %s is its rule.
func (d *Decision) set(v Verdict, step int, reason string) {
	s := &d.Steps[step]
	s.Decides = true
	rule := "rule " + strconv.Itoa(s.Rule) + " of " + s.Policy.Key.String()
	d.Verdict, d.Reason = v, strings.Replace(reason, "%s", rule, 1)
}
