package access

import (
	"regexp"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// source are the conditions on who calls, of which each must hold.
func (b *rbacBuilder) source(s *security.Source) []*rbacv3.Principal {
	out := slices.Concat(
		b.principals(s.GetPrincipals(), s.GetNotPrincipals(), b.identity),
		b.principals(s.GetRequestPrincipals(), s.GetNotRequestPrincipals(), httpOnly(b, requestIdentity)),
		b.principals(s.GetNamespaces(), s.GetNotNamespaces(), b.callerNamespace),
		b.principals(s.GetServiceAccounts(), s.GetNotServiceAccounts(), b.serviceAccount),
		b.principals(s.GetTrustDomains(), s.GetNotTrustDomains(), callerDomain),
		b.principals(s.GetIpBlocks(), s.GetNotIpBlocks(), peerAddress),
		b.principals(s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), clientAddress),
	)
	if len(out) == 0 {
		b.failed = true // nothing was asked for, or nothing that can be told
	}
	return out
}

// authenticated is a caller whose certificate names an identity. Without mutual TLS it is nobody.
func authenticated(m *matcherv3.StringMatcher) *rbacv3.Principal {
	if m == nil {
		return nil
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{
		Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m},
	}}
}

// identityScheme begins every identity; policies leave it out.
const identityScheme = "spiffe://"

// identity is a caller by its whole identity, in the mesh's own trust domain or one of its aliases.
// Where the domain is left to a star, it is one of these, or with wide any.
func (b *rbacBuilder) identity(v string, wide bool) *rbacv3.Principal {
	var out []*rbacv3.Principal
	for _, name := range b.aliases(strings.TrimPrefix(v, identityScheme)) {
		p := authenticated(identityMatch(name))
		if p == nil {
			return nil
		}
		if strings.HasPrefix(name, "*") && !wide {
			p = authenticated(envoy.RegexMatch(b.meshPrefix() + ".*"))
			if name != "*" { // with the scheme, because Envoy also tries the DNS names of a certificate
				end := authenticated(envoy.RegexMatch(identityScheme + ".*" + regexp.QuoteMeta(name[1:])))
				p = allPrincipals([]*rbacv3.Principal{p, end})
			}
		}
		out = append(out, p)
	}
	return onePrincipal(out)
}

// meshPrefix is how the identities of the mesh begin, as a regular expression. A gateway may take
// certificates of other authorities too, which say what they like.
func (b *rbacBuilder) meshPrefix() string {
	names := make([]string, len(b.domains))
	for i, d := range b.domains {
		names[i] = regexp.QuoteMeta(d)
	}
	return identityScheme + "(?:" + strings.Join(names, "|") + ")/"
}

// identityMatch is nameMatch for an identity without its scheme.
func identityMatch(v string) *matcherv3.StringMatcher {
	m := nameMatch(v)
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		p.Exact = identityScheme + p.Exact
	case *matcherv3.StringMatcher_Prefix:
		p.Prefix = identityScheme + p.Prefix
	}
	return m
}

// defaultTrustDomain is that of a mesh that names none.
const defaultTrustDomain = "cluster.local"

// aliases are a name in each trust domain of the mesh, when it is in one of them. cluster.local
// stands for the mesh's own in policies that do not know it. Source: Istio, trust domain migration.
func (b *rbacBuilder) aliases(v string) []string {
	domain, rest, ok := strings.Cut(v, "/")
	if !ok || domain != defaultTrustDomain && !slices.Contains(b.domains, domain) {
		return []string{v}
	}
	out := []string{}
	for _, d := range b.domains {
		out = append(out, d+"/"+rest)
	}
	return out
}

// callerNamespace is a caller of the mesh by its namespace; with wide any that names one.
func (b *rbacBuilder) callerNamespace(v string, wide bool) *rbacv3.Principal {
	if v == "" {
		return nil
	}
	before := b.meshPrefix()
	if wide {
		before = ".*/"
	}
	return authenticated(envoy.RegexMatch(before + "ns/" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`,
		"[^/]*") + "/.*"))
}

// serviceAccount is a caller of the mesh by its service account, in the policy's namespace where
// none is named; with wide one of any trust domain.
func (b *rbacBuilder) serviceAccount(v string, wide bool) *rbacv3.Principal {
	namespace, name, ok := strings.Cut(v, "/")
	if !ok {
		namespace, name = b.namespace, v
	}
	if namespace == "" || name == "" || strings.Contains(v, "*") || strings.Contains(name, "/") {
		return nil
	}
	namespace, name = regexp.QuoteMeta(namespace), regexp.QuoteMeta(name)
	if wide {
		return authenticated(envoy.RegexMatch(identityScheme + ".+/ns/" + namespace + "/(.+/|)sa/" + name + "(/.+)?"))
	}
	return authenticated(envoy.RegexMatch(b.meshPrefix() + "ns/" + namespace + "/sa/" + name))
}

// callerDomain is a caller by its trust domain.
func callerDomain(v string, _ bool) *rbacv3.Principal {
	if nameMatch(v) == nil || strings.Contains(v, "/") {
		return nil
	}
	name := strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, "[^/]*")
	if v == "*" {
		name = "[^/]+"
	}
	return authenticated(envoy.RegexMatch(identityScheme + name + "/.*"))
}

// peerAddress is who opened the connection.
func peerAddress(v string, _ bool) *rbacv3.Principal {
	r := subnetMatch(v)
	if r == nil {
		return nil
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: r}}
}

// clientAddress is the client that trusted proxies tell of.
func clientAddress(v string, _ bool) *rbacv3.Principal {
	r := subnetMatch(v)
	if r == nil {
		return nil
	}
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: r}}
}

// requestIdentity is the holder of a token: its issuer, a slash and its subject. Both may have
// slashes of their own: the last one of the value is the one between them, as in Istio, or with
// wide each may be, which is for rules that refuse.
func requestIdentity(v string, wide bool) *rbacv3.Principal {
	if nameMatch(v) == nil {
		return nil
	}
	var out []*rbacv3.Principal
	add := func(issuer, subject string) {
		i, s := textMatch(issuer), textMatch(subject)
		if i != nil && s != nil {
			out = append(out, allPrincipals([]*rbacv3.Principal{claim(envoy.TextValue(i), "iss"),
				claim(envoy.TextValue(s), "sub")}))
		}
	}
	last := strings.LastIndexByte(v, '/')
	if wide || last < 0 {
		switch {
		case strings.HasPrefix(v, "*"):
			add("*", v)
		case strings.HasSuffix(v, "*"):
			add(v, "*")
		}
	}
	for i := range len(v) {
		if v[i] == '/' && (wide || i == last) {
			add(v[:i], v[i+1:])
		}
	}
	if len(out) == 0 {
		return nil
	}
	return onePrincipal(out)
}

// claim is a caller by a claim of its token.
func claim(value *matcherv3.ValueMatcher, path ...string) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_SourcedMetadata{
		SourcedMetadata: &rbacv3.SourcedMetadata{MetadataMatcher: envoy.ClaimMatch(path, value)},
	}}
}
