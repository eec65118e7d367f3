package authz

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
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

// Filters are the authorization filters that proxies of a scope have for requests, or for
// connections, by name and in their order: xds/gen/access.Filters.
type Filters func(sc *push.Scope, connections bool) iter.Seq2[string, proto.Message]

// Judge says what the proxies of a scope decide about a request.
//
// Connections without the right certificate are closed first, as PeerAuthentication says. Then the
// filters decide in their order: revocation, CUSTOM, DENY, ALLOW. A request passes when every
// filter lets it pass.
func Judge(sc *push.Scope, generated Filters, r Request) Decision {
	if r.Port == 0 && r.From == (spiffe.ID{}) && modesByPort(sc) {
		return Decision{Verdict: Depends,
			Reason: "PeerAuthentication has a mode for some ports only, and the port is unknown"}
	}
	note, closed := handshake(sc, &r)
	if closed != "" {
		return Decision{Verdict: Denied, Reason: closed}
	}
	if r.From != (spiffe.ID{}) && r.Revoked != "" {
		return Decision{Verdict: Denied, Reason: r.Revoked + " is revoked"}
	}
	r.Host = normalHost(r.Host)
	written := r.Path
	r.Path = normalPath(r.Path, sc.Mesh.Config.GetPathNormalization().GetNormalization())
	d := Decision{}
	filters := evaluate(r, generated(sc, r.TCP))
	d.Steps = steps(sc, filters)
	d.decide(r, filters)
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

// filter is one filter with the results of its rules by name.
type filter struct {
	name   string
	rules  *rbacv3.RBAC // nil: it lets all pass
	asks   bool         // it asks the provider of CUSTOM policies
	result map[string]result
	shadow map[string]result // of rules that only mark a request
}

// evaluate evaluates the rules of all filters.
func evaluate(r Request, list iter.Seq2[string, proto.Message]) []filter {
	results := func(rules *rbacv3.RBAC) map[string]result {
		out := map[string]result{}
		for name, p := range rules.GetPolicies() {
			out[name] = r.rule(p)
		}
		return out
	}
	var out []filter
	for name, config := range list {
		switch m := config.(type) {
		case *httprbacv3.RBAC:
			out = append(out, filter{name, m.Rules, false, results(m.Rules), results(m.ShadowRules)})
		case *networkrbacv3.RBAC:
			out = append(out, filter{name, m.Rules, false, results(m.Rules), results(m.ShadowRules)})
		case *httpauthzv3.ExtAuthz, *networkauthzv3.ExtAuthz:
			out = append(out, filter{name: name, asks: true})
		}
	}
	return out
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
func steps(sc *push.Scope, filters []filter) []Step {
	results, tried := map[ruleID]result{}, map[ruleID]bool{}
	for _, f := range filters {
		for name, r := range f.shadow {
			if id, ok := parseRule(name); ok {
				results[id], tried[id] = r, true
			}
		}
		for name, r := range f.result {
			if id, ok := parseRule(name); ok {
				results[id] = r
			}
		}
	}
	var out []Step
	for _, action := range []security.AuthorizationPolicy_Action{
		security.AuthorizationPolicy_CUSTOM, security.AuthorizationPolicy_AUDIT,
		security.AuthorizationPolicy_DENY, security.AuthorizationPolicy_ALLOW,
	} {
		for _, o := range sc.AuthorizationPolicy.Items() {
			if spec, ok := o.Spec.(*security.AuthorizationPolicy); ok && spec.Action == action {
				out = append(out, step(o, spec, results, tried))
			}
		}
	}
	return out
}

// step is one policy: the first rule that matches, or else the first that may match.
func step(o *config.Object, spec *security.AuthorizationPolicy, results map[ruleID]result, tried map[ruleID]bool) Step {
	out := Step{Policy: o, Action: spec.Action.String(), Rule: -1, Why: "it has no rules"}
	for i := range spec.Rules {
		id := ruleID{o.Namespace, o.Name, i}
		r, sent := results[id]
		if tried[id] && spec.Action != security.AuthorizationPolicy_CUSTOM { // CUSTOM rules only mark a request
			out.DryRun = true
		}
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

// decide makes the verdict. A filter that denies for sure decides, whatever is unknown in the
// others.
func (d *Decision) decide(r Request, filters []filter) {
	custom := d.first("CUSTOM")
	allow := d.first("ALLOW")
	maybe := -1
	asked := false
	for _, f := range filters {
		asked = asked || f.asks
		if f.rules == nil || f.name == "ashore.bad_host" && r.Host == "" {
			continue
		}
		name, t := strongest(f.result)
		switch {
		case f.rules.Action == rbacv3.RBAC_DENY && t == yes:
			d.deny(r, name)
			return
		case f.rules.Action == rbacv3.RBAC_DENY && t == unknown:
			maybe = d.find(name)
		case f.rules.Action == rbacv3.RBAC_ALLOW && t == no:
			d.Verdict, d.Reason = Denied, "there are policies that allow, and none of them matches"
			return
		}
	}
	switch {
	case asked && custom >= 0:
		d.set(Depends, custom, "the provider of "+d.Steps[custom].name()+" decides")
	case maybe >= 0:
		d.set(Depends, maybe, d.Steps[maybe].name()+" may deny it: "+d.Steps[maybe].Why)
	case allow < 0:
		d.Verdict, d.Reason = Allowed, "no policy denies it, and there is none that allows"
	case d.Steps[allow].Unsure:
		d.set(Depends, allow, d.Steps[allow].name()+" may allow it: "+d.Steps[allow].Why)
	default:
		d.set(Allowed, allow, d.Steps[allow].name()+" allows it")
	}
}

// strongest is the rule that is nearest to a match, the first by name, and its result.
func strongest(rules map[string]result) (name string, t truth) {
	for n, r := range rules {
		if r.truth > t || r.truth == t && (name == "" || n < name) {
			name, t = n, r.truth
		}
	}
	return name, t
}

// deny makes the verdict of a rule that denies.
func (d *Decision) deny(r Request, rule string) {
	i := d.find(rule)
	switch {
	case i >= 0 && d.Steps[i].Action == "CUSTOM":
		d.set(Denied, i, "the provider of "+d.Steps[i].name()+" cannot be asked, so what it matches is denied")
	case i >= 0:
		d.set(Denied, i, d.Steps[i].name()+" denies it")
	case rule == "revoked-identity":
		d.Verdict, d.Reason = Denied, "the identity "+r.From.String()+" is revoked"
	default:
		d.Verdict, d.Reason = Denied, "proxies answer 400 to the invalid Host header "+strconv.Quote(r.Host)
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

// find is the step of a rule's policy; -1: it is of none.
func (d *Decision) find(rule string) int {
	id, _ := parseRule(rule)
	return slices.IndexFunc(d.Steps, func(s Step) bool {
		return s.Policy.Namespace == id.namespace && s.Policy.Name == id.policy
	})
}

func (d *Decision) set(v Verdict, step int, reason string) {
	d.Verdict, d.Reason, d.Steps[step].Decides = v, reason, true
}

// name is a step's rule in a sentence.
func (s Step) name() string { return "rule " + strconv.Itoa(s.Rule) + " of " + s.Policy.Key.String() }
