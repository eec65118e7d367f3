package gen

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// asksOthers says that the chain asks clients for certificates of other authorities than the
// mesh's. What these vouch for may bear any name: filterForeign sees to it that none is taken for a
// workload of the mesh.
func (c chainSpec) asksOthers() bool {
	if c.tls == nil {
		return false
	}
	_, asks := clientRoots(c.tls)
	return asks
}

// impostors refuse callers whose certificate names a workload of the mesh.
func (s rbacScope) impostors() *rbacv3.RBAC {
	b := rbacBuilder{rbacScope: s}
	return &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{"foreign-identity": {
		Permissions: []*rbacv3.Permission{anyPermission()},
		Principals:  []*rbacv3.Principal{authenticated(regexMatch("(?i)" + b.meshPrefix() + ".*"))},
	}}}
}

// refuseImpostors puts filterForeign before the other filters of m, which other chains share.
func refuseImpostors(m *hcmv3.HttpConnectionManager) {
	m.HttpFilters = slices.Concat(judgeRequests(filterForeign), m.HttpFilters)
}
