package authz

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// result is whether a condition holds, and the part of it that decides: "the path".
type result struct {
	truth
	about string
}

// rule says whether a request matches one policy of an RBAC filter, which is one rule of an
// AuthorizationPolicy.
func (r Request) rule(p *rbacv3.Policy) result {
	if p.GetCondition() != nil || p.GetCheckedCondition() != nil {
		return result{no, "the certificate"} // of a list of revoked ones
	}
	return all([]result{
		one(each(p.GetPrincipals(), r.principal)),
		one(each(p.GetPermissions(), r.permission)),
	})
}

func each[T any](list []T, test func(T) result) []result {
	out := make([]result, len(list))
	for i, x := range list {
		out[i] = test(x)
	}
	return out
}

// all holds when each of list does. The first that is furthest from it decides.
func all(list []result) result {
	if len(list) == 0 {
		return result{truth: yes}
	}
	return slices.MinFunc(list, func(a, b result) int { return int(a.truth) - int(b.truth) })
}

// one holds when one of list does. The first that is nearest to it decides.
func one(list []result) result {
	if len(list) == 0 {
		return result{truth: no}
	}
	return slices.MaxFunc(list, func(a, b result) int { return int(a.truth) - int(b.truth) })
}

// permission evaluates what package gen makes of the operations and conditions of a policy.
func (r Request) permission(p *rbacv3.Permission) result {
	switch p := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return result{truthOf(p.Any), "anything"}
	case *rbacv3.Permission_AndRules:
		return all(each(p.AndRules.GetRules(), r.permission))
	case *rbacv3.Permission_OrRules:
		return one(each(p.OrRules.GetRules(), r.permission))
	case *rbacv3.Permission_NotRule:
		inner := r.permission(p.NotRule)
		return result{inner.not(), inner.about}
	case *rbacv3.Permission_Header:
		return r.header(p.Header)
	case *rbacv3.Permission_UrlPath:
		return result{matchText(p.UrlPath.GetPath(), r.urlPath()), "the path"}
	case *rbacv3.Permission_UriTemplate:
		return result{matchTemplate(p.UriTemplate, r.urlPath()), "the path"}
	case *rbacv3.Permission_DestinationIp:
		return result{matchSubnet(p.DestinationIp, r.Destination), "the destination address"}
	case *rbacv3.Permission_DestinationPort:
		t := unknown
		if r.Port != 0 {
			t = truthOf(r.Port == p.DestinationPort)
		}
		return result{t, "the port"}
	case *rbacv3.Permission_RequestedServerName:
		return result{unknown, "the SNI"}
	case *rbacv3.Permission_SourcedMetadata:
		return result{unknown, "the metadata of a filter"}
	}
	return result{unknown, "a condition that explain does not know"}
}

// principal evaluates what package gen makes of the sources and conditions of a policy.
func (r Request) principal(p *rbacv3.Principal) result {
	switch p := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return result{truthOf(p.Any), "anybody"}
	case *rbacv3.Principal_AndIds:
		return all(each(p.AndIds.GetIds(), r.principal))
	case *rbacv3.Principal_OrIds:
		return one(each(p.OrIds.GetIds(), r.principal))
	case *rbacv3.Principal_NotId:
		inner := r.principal(p.NotId)
		return result{inner.not(), inner.about}
	case *rbacv3.Principal_Authenticated_:
		return result{r.authenticated(p.Authenticated.GetPrincipalName()), "the caller's identity"}
	case *rbacv3.Principal_Header:
		return r.header(p.Header)
	case *rbacv3.Principal_DirectRemoteIp:
		return result{unknown, "the source address"}
	case *rbacv3.Principal_RemoteIp:
		return result{unknown, "the client address"}
	case *rbacv3.Principal_SourcedMetadata:
		path := p.SourcedMetadata.GetMetadataMatcher().GetPath()
		return result{unknown, "the claim " + path[len(path)-1].GetKey() + " of the token"}
	}
	return result{unknown, "a condition that explain does not know"}
}

// authenticated compares the caller's identity. A caller without a certificate has none.
func (r Request) authenticated(m *matcherv3.StringMatcher) truth {
	if r.From == (spiffe.ID{}) {
		return no
	}
	return matchText(m, r.From.String())
}
