package agent

import (
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// NameTableName is the name of the one resource of type resource.NameTableType.
const NameTableName = "name-table"

// NameTables makes the table of host names and addresses from which a proxy's agent answers DNS.
type NameTables struct {
	plans     *memo.Func[namePlanIn, namePlan]
	layers    *memo.Func[nameIn, resource.Layer]
	endpoints *intern.Lists[*registry.EndpointList]
}

func NewNameTables() NameTables {
	return NameTables{
		plans:     memo.New(planNames),
		layers:    memo.New(buildNames),
		endpoints: &intern.Lists[*registry.EndpointList]{},
	}
}

type namePlanIn struct {
	destinations *push.Destinations
	// capturesDNS says that the proxy has listeners at allocated addresses.
	capturesDNS bool
}

// namePlan says whose endpoints the table names.
type namePlan struct {
	namePlanIn
	// headless are the services without an address of their own, in order.
	headless []registry.Key
}

// nameIn is everything that a table depends on.
type nameIn struct {
	plan *namePlan
	// endpoints are those of plan.headless, in that order.
	endpoints *intern.List[*registry.EndpointList]
}

func (n NameTables) Set(sc *push.Scope) resource.Set {
	plan := n.plans.Get(namePlanIn{sc.Destinations, sc.CapturesDNS})
	return resource.Set{Shared: n.layers.Get(nameIn{plan: plan,
		endpoints: destination.EndpointsOf(n.endpoints, plan.headless, sc)})}
}

func planNames(in namePlanIn) *namePlan {
	p := &namePlan{namePlanIn: in}
	for _, dest := range in.destinations.Items() {
		if in.isHeadless(dest.Service) {
			p.headless = append(p.headless, dest.Service.Key)
		}
	}
	return p
}

// isHeadless says that clients find a service by the addresses of its endpoints: it has none of its
// own.
func (in namePlanIn) isHeadless(s *registry.Service) bool {
	return len(s.Addresses) == 0 && (len(s.AutoAddresses) == 0 || !in.capturesDNS)
}

func buildNames(in nameIn) *resource.Layer {
	table := resource.New(resource.NameTableType, NameTableName, nil, func() []byte { return encodeNames(in) })
	return resource.NewLayer([]*resource.Resource{table})
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

// encodeNames writes the table: every host that has an address, in the order of hosts.
func encodeNames(in nameIn) []byte {
	var table []byte
	next := 0
	for _, d := range in.plan.destinations.Items() {
		var ips []string
		if in.plan.isHeadless(d.Service) {
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
