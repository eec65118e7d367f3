package gen

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// rbacModel does with a call what Envoy's RBAC filters do. Only what is known of a call may be asked.
type rbacModel struct {
	t    testing.TB
	call push.Call
}

// passes says whether the filters of a set let the call through; asks says that its provider would be asked.
func (m rbacModel) passes(filters map[string]judgeFilter) (passes, asks bool) {
	suffix := ""
	if m.call.TCP {
		suffix = ofConnections
	}
	for _, name := range []string{filterRevoked, filterCustom, filterAsk, filterAudit, filterDeny, filterAllow} {
		rules, shadow := filters[name+suffix].rules, filters[name+suffix].shadow
		if name == filterCustom {
			_, refuses := filters[filterAsk+suffix] // it has rules: it asks nobody
			asks = !refuses && shadow != nil && m.matches(shadow)
		}
		if rules == nil || rules.Action == rbacv3.RBAC_LOG {
			continue
		}
		if m.matches(rules) != (rules.Action == rbacv3.RBAC_ALLOW) {
			return false, asks
		}
	}
	return true, asks
}

// judgeFilter is a filter of rules.
type judgeFilter struct{ rules, shadow *rbacv3.RBAC }

// judgeFilters reads those of a set.
func judgeFilters(t testing.TB, set resource.Set) map[string]judgeFilter {
	t.Helper()
	out := map[string]judgeFilter{}
	for name, f := range decoded[*corev3.TypedExtensionConfig](t, set) {
		http, network := &httprbacv3.RBAC{}, &networkrbacv3.RBAC{}
		switch a := f.TypedConfig; {
		case a.MessageIs(http) && a.UnmarshalTo(http) == nil:
			out[name] = judgeFilter{http.Rules, http.ShadowRules}
		case a.MessageIs(network) && a.UnmarshalTo(network) == nil:
			out[name] = judgeFilter{network.Rules, network.ShadowRules}
		}
	}
	return out
}

func (m rbacModel) matches(r *rbacv3.RBAC) bool {
	for _, p := range r.Policies {
		if slices.ContainsFunc(p.Permissions, m.permission) && slices.ContainsFunc(p.Principals, m.principal) && p.Condition == nil {
			return true
		}
	}
	return false
}

func (m rbacModel) permission(p *rbacv3.Permission) bool {
	switch r := p.Rule.(type) {
	case *rbacv3.Permission_Any:
		return r.Any
	case *rbacv3.Permission_AndRules:
		return !slices.ContainsFunc(r.AndRules.Rules, func(p *rbacv3.Permission) bool { return !m.permission(p) })
	case *rbacv3.Permission_OrRules:
		return slices.ContainsFunc(r.OrRules.Rules, m.permission)
	case *rbacv3.Permission_NotRule:
		return !m.permission(r.NotRule)
	case *rbacv3.Permission_Header:
		return m.header(r.Header)
	case *rbacv3.Permission_UrlPath:
		return text(r.UrlPath.GetPath(), m.path())
	case *rbacv3.Permission_UriTemplate:
		c := &uritemplatev3.UriTemplateMatchConfig{}
		if err := r.UriTemplate.TypedConfig.UnmarshalTo(c); err != nil {
			m.t.Fatal(err)
		}
		return template(c.PathTemplate, m.path())
	case *rbacv3.Permission_DestinationIp:
		return subnet(r.DestinationIp).Contains(m.call.Destination)
	case *rbacv3.Permission_DestinationPort:
		return r.DestinationPort == m.call.Port
	case *rbacv3.Permission_RequestedServerName:
		return text(r.RequestedServerName, m.call.ServerName)
	case *rbacv3.Permission_SourcedMetadata:
		return false // no filter of these tests leaves any
	}
	m.t.Fatalf("cannot judge %v", p)
	return false
}

func (m rbacModel) principal(p *rbacv3.Principal) bool {
	switch r := p.Identifier.(type) {
	case *rbacv3.Principal_Any:
		return r.Any
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(r.AndIds.Ids, func(p *rbacv3.Principal) bool { return !m.principal(p) })
	case *rbacv3.Principal_OrIds:
		return slices.ContainsFunc(r.OrIds.Ids, m.principal)
	case *rbacv3.Principal_NotId:
		return !m.principal(r.NotId)
	case *rbacv3.Principal_Authenticated_:
		return m.call.From != (spiffe.ID{}) && text(r.Authenticated.PrincipalName, m.call.From.String())
	case *rbacv3.Principal_Header:
		return m.header(r.Header)
	case *rbacv3.Principal_DirectRemoteIp:
		return subnet(r.DirectRemoteIp).Contains(m.call.Source)
	case *rbacv3.Principal_RemoteIp:
		return subnet(r.RemoteIp).Contains(m.call.Remote)
	case *rbacv3.Principal_SourcedMetadata:
		return m.claim(r.SourcedMetadata.MetadataMatcher)
	}
	m.t.Fatalf("cannot judge %v", p)
	return false
}

// header judges a header, of which one is enough; one that is there and empty is there.
func (m rbacModel) header(h *routev3.HeaderMatcher) bool {
	if m.call.TCP {
		m.t.Errorf("a filter of connections asks for the header %s: Envoy refuses it", h.Name)
		return false
	}
	have := m.call.Headers[h.Name]
	switch h.Name {
	case ":authority":
		have = []string{strings.TrimSuffix(m.call.Host, ".")} // Envoy takes the dot off first
	case ":method":
		have = []string{m.call.Method}
	}
	if h.GetPresentMatch() {
		return len(have) > 0
	}
	return slices.ContainsFunc(have, func(one string) bool { return text(h.GetStringMatch(), one) })
}

func (m rbacModel) path() string {
	if m.call.TCP {
		m.t.Error("a filter of connections asks for a path")
	}
	path, _, _ := strings.Cut(m.call.Path, "?")
	return path
}

// claim judges a claim: a text when it has one value, else a list.
func (m rbacModel) claim(c *matcherv3.MetadataMatcher) bool {
	if c.Filter != jwtFilter || c.Path[0].GetKey() != jwtPayload || m.call.TCP {
		m.t.Fatalf("cannot judge %v", c)
	}
	var names []string
	for _, p := range c.Path[1:] {
		names = append(names, p.GetKey())
	}
	have := m.call.Claims[strings.Join(names, "][")]
	var judge func(v *matcherv3.ValueMatcher) bool
	judge = func(v *matcherv3.ValueMatcher) bool {
		switch p := v.MatchPattern.(type) {
		case *matcherv3.ValueMatcher_StringMatch:
			return len(have) == 1 && text(p.StringMatch, have[0])
		case *matcherv3.ValueMatcher_ListMatch:
			one, isText := p.ListMatch.GetOneOf().MatchPattern.(*matcherv3.ValueMatcher_StringMatch)
			return isText && len(have) > 1 && slices.ContainsFunc(have, func(h string) bool { return text(one.StringMatch, h) })
		case *matcherv3.ValueMatcher_PresentMatch:
			return len(have) > 0
		case *matcherv3.ValueMatcher_BoolMatch, *matcherv3.ValueMatcher_DoubleMatch:
			return false // claims of calls are texts
		case *matcherv3.ValueMatcher_OrMatch:
			return slices.ContainsFunc(p.OrMatch.ValueMatchers, judge)
		}
		m.t.Fatalf("cannot judge %v", v)
		return false
	}
	return judge(c.Value)
}

func subnet(c *corev3.CidrRange) netip.Prefix {
	return netip.PrefixFrom(netip.MustParseAddr(c.AddressPrefix), int(c.PrefixLen.GetValue()))
}

func text(m *matcherv3.StringMatcher, s string) bool {
	fold := func(s string) string {
		if m.IgnoreCase {
			return strings.ToLower(s)
		}
		return s
	}
	switch p := m.MatchPattern.(type) {
	case *matcherv3.StringMatcher_Exact:
		return fold(s) == fold(p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(fold(s), fold(p.Prefix))
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(fold(s), fold(p.Suffix))
	case *matcherv3.StringMatcher_SafeRegex:
		return regexp.MustCompile("^(?:" + p.SafeRegex.Regex + ")$").MatchString(s)
	}
	return false
}

// template judges a path by Envoy's form of a template.
func template(t, path string) bool {
	regex := "^"
	for i, s := range strings.Split(t, "/") {
		if i > 0 {
			regex += "/"
		}
		switch s {
		case "*":
			regex += "[^/]+"
		case "**":
			regex += ".*"
		default:
			regex += regexp.QuoteMeta(s)
		}
	}
	return regexp.MustCompile(regex + "$").MatchString(path)
}
