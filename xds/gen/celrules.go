package gen

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// celBounds encloses a condition that CEL may not be able to tell: when surely holds, so does the
// condition, and when the condition holds, so does maybe. The zero value is a condition that never
// holds.
type celBounds struct{ surely, maybe celExpr }

// untold is a condition of which CEL knows nothing.
func untold() celBounds { return celBounds{celExpr{op: celFalse}, celExpr{op: celTrue}} }

// told is a condition that CEL can tell.
func told(e celExpr) celBounds { return celBounds{e, e} }

func (b celBounds) not() celBounds { return celBounds{b.maybe.not(), b.surely.not()} }

// joinBounds joins the bounds of several conditions.
func joinBounds[T any](join func([]celExpr) celExpr, list []T, bounds func(T) celBounds) celBounds {
	surely, maybe := make([]celExpr, len(list)), make([]celExpr, len(list))
	for i, x := range list {
		b := bounds(x)
		surely[i], maybe[i] = b.surely, b.maybe
	}
	return celBounds{join(surely), join(maybe)}
}

// surelyDenied are conditions of which each says that rules deny a connection.
func surelyDenied(rules *rbacv3.RBAC) []celExpr {
	var out []celExpr
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		out = append(out, rulesPolicy(rules.Policies[name]).surely)
	}
	return out
}

// surelyNotAllowed is the condition that none of the rules may allow a connection; none without
// rules.
func surelyNotAllowed(rules *rbacv3.RBAC) []celExpr {
	if rules == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(rules.Policies))
	allowed := joinBounds(one, names, func(name string) celBounds { return rulesPolicy(rules.Policies[name]) })
	return []celExpr{allowed.maybe.not()}
}

// rulesPolicy bounds that a policy of RBAC matches.
func rulesPolicy(p *rbacv3.Policy) celBounds {
	parts := []celBounds{joinBounds(one, p.Permissions, permissionBounds),
		joinBounds(one, p.Principals, principalBounds)}
	if p.Condition != nil || p.CheckedCondition != nil {
		parts = append(parts, untold())
	}
	return joinBounds(all, parts, func(b celBounds) celBounds { return b })
}

func principalBounds(p *rbacv3.Principal) celBounds {
	switch p := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return told(celExpr{op: celTrue})
	case *rbacv3.Principal_AndIds:
		return joinBounds(all, p.AndIds.Ids, principalBounds)
	case *rbacv3.Principal_OrIds:
		return joinBounds(one, p.OrIds.Ids, principalBounds)
	case *rbacv3.Principal_NotId:
		return principalBounds(p.NotId).not()
	case *rbacv3.Principal_DirectRemoteIp:
		return subnetBounds(callerAddress, p.DirectRemoteIp)
	case *rbacv3.Principal_RemoteIp:
		return subnetBounds(callerAddress, p.RemoteIp)
	case *rbacv3.Principal_Authenticated_:
		b := textBounds(callerIdentity, p.Authenticated.GetPrincipalName())
		return celBounds{callerWith(b.surely), callerWith(b.maybe)}
	}
	return untold()
}

func permissionBounds(p *rbacv3.Permission) celBounds {
	switch p := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return told(celExpr{op: celTrue})
	case *rbacv3.Permission_AndRules:
		return joinBounds(all, p.AndRules.Rules, permissionBounds)
	case *rbacv3.Permission_OrRules:
		return joinBounds(one, p.OrRules.Rules, permissionBounds)
	case *rbacv3.Permission_NotRule:
		return permissionBounds(p.NotRule).not()
	case *rbacv3.Permission_DestinationPort:
		return told(celExpr{op: celPort, attribute: calledPort, number: int(p.DestinationPort)})
	case *rbacv3.Permission_DestinationIp:
		return subnetBounds(calledAddress, p.DestinationIp)
	case *rbacv3.Permission_RequestedServerName:
		return textBounds(calledName, p.RequestedServerName)
	}
	return untold()
}

// textBounds bounds that an attribute matches.
func textBounds(attribute string, m *matcherv3.StringMatcher) celBounds {
	if m.GetIgnoreCase() {
		return untold()
	}
	text := func(op celOp, v string) celBounds {
		if !isPlain(v) {
			return untold()
		}
		return told(celExpr{op: op, attribute: attribute, values: []string{v}})
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return text(celIn, p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return text(celStarts, p.Prefix)
	case *matcherv3.StringMatcher_Suffix:
		return text(celEnds, p.Suffix)
	case *matcherv3.StringMatcher_Contains:
		return text(celHas, p.Contains)
	case *matcherv3.StringMatcher_SafeRegex:
		return joinBounds(one, shapesOf(p.SafeRegex.GetRegex()),
			func(s textShape) celBounds { return s.bounds(attribute) })
	}
	return untold()
}

// subnetBounds bounds that the address of an attribute is in a subnet. CEL has addresses as texts:
// a subnet that ends within a number cannot be told, nor can those of IPv6, which are written in
// several ways.
func subnetBounds(attribute string, r *corev3.CidrRange) celBounds {
	ip, err := netip.ParseAddr(r.GetAddressPrefix())
	bits := int(r.GetPrefixLen().GetValue())
	if err != nil || !ip.Is4() || bits%8 != 0 || bits == 0 {
		return untold()
	}
	var before strings.Builder
	octets := ip.As4()
	for _, o := range octets[:bits/8] {
		before.WriteString(strconv.Itoa(int(o)) + ".")
	}
	text := before.String()
	if bits == ip.BitLen() {
		text = ip.String() + ":"
	}
	return told(celExpr{op: celStarts, attribute: attribute, values: []string{text}})
}
