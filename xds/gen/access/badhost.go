package access

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

const badHostName = "ashore.bad_host"

// validHost is a regular expression for the Host headers that proxies accept: a name without empty
// labels, or an address; a port may follow.
const validHost = `([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])(:[0-9]*)?`

// BadHostFilter refuses requests without a valid Host header. It stands before all policies.
//
// Policies compare the whole header, and an application may use a part of it: of "web,admin", which
// Envoy 1.40 makes of two Host headers, of "user@admin", or of "admin..". Envoy strips one dot
// only.
func BadHostFilter() *hcmv3.HttpFilter {
	return envoy.HTTPFilter(badHostName, badHostRules())
}

func badHostRules() *httprbacv3.RBAC {
	return &httprbacv3.RBAC{Rules: &rbacv3.RBAC{
		Action: rbacv3.RBAC_DENY,
		Policies: map[string]*rbacv3.Policy{"bad-host": {
			Permissions: []*rbacv3.Permission{headerPermission(badHost())},
			Principals:  []*rbacv3.Principal{anyPrincipal()},
		}},
	}}
}

// BadHostReply turns that refusal into 400, since RBAC can only answer 403.
// Source: RFC 9112, section 3.2.
func BadHostReply() *hcmv3.LocalReplyConfig {
	header := &accesslogv3.HeaderFilter{Header: badHost()}
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{{
		Filter: &accesslogv3.AccessLogFilter{
			FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{HeaderFilter: header},
		},
		StatusCode: wrapperspb.UInt32(400),
		Body:       envoy.InlineString("invalid Host header\n"),
	}}}
}

// badHost matches such requests. Envoy has stripped a trailing dot.
func badHost() *routev3.HeaderMatcher {
	m := policyHeader(":authority", "", envoy.RegexMatch(validHost))
	m.InvertMatch = true
	return m
}
