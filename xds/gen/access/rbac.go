package access

import (
	"strconv"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
)

// dryRunAnnotation says of a policy that it is only tried: what it would do is counted and logged.
const dryRunAnnotation = "istio.io/dry-run"

// rbacScope is what the rules of policies are translated for.
type rbacScope struct {
	// tcp says that connections are judged, of which nothing of HTTP is known.
	tcp bool
	// domains are the mesh's trust domain and its aliases.
	domains []string
}

// rules translates the policies of one action that are enforced, and those that are only tried; nil
// where there are none of them. A policy that is there and has no rule that can match still counts:
// where something is allowed by policies, what none of them allows is refused.
func (s rbacScope) rules(policies *intern.List[*config.Object], action security.AuthorizationPolicy_Action,
	prefix string) (enforced, tried *rbacv3.RBAC) {
	for _, o := range policies.Items() {
		spec, ok := o.Spec.(*security.AuthorizationPolicy)
		if !ok || spec.Action != action {
			continue
		}
		to := &enforced
		if IsDryRun(o) {
			to = &tried
		}
		if *to == nil {
			*to = &rbacv3.RBAC{Action: rbacAction(action), Policies: map[string]*rbacv3.Policy{}}
		}
		for i, r := range spec.Rules {
			if p := s.rule(o.Namespace, action, r); p != nil {
				(*to).Policies[prefix+ruleName(o, i)] = p
			}
		}
	}
	return enforced, tried
}

// ruleName is how a rule is called in statistics and access logs. Source: Istio.
func ruleName(o *config.Object, i int) string {
	return "ns[" + o.Namespace + "]-policy[" + o.Name + "]-rule[" + strconv.Itoa(i) + "]"
}

// IsDryRun says that a policy is only tried. CUSTOM policies are always enforced: whom would one
// ask only to try?
func IsDryRun(o *config.Object) bool {
	on, err := strconv.ParseBool(o.Annotations[dryRunAnnotation])
	return err == nil && on && o.Spec.(*security.AuthorizationPolicy).Action != security.AuthorizationPolicy_CUSTOM
}

// rbacAction is Envoy's name for an action. Who is asked about a request is found by rules that
// would deny it.
func rbacAction(a security.AuthorizationPolicy_Action) rbacv3.RBAC_Action {
	switch a {
	case security.AuthorizationPolicy_ALLOW:
		return rbacv3.RBAC_ALLOW
	case security.AuthorizationPolicy_AUDIT:
		return rbacv3.RBAC_LOG
	default:
		return rbacv3.RBAC_DENY
	}
}

// rule translates one rule of a policy in a namespace; nil: it never matches.
//
// What cannot be told, or was not understood, never makes a policy weaker: a rule that allows is
// left out as a whole, in all others the condition is left out, so that they match more. Source for
// conditions of HTTP on other ports: Istio.
func (s rbacScope) rule(namespace string, action security.AuthorizationPolicy_Action, r *security.Rule) *rbacv3.Policy {
	b := &rbacBuilder{rbacScope: s, namespace: namespace, widen: action != security.AuthorizationPolicy_ALLOW}
	p := b.policy(r)
	if err := p.Validate(); err != nil {
		b.failed = true
		p = &rbacv3.Policy{Permissions: []*rbacv3.Permission{anyPermission()},
			Principals: []*rbacv3.Principal{anyPrincipal()}}
	}
	if b.failed && !b.widen {
		return nil
	}
	return p
}

// rbacBuilder translates one rule.
type rbacBuilder struct {
	rbacScope
	// namespace is that of the policy.
	namespace string
	// widen says that the rule refuses, so that it may match more but never less than was written.
	widen bool
	// failed says that some condition could not be translated.
	failed bool
}

// policy is the rule without the conditions that could not be translated.
func (b *rbacBuilder) policy(r *security.Rule) *rbacv3.Policy {
	if r == nil {
		b.failed = true
	}
	principals, permissions := b.conditions(r.GetWhen())
	p := &rbacv3.Policy{}
	for _, f := range r.GetFrom() {
		p.Principals = append(p.Principals, allPrincipals(append(b.source(f.GetSource()), principals...)))
	}
	if len(p.Principals) == 0 {
		p.Principals = []*rbacv3.Principal{allPrincipals(principals)}
	}
	for _, t := range r.GetTo() {
		p.Permissions = append(p.Permissions, allPermissions(append(b.operation(t.GetOperation()), permissions...)))
	}
	if len(p.Permissions) == 0 {
		p.Permissions = []*rbacv3.Permission{allPermissions(permissions)}
	}
	return p
}

// translator translates one value of a condition; nil: it cannot be translated. With wide the result
// may match more than was written, else it must not.
type translator[T any] func(v string, wide bool) *T

// principals are the conditions that one of values holds and none of notValues.
func (b *rbacBuilder) principals(values, notValues []string,
	translate translator[rbacv3.Principal]) []*rbacv3.Principal {
	var out []*rbacv3.Principal
	if list := translated(b, values, b.widen, translate); len(list) > 0 {
		out = append(out, onePrincipal(list))
	}
	if list := translated(b, notValues, !b.widen, translate); len(list) > 0 {
		out = append(out, &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: onePrincipal(list)}})
	}
	return out
}

// permissions is the same for what is said of the request.
func (b *rbacBuilder) permissions(values, notValues []string,
	translate translator[rbacv3.Permission]) []*rbacv3.Permission {
	var out []*rbacv3.Permission
	if list := translated(b, values, b.widen, translate); len(list) > 0 {
		out = append(out, onePermission(list))
	}
	if list := translated(b, notValues, !b.widen, translate); len(list) > 0 {
		out = append(out, notPermission(onePermission(list)))
	}
	return out
}

// translated are all values, or none of them when one cannot be translated: without that one the
// rest would match less.
func translated[T any](b *rbacBuilder, values []string, wide bool, translate translator[T]) []*T {
	out := []*T{}
	for _, v := range values {
		t := translate(v, wide)
		if t == nil {
			b.failed = true
			return nil
		}
		out = append(out, t)
	}
	return out
}

// httpOnly is translate where requests are judged; connections have nothing of the sort.
func httpOnly[T any](b *rbacBuilder, translate translator[T]) translator[T] {
	if b.tcp {
		return func(string, bool) *T { return nil }
	}
	return translate
}

func anyPrincipal() *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
}

func anyPermission() *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}
}

func allPrincipals(list []*rbacv3.Principal) *rbacv3.Principal {
	if len(list) == 0 {
		return anyPrincipal()
	}
	return joined(list, &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: list}}})
}

func onePrincipal(list []*rbacv3.Principal) *rbacv3.Principal {
	return joined(list, &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: list}}})
}

func allPermissions(list []*rbacv3.Permission) *rbacv3.Permission {
	if len(list) == 0 {
		return anyPermission()
	}
	return joined(list, &rbacv3.Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: list}}})
}

func onePermission(list []*rbacv3.Permission) *rbacv3.Permission {
	return joined(list, &rbacv3.Permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: list}}})
}

// joined is the only item of a list, or whole, which joins several.
func joined[T any](list []T, whole T) T {
	if len(list) == 1 {
		return list[0]
	}
	return whole
}
