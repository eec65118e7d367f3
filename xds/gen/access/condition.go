package access

import (
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// conditions are those of when, of which each must hold. Source: istio.io, Authorization Policy
// Conditions.
func (b *rbacBuilder) conditions(when []*security.Condition) (principals []*rbacv3.Principal,
	permissions []*rbacv3.Permission) {
	for _, c := range when {
		if len(c.GetValues())+len(c.GetNotValues()) == 0 {
			b.failed = true
			continue
		}
		switch ofCaller, ofRequest := b.principalOf(c.GetKey()), b.permissionOf(c.GetKey()); {
		case ofCaller != nil:
			principals = append(principals, b.principals(c.Values, c.NotValues, ofCaller)...)
		case ofRequest != nil:
			permissions = append(permissions, b.permissions(c.Values, c.NotValues, ofRequest)...)
		default:
			b.failed = true
		}
	}
	return principals, permissions
}

// principalOf translates values of an attribute of the caller; nil: it is none.
func (b *rbacBuilder) principalOf(key string) translator[rbacv3.Principal] {
	switch key {
	case "source.ip":
		return peerAddress
	case "remote.ip":
		return clientAddress
	case "source.namespace":
		return b.callerNamespace
	case "source.principal":
		return b.identity
	case "source.serviceaccount", "source.serviceAccount":
		return b.serviceAccount
	case "source.trustDomain":
		return callerDomain
	case "request.auth.principal":
		return httpOnly(b, requestIdentity)
	case "request.auth.audiences":
		return httpOnly(b, claimPrincipal("aud"))
	case "request.auth.presenter":
		return httpOnly(b, claimPrincipal("azp"))
	}
	if names, ok := bracketed(key, "request.headers"); ok && len(names) == 1 {
		return httpOnly(b, headerPrincipal(names[0]))
	}
	if names, ok := bracketed(key, "request.auth.claims"); ok {
		return httpOnly(b, claimPrincipal(names...))
	}
	return nil
}

// permissionOf translates values of an attribute of the request; nil: it is none.
func (b *rbacBuilder) permissionOf(key string) translator[rbacv3.Permission] {
	switch key {
	case "destination.ip":
		return destinationAddress
	case "destination.port":
		return portPermission
	case "connection.sni":
		return serverNamePermission
	}
	if filter, ok := strings.CutPrefix(key, "experimental.envoy.filters."); ok {
		i := strings.IndexByte(filter, '[')
		if names, ok := bracketed(filter, filter[:max(i, 0)]); ok && len(names) == 1 {
			return metadataPermission("envoy.filters."+filter[:i], names[0])
		}
	}
	return nil
}

// bracketed reads the names of "before[a][b]", and says whether key has that form.
func bracketed(key, before string) ([]string, bool) {
	rest, ok := strings.CutPrefix(key, before)
	if !ok || before == "" || !strings.HasPrefix(rest, "[") || !strings.HasSuffix(rest, "]") {
		return nil, false
	}
	names := strings.Split(rest[1:len(rest)-1], "][")
	for _, n := range names {
		if n == "" || strings.ContainsAny(n, "[]") {
			return nil, false
		}
	}
	return names, true
}

// metadataPermission is a request by what a filter of Envoy's found: a text, or with "[x]" a list
// that has x.
func metadataPermission(filter, key string) translator[rbacv3.Permission] {
	return func(v string, _ bool) *rbacv3.Permission {
		inner, isList := v, strings.HasPrefix(v, "[") && strings.HasSuffix(v, "]")
		if isList {
			inner = strings.TrimSuffix(v[1:], "]")
		}
		m := textMatch(inner)
		if m == nil {
			return nil
		}
		value := envoy.TextValue(m)
		if isList {
			value = envoy.ListValue(value)
		}
		return &rbacv3.Permission{Rule: &rbacv3.Permission_SourcedMetadata{
			SourcedMetadata: &rbacv3.SourcedMetadata{MetadataMatcher: envoy.MetadataMatch(filter, []string{key}, value)},
		}}
	}
}
