package access

import (
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	security "istio.io/api/security/v1beta1"
)

// operation are the conditions on what is called, of which each must hold.
func (b *rbacBuilder) operation(o *security.Operation) []*rbacv3.Permission {
	out := slices.Concat(
		b.permissions(o.GetHosts(), o.GetNotHosts(), httpOnly(b, hostPermission)),
		b.permissions(o.GetMethods(), o.GetNotMethods(), httpOnly(b, methodPermission)),
		b.paths(o.GetPaths(), o.GetNotPaths()),
		b.permissions(o.GetPorts(), o.GetNotPorts(), portPermission),
	)
	if len(out) == 0 {
		b.failed = true // nothing was asked for, or nothing that can be told
	}
	return out
}

// hostPermission is a request to a host. wide also takes the host with a port: true where that
// refuses more.
func hostPermission(v string, wide bool) *rbacv3.Permission {
	return headerPermission(policyHeader(":authority", v, hostMatch(v, wide)))
}

// methodPermission is a request by its method.
func methodPermission(v string, _ bool) *rbacv3.Permission {
	return headerPermission(policyHeader(":method", v, nameMatch(v)))
}

func headerPermission(m *routev3.HeaderMatcher) *rbacv3.Permission {
	if m == nil {
		return nil
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: m}}
}

// portPermission is a connection by the port that it was for.
func portPermission(v string, _ bool) *rbacv3.Permission {
	n := portNumber(v)
	if n == 0 {
		return nil
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: n}}
}

// destinationAddress is a connection by the address that it was for.
func destinationAddress(v string, _ bool) *rbacv3.Permission {
	r := subnetMatch(v)
	if r == nil {
		return nil
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: r}}
}

// serverNamePermission is a connection by the name that its TLS asked for.
func serverNamePermission(v string, _ bool) *rbacv3.Permission {
	m := nameMatch(v)
	if m == nil {
		return nil
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: m}}
}
