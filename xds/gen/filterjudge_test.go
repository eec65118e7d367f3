package gen

import (
	"iter"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/internal/spiffe"
)

// filterJudge is Envoy where it judges a call of which all is known by RBAC filters.
type filterJudge struct{ call policyCall }

// passes says whether each filter lets the call pass.
func (j filterJudge) passes(filters iter.Seq2[string, proto.Message]) bool {
	for _, m := range filters {
		var rules *rbacv3.RBAC
		switch m := m.(type) {
		case *httprbacv3.RBAC:
			rules = m.Rules
		case *networkrbacv3.RBAC:
			rules = m.Rules
		}
		if rules == nil || rules.Action == rbacv3.RBAC_LOG {
			continue
		}
		matched := false
		for _, p := range rules.Policies {
			matched = matched || slices.ContainsFunc(p.Principals, j.principal) &&
				slices.ContainsFunc(p.Permissions, j.permission)
		}
		if matched != (rules.Action == rbacv3.RBAC_ALLOW) {
			return false
		}
	}
	return true
}

func every[T any](list []T, holds func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !holds(x) })
}

func (j filterJudge) permission(p *rbacv3.Permission) bool {
	switch p := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return p.Any
	case *rbacv3.Permission_AndRules:
		return every(p.AndRules.GetRules(), j.permission)
	case *rbacv3.Permission_OrRules:
		return slices.ContainsFunc(p.OrRules.GetRules(), j.permission)
	case *rbacv3.Permission_NotRule:
		return !j.permission(p.NotRule)
	case *rbacv3.Permission_Header:
		return j.header(p.Header)
	case *rbacv3.Permission_UrlPath:
		return envoyText(p.UrlPath.GetPath(), j.path())
	case *rbacv3.Permission_UriTemplate:
		return j.template(p.UriTemplate)
	case *rbacv3.Permission_DestinationIp:
		return envoySubnet(p.DestinationIp, j.call.Destination)
	case *rbacv3.Permission_DestinationPort:
		return j.call.Port == p.DestinationPort
	case *rbacv3.Permission_RequestedServerName:
		return envoyText(p.RequestedServerName, j.call.ServerName)
	}
	panic("a permission that no policy of these tests has: " + p.String())
}

func (j filterJudge) principal(p *rbacv3.Principal) bool {
	switch p := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return p.Any
	case *rbacv3.Principal_AndIds:
		return every(p.AndIds.GetIds(), j.principal)
	case *rbacv3.Principal_OrIds:
		return slices.ContainsFunc(p.OrIds.GetIds(), j.principal)
	case *rbacv3.Principal_NotId:
		return !j.principal(p.NotId)
	case *rbacv3.Principal_Authenticated_:
		return j.call.From != (spiffe.ID{}) && envoyText(p.Authenticated.GetPrincipalName(), j.call.From.String())
	case *rbacv3.Principal_Header:
		return j.header(p.Header)
	case *rbacv3.Principal_DirectRemoteIp:
		return envoySubnet(p.DirectRemoteIp, j.call.Source)
	case *rbacv3.Principal_RemoteIp:
		return envoySubnet(p.RemoteIp, j.call.Remote)
	case *rbacv3.Principal_SourcedMetadata:
		m := p.SourcedMetadata.GetMetadataMatcher()
		var path []string
		for _, segment := range m.GetPath()[1:] {
			path = append(path, segment.GetKey())
		}
		return envoyValue(m.GetValue(), j.call.Claims[strings.Join(path, "][")])
	}
	panic("a principal that no policy of these tests has: " + p.String())
}

// header is Envoy's HeaderMatcher: one value that matches is enough.
func (j filterJudge) header(m *routev3.HeaderMatcher) bool {
	values := j.call.Headers[m.Name]
	switch m.Name {
	case ":authority":
		values = []string{strings.TrimSuffix(j.call.Host, ".")}
	case ":method":
		values = []string{j.call.Method}
	}
	out := len(values) > 0
	if !m.GetPresentMatch() {
		out = slices.ContainsFunc(values, func(v string) bool { return envoyText(m.GetStringMatch(), v) })
	}
	return out != m.InvertMatch
}

// path is that of the call without its query.
func (j filterJudge) path() string {
	if i := strings.IndexAny(j.call.Path, "?#"); i >= 0 {
		return j.call.Path[:i]
	}
	return j.call.Path
}

// template matches the path with a URI template: * is one segment, ** any number of them.
func (j filterJudge) template(e *corev3.TypedExtensionConfig) bool {
	c := &uritemplatev3.UriTemplateMatchConfig{}
	if err := e.GetTypedConfig().UnmarshalTo(c); err != nil {
		panic(err)
	}
	segments := strings.Split(c.PathTemplate, "/")
	for i, s := range segments {
		switch s {
		case "*":
			segments[i] = "[^/]+"
		case "**":
			segments[i] = ".*"
		default:
			segments[i] = regexp.QuoteMeta(s)
		}
	}
	return envoyRegex(strings.Join(segments, "/"), j.path())
}

// envoyRegex matches the whole text.
func envoyRegex(expr, s string) bool {
	return regexp.MustCompile("^(?:" + expr + ")$").MatchString(s)
}

// envoyText is Envoy's StringMatcher.
func envoyText(m *matcherv3.StringMatcher, s string) bool {
	fold := func(s string) string {
		if m.GetIgnoreCase() {
			return strings.ToLower(s)
		}
		return s
	}
	s = fold(s)
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return s == fold(p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(s, fold(p.Prefix))
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(s, fold(p.Suffix))
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(s, fold(p.Contains))
	case *matcherv3.StringMatcher_SafeRegex:
		return envoyRegex(p.SafeRegex.GetRegex(), s)
	}
	panic("a text that no policy of these tests has: " + m.String())
}

func envoySubnet(c *corev3.CidrRange, a netip.Addr) bool {
	return netip.PrefixFrom(netip.MustParseAddr(c.AddressPrefix), int(c.PrefixLen.GetValue())).Contains(a)
}

// envoyValue matches a claim: one value is a text or a list of one, several are a list.
func envoyValue(m *matcherv3.ValueMatcher, values []string) bool {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		return len(values) > 0 && envoyText(p.StringMatch, values[0])
	case *matcherv3.ValueMatcher_ListMatch:
		return slices.ContainsFunc(values, func(v string) bool { return envoyValue(p.ListMatch.GetOneOf(), []string{v}) })
	case *matcherv3.ValueMatcher_OrMatch:
		return slices.ContainsFunc(p.OrMatch.GetValueMatchers(),
			func(o *matcherv3.ValueMatcher) bool { return envoyValue(o, values) })
	case *matcherv3.ValueMatcher_PresentMatch:
		return len(values) > 0 == p.PresentMatch
	case *matcherv3.ValueMatcher_BoolMatch:
		return slices.Contains(values, strconv.FormatBool(p.BoolMatch))
	case *matcherv3.ValueMatcher_DoubleMatch:
		return slices.ContainsFunc(values, func(v string) bool {
			n, err := strconv.ParseFloat(v, 64)
			return err == nil && n == p.DoubleMatch.GetExact()
		})
	}
	panic("a value that no policy of these tests has: " + m.String())
}
