package authz

import (
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
	who, what := one(p.GetPrincipals(), r.principal), one(p.GetPermissions(), r.permission)
	if what.truth < who.truth {
		return what
	}
	return who
}

// all holds when each of list does. The first that is furthest from it decides.
func all[T any](list []T, test func(T) result) result {
	out := result{truth: yes}
	for i, x := range list {
		if r := test(x); i == 0 || r.truth < out.truth {
			out = r
		}
	}
	return out
}

// one holds when one of list does. The first that is nearest to it decides.
func one[T any](list []T, test func(T) result) result {
	var out result
	for i, x := range list {
		if r := test(x); i == 0 || r.truth > out.truth {
			out = r
		}
	}
	return out
}

// permission evaluates what package gen makes of the operations and conditions of a policy.
func (r Request) permission(p *rbacv3.Permission) result {
	switch p := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return result{truthOf(p.Any), "anything"}
	case *rbacv3.Permission_AndRules:
		return all(p.AndRules.GetRules(), r.permission)
	case *rbacv3.Permission_OrRules:
		return one(p.OrRules.GetRules(), r.permission)
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
		return all(p.AndIds.GetIds(), r.principal)
	case *rbacv3.Principal_OrIds:
		return one(p.OrIds.GetIds(), r.principal)
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
