package access

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// impostors refuse callers whose certificate names a workload of the mesh.
func (s rbacScope) impostors() *rbacv3.RBAC {
	b := rbacBuilder{rbacScope: s}
	return &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{"foreign-identity": {
		Permissions: []*rbacv3.Permission{anyPermission()},
		Principals:  []*rbacv3.Principal{authenticated(envoy.RegexMatch("(?i)" + b.meshPrefix() + ".*"))},
	}}}
}
