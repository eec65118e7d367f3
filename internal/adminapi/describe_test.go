package adminapi

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds"
)

// supplied is an assembler that has the services of a context.
type supplied struct {
	Assembler
	in push.Inputs
}

func (s supplied) Supplied(_ context.Context, k registry.Key) (registry.Joined, bool, error) {
	svc := s.in.Services.At(k)
	if svc == nil {
		return registry.Joined{}, false, nil
	}
	all := registry.Instances{Service: svc, Endpoints: s.in.Endpoints.At(k)}
	return registry.Joined{Instances: all, Parts: []registry.Part{{Source: "dc1", Instances: all, Used: all.Endpoints.Len()}}}, true, nil
}

// What applies to a service or a workload is shown: its routes, rules, policies and endpoints.
func TestDescribe(t *testing.T) {
	t.Parallel()
	a := twoPorts(t, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: shop}
spec: {hosts: [front.example], http: [{route: [{destination: {host: api.example}}]}]}
`, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: api, namespace: shop}
spec: {hosts: [api.example], gateways: [gw, mesh], http: [{route: [{destination: {host: api.example, subset: v1}}]}]}
`, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: api, namespace: shop}
spec: {host: api.example, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}, subsets: [{name: v1}]}
`, `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: shop}
spec: {mtls: {mode: STRICT}}
`, `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: patch, namespace: shop}
spec: {configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {alt_stat_name: x}}}, {applyTo: CLUSTER, patch: {operation: MERGE, value: {alt_stat_name: y}}}]}
`, `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec: {selector: {app: gateway}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]}
`)
	a.Assembler, a.Entries = supplied{in: a.Published().Inputs()}, noEntries
	policies := []string{"AuthorizationPolicy shop/readers", "EnvoyFilter shop/patch"}
	const mode = "STRICT, by PeerAuthentication shop/strict"
	place := func(object string, line int) admin.Place {
		return admin.Place{Object: object, File: "a.yaml", Line: line}
	}
	objects := []admin.AppliedObject{
		{Place: place("VirtualService shop/api", 8), Effect: "routes requests for api.example, gateways: shop/gw, mesh"},
		{Place: place("VirtualService shop/front", 2), Effect: "sends requests for front.example to it, gateways: mesh"},
		{Place: place("DestinationRule shop/api", 14), Effect: "client TLS: ISTIO_MUTUAL, subsets: v1"},
	}
	for _, q := range []admin.DescribeQuery{{Service: "API.example"}, {Workload: "shop/api"}} {
		got, err := a.Describe(t.Context(), q)
		if err != nil {
			t.Errorf("%+v: %v", q, err)
			continue
		}
		if d := cmp.Diff(objects, got.Objects); d != "" {
			t.Errorf("%+v: objects (-want +got):\n%s", q, d)
		}
		at := []string{"shop/api:7080", "shop/api:8080"}
		if q.Workload != "" { // also the name of the service account of db
			at = append(at, "shop/db:7081")
		}
		if d := cmp.Diff([]admin.WorkloadPolicies{{At: at, MutualTLS: mode, Policies: policies}}, got.Workloads); d != "" {
			t.Errorf("%+v: workloads (-want +got):\n%s", q, d)
		}
		if got.Services[0].Host != "api.example" || len(got.Services[0].Endpoints) != 1 {
			t.Errorf("%+v: services %+v", q, got.Services)
		}
	}
	a.Connected = func() []xds.ProxyStatus {
		labels := new(intern.Lists[push.Label]).Of(nil)
		return []xds.ProxyStatus{{ID: "n", Node: push.Node{ID: "client.shop", Namespace: "shop", Labels: labels}}}
	}
	got, err := a.Describe(t.Context(), admin.DescribeQuery{Workload: "client.shop"})
	if d := cmp.Diff([]admin.WorkloadPolicies{{At: []string{"shop/client.shop"}, MutualTLS: mode, Policies: policies}},
		got.Workloads); err != nil || d != "" || len(got.Services) != 0 {
		t.Errorf("a proxy without services: %+v, %v", got, err)
	}
	a.Connected = func() []xds.ProxyStatus {
		labels := new(intern.Lists[push.Label]).Of([]push.Label{{Key: "app", Value: "gateway"}})
		ips := new(intern.Lists[netip.Addr]).Of([]netip.Addr{netip.MustParseAddr("10.0.0.80")})
		return []xds.ProxyStatus{{ID: "gw", Node: push.Node{Type: push.Router, ID: "gw.shop", Namespace: "shop", IPs: ips,
			Labels: labels}}}
	}
	for _, name := range []string{"gw.shop", "shop/gw.shop", "shop/gw", "10.0.0.80"} {
		got, err = a.Describe(t.Context(), admin.DescribeQuery{Workload: name})
		if d := cmp.Diff([]admin.AppliedObject{
			{Place: place("Gateway shop/gw", 32), Effect: "serves HTTP at port 8080, hosts: *"},
			{Place: place("VirtualService shop/api", 8), Effect: "routes requests for api.example at port 8080"},
		}, got.Objects); err != nil || d != "" || got.Workloads[0].MutualTLS != "as its Gateways say" {
			t.Errorf("a gateway, by %s: %+v, %v\n%s", name, got, err, d)
		}
	}
	for _, q := range []admin.DescribeQuery{{Service: "x.example"}, {Workload: "shop/x"}} {
		if _, err := a.Describe(t.Context(), q); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}
