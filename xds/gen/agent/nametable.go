package agent

import (
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// NameTableName is the name of the one resource of type resource.NameTableType.
const NameTableName = "name-table"

// NameTables makes the table of host names and addresses from which a proxy's agent answers DNS.
type NameTables struct{ Indexes *destination.Indexes }

// nameIn is everything that a table depends on.
type nameIn struct {
	destinations *push.Destinations
	// capturesDNS says that the proxy has listeners at allocated addresses.
	capturesDNS bool
	// endpoints are those of the headless destinations, in that order.
	endpoints *intern.List[*registry.EndpointList]
}

// Plans implements envoy.Kind.
func (n NameTables) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	headless := n.Indexes.Of(sc).Headless(sc.CapturesDNS)
	return nameIn{sc.Destinations, sc.CapturesDNS, n.Indexes.Endpoints(headless, sc)}, nil
}

// Layer implements envoy.Plan.
func (in nameIn) Layer() *envoy.Layer {
	return envoy.NewLayer(resource.New(resource.NameTableType, NameTableName, nil, in.encode))
}

// The fields of istio.networking.nds.v1.
// Source: Istio, pkg/dns/proto/nds.proto.
const (
	fieldTable    protowire.Number = 1 // NameTable.table
	fieldIPs      protowire.Number = 1 // NameInfo.ips
	fieldRegistry protowire.Number = 2 // NameInfo.registry
)

// externalRegistry is what Istio calls ServiceEntries' registry.
const externalRegistry = "External"

// encode writes the table: every host that has an address, in the order of hosts.
func (in nameIn) encode() []byte {
	var table []byte
	next := 0
	for _, d := range in.destinations.Items() {
		var ips []string
		if destination.IsHeadless(d.Service, in.capturesDNS) {
			ips = endpointAddresses(in.endpoints.Items()[next])
			next++
		} else {
			ips = serviceAddresses(d.Service)
		}
		if len(ips) == 0 {
			continue
		}
		table = envoy.AppendMessage(table, fieldTable, func(b []byte) []byte {
			b = envoy.AppendText(b, envoy.FieldMapKey, d.Service.Host)
			return envoy.AppendMessage(b, envoy.FieldMapValue, func(b []byte) []byte {
				for _, ip := range ips {
					b = envoy.AppendText(b, fieldIPs, ip)
				}
				return envoy.AppendText(b, fieldRegistry, externalRegistry)
			})
		})
	}
	return table
}

// serviceAddresses are a service's own single addresses. Prefixes are no answer to a query.
func serviceAddresses(s *registry.Service) []string {
	var out []string
	for _, p := range s.VirtualIPs() {
		if p.IsSingleIP() {
			out = append(out, p.Addr().String())
		}
	}
	return out
}

// endpointAddresses are the addresses of healthy endpoints.
// Source: Istio, "DNS Proxying": headless services resolve to their endpoints.
func endpointAddresses(endpoints *registry.EndpointList) []string {
	var out []string
	seen := map[string]bool{} // several may share an address, and differ in their ports
	for i := range endpoints.All() {
		ep := &endpoints.Items[i]
		if _, err := netip.ParseAddr(ep.Address); err == nil && ep.Health == registry.Healthy && !seen[ep.Address] {
			out, seen[ep.Address] = append(out, ep.Address), true
		}
	}
	return out
}
