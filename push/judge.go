package push

import (
	"slices"
	"strconv"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// Verdict is what policies say of a call.
type Verdict string

const (
	Allowed Verdict = "allowed"
	Denied  Verdict = "denied"
	// Depends says that something decides that is not known here.
	Depends Verdict = "depends"
)

// Judgement is what the policies of a workload say of a call, and why.
type Judgement struct {
	Verdict Verdict
	// Reason is why, in a sentence without a final period.
	Reason string
	// Path is the call's as proxies compare it; empty: it is not known, or no policy was asked.
	Path string
	// Steps are the policies that were looked at, in the order in which they decide.
	Steps []JudgedPolicy
}

// JudgedPolicy is one policy and what it says.
type JudgedPolicy struct {
	Policy *config.Object
	// Action is "ALLOW", "DENY", "AUDIT" or "CUSTOM".
	Action string
	// Rule is the first one that matches, counted from zero; -1: none does.
	Rule int
	// Unsure says that Rule would match if something held that is not known.
	Unsure bool
	// DryRun says that the policy is only tried.
	DryRun bool
	// Decides says that the verdict is this policy's.
	Decides bool
	// Why is the condition that does not hold, or is not known; empty when the rule matches.
	Why string
}

// Judge says what the policies of a scope say of a call. It changes nothing and asks nobody.
//
// Source: istio.io, "Implicit enablement": what PeerAuthentication refuses does not become a call; then revocations, then
// CUSTOM, DENY and ALLOW; where a policy allows, what none of them allows is denied.
func (sc *Scope) Judge(call Call) Judgement {
	domains := sc.trustDomains()
	peers := sc.judgePeer(&call, domains)
	if peers.verdict == Denied {
		return Judgement{Verdict: Denied, Reason: peers.reason}
	}
	if sc.Trust != nil && call.From != (spiffe.ID{}) && slices.Contains(sc.Trust.Identities, call.From.String()) {
		return Judgement{Verdict: Denied, Reason: "the identity " + call.From.String() + " is revoked"}
	}
	if sc.Trust != nil && call.Certificate != "" && slices.Contains(sc.Trust.Certificates, call.Certificate) {
		return Judgement{Verdict: Denied, Reason: "the certificate of " + call.From.String() + " is revoked"}
	}
	if call.From != (spiffe.ID{}) && call.Revoked != "" {
		return Judgement{Verdict: Denied, Reason: call.Revoked + " is revoked"}
	}
	call.Host = normalHost(call.Host)
	if !call.TCP && call.Host != "" && !isValidHost(call.Host) {
		return Judgement{Verdict: Denied, Reason: "proxies answer 400 to the invalid Host header " + strconv.Quote(call.Host)}
	}
	call.Path = normalPath(call.Path, sc.Mesh.Config.GetPathNormalization().GetNormalization())
	out := Judgement{Path: call.Path}
	for _, action := range []security.AuthorizationPolicy_Action{
		security.AuthorizationPolicy_CUSTOM, security.AuthorizationPolicy_AUDIT, security.AuthorizationPolicy_DENY, security.AuthorizationPolicy_ALLOW,
	} {
		for _, o := range sc.AuthorizationPolicy.Items() {
			if spec, ok := o.Spec.(*security.AuthorizationPolicy); ok && spec.Action == action {
				out.Steps = append(out.Steps, judgePolicy(o, spec, call, domains))
			}
		}
	}
	out.decide(sc, call)
	peers.amend(&out)
	return out
}

// judgePolicy finds the rule of a policy that matches, or else the first that may match.
func judgePolicy(o *config.Object, spec *security.AuthorizationPolicy, call Call, domains []string) JudgedPolicy {
	custom, allow := spec.Action == security.AuthorizationPolicy_CUSTOM, spec.Action == security.AuthorizationPolicy_ALLOW
	on, err := strconv.ParseBool(o.Annotations["istio.io/dry-run"])
	out := JudgedPolicy{Policy: o, Action: spec.Action.String(), Rule: -1, DryRun: err == nil && on && !custom}
	j := &ruleJudge{call: call, domains: domains, namespace: o.Namespace, widen: !allow}
	for i, r := range spec.Rules {
		switch t := j.rule(r); {
		case t == yes:
			out.Rule, out.Unsure, out.Why = i, false, ""
			return out
		case t == unsure && !out.Unsure:
			out.Rule, out.Unsure, out.Why = i, true, "it is not known whether "+j.why+" holds"
		case out.Why == "" && j.odd && allow:
			out.Why = "it has a condition that cannot be told of this call, and so allows none"
		case out.Why == "":
			out.Why = j.why + " does not hold"
		}
	}
	if len(spec.Rules) == 0 {
		out.Why = "it has no rules"
	}
	return out
}

// decide makes the verdict of the steps.
func (j *Judgement) decide(sc *Scope, call Call) {
	maybe, asked := -1, -1 // steps that decide if something holds that is not known, and whose provider decides
	allowed, allows := -1, false
	for i := range j.Steps {
		s := &j.Steps[i]
		if s.DryRun {
			continue
		}
		switch s.Action {
		case "CUSTOM":
			if s.Rule >= 0 && !s.Unsure && !sc.canAsk(call) {
				j.set(Denied, i, "nobody can be asked about what "+s.name()+" matches")
				return
			}
			if s.Rule >= 0 && asked < 0 {
				asked = i
			}
		case "DENY":
			if s.Rule >= 0 && !s.Unsure {
				j.set(Denied, i, s.name()+" denies it")
				return
			}
			if s.Rule >= 0 && maybe < 0 {
				maybe = i
			}
		case "ALLOW":
			allows = true
			if s.Rule >= 0 && (allowed < 0 || j.Steps[allowed].Unsure && !s.Unsure) {
				allowed = i
			}
		}
	}
	switch {
	case allows && allowed < 0:
		j.Verdict, j.Reason = Denied, "there are policies that allow, and none of them matches"
	case asked >= 0:
		j.set(Depends, asked, "the provider of "+j.Steps[asked].name()+" decides")
	case maybe >= 0:
		j.set(Depends, maybe, j.Steps[maybe].name()+" may deny it: "+j.Steps[maybe].Why)
	case allows && j.Steps[allowed].Unsure:
		j.set(Depends, allowed, j.Steps[allowed].name()+" may allow it: "+j.Steps[allowed].Why)
	case allows:
		j.set(Allowed, allowed, j.Steps[allowed].name()+" allows it")
	default:
		j.Verdict, j.Reason = Allowed, "no policy denies it, and there is none that allows"
	}
}

func (j *Judgement) set(v Verdict, step int, reason string) {
	j.Verdict, j.Reason, j.Steps[step].Decides = v, reason, true
}

// name is how a step's rule is called in a sentence.
func (s *JudgedPolicy) name() string {
	return "rule " + strconv.Itoa(s.Rule) + " of " + s.Policy.Key.String()
}

// canAsk says whether the provider of the CUSTOM policies can be asked about a call.
func (sc *Scope) canAsk(call Call) bool {
	p := AskedProvider(sc.Mesh.Config, sc.AuthorizationPolicy)
	if p == nil || call.TCP && p.GetEnvoyExtAuthzGrpc() == nil {
		return false
	}
	namespace, host, port := ProviderService(p)
	d, ok := sc.Destinations.Get(host)
	if !ok || namespace != "" && d.Service.Namespace != namespace {
		return false
	}
	for _, has := range d.Service.Ports {
		if has.Number == port {
			return true
		}
	}
	return false
}
