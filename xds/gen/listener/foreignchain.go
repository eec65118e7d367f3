package listener

import (
	"slices"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/ashore-mesh/ashore/xds/gen/access"
	"github.com/ashore-mesh/ashore/xds/gen/secret"
)

// asksOthers says that the chain asks clients for certificates of other authorities than the
// mesh's. What these vouch for may bear any name: filterForeign sees to it that none is taken for a
// workload of the mesh.
func (c chainSpec) asksOthers() bool { return secret.ClientAuthorities(c.tls) != nil }

// refuseImpostors puts filterForeign before the other filters of m, which other chains share.
func refuseImpostors(m *hcmv3.HttpConnectionManager) {
	m.HttpFilters = slices.Concat(access.JudgeRequests(access.FilterForeign), m.HttpFilters)
}
