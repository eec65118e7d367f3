package analyze_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
)

// tcp is a ServiceEntry of five lines with one port.
func tcp(name, protocol, addresses, more string) string {
	return object(config.ServiceEntry, "a/"+name,
		fmt.Sprintf("hosts: [%s.internal], addresses: [%s], ports: [{number: 9, name: p, protocol: %s}], resolution: STATIC, location: MESH_INTERNAL, endpoints: [{address: 10.9.9.9}]%s", name, addresses, protocol, more))
}

func TestAddressConflicts(t *testing.T) {
	t.Parallel()
	lost := func(where string) []string {
		return []string{"ASH0010 mesh.yaml:6 ServiceEntry a/y spec.ports[0]: connections to " + where + " reach host x.internal (ServiceEntry a/x (mesh.yaml)), not y.internal, from clients that see both services"}
	}
	check(t, []testCase{
		{"different addresses", []string{tcp("x", "TCP", "10.0.0.1", ""), tcp("y", "TCP", "10.0.0.2", "")}, nil},
		{"one address", []string{tcp("x", "TCP", "10.0.0.1", ""), tcp("y", "TCP", "10.0.0.2, 10.0.0.1", "")}, lost("address 10.0.0.1 port 9")},
		{"one prefix", []string{tcp("x", "TCP", "10.1.0.0/16", ""), tcp("y", "MONGO", "10.1.0.0/16", "")}, lost("address 10.1.0.0/16 port 9")},
		{"no address", []string{tcp("x", "TCP", "", ""), tcp("y", "TCP", "", "")}, lost("port 9 (services without addresses share it)")},
		{"HTTP is told apart by host", []string{tcp("x", "HTTP", "10.0.0.1", ""), tcp("y", "HTTP", "10.0.0.1", "")}, nil},
		{"TLS is told apart by SNI", []string{tcp("x", "TLS", "10.0.0.1", ""), tcp("y", "TLS", "10.0.0.1", "")}, nil},
		{"for different clients", []string{tcp("x", "TCP", "10.0.0.1", ", exportTo: [b]"), tcp("y", "TCP", "10.0.0.1", ", exportTo: [.]")}, nil},
		{"one object", []string{strings.Replace(tcp("x", "TCP", "10.0.0.1", ""), "hosts: [x.internal]", "hosts: [x.internal, y.internal]", 1)}, nil},
	})
}

func TestServices(t *testing.T) {
	t.Parallel()
	web := func(more string) string {
		return object(config.ServiceEntry, "shop/web",
			"hosts: [web.internal], ports: [{number: 80, name: http}], resolution: STATIC"+more)
	}
	const endpoint = ", workloadSelector: {labels: {app: web}}"
	workload := object(config.WorkloadEntry, "shop/web-1",
		"address: 10.0.0.1, labels: {app: web, security.istio.io/tlsMode: istio}, serviceAccount: web")
	strict := object(config.PeerAuthentication, "shop/strict", "mtls: {mode: STRICT}")
	check(t, []testCase{
		{"no endpoints", []string{web(", location: MESH_INTERNAL")}, []string{"ASH0011 mesh.yaml:1 ServiceEntry shop/web spec: web.internal has no endpoints, so requests to it fail"}},
		{"a selector without workloads", []string{web(endpoint + ", location: MESH_INTERNAL")}, nil},
		{"external, with workloads of the mesh", []string{web(endpoint), workload}, []string{"ASH0012 mesh.yaml:1 ServiceEntry shop/web spec.location: workloads of web.internal accept mutual TLS, but clients send them plaintext"}},
		{"internal", []string{web(endpoint + ", location: MESH_INTERNAL"), workload}, nil},
		{
			"plaintext to STRICT workloads", []string{web(endpoint + ", location: MESH_INTERNAL"), workload, strict, rule("shop/web", "host: web.internal, trafficPolicy: {tls: {mode: DISABLE}}")},
			[]string{"ASH0012 mesh.yaml:16 DestinationRule shop/web spec.trafficPolicy.tls.mode: clients send plaintext to port 80 of web.internal, but PeerAuthentication shop/strict (mesh.yaml) is STRICT for workload web-1, which refuses it | use tls mode ISTIO_MUTUAL"},
		},
		{
			"of a port", []string{web(endpoint), workload, strict, rule("shop/web", "host: web.internal, trafficPolicy: {portLevelSettings: [{port: {number: 80}, tls: {mode: DISABLE}}]}")},
			[]string{"spec.location", "spec.trafficPolicy.portLevelSettings[0].tls.mode: clients send plaintext"},
		},
		{"not of a port with other settings", []string{web(endpoint), workload, strict, rule("shop/web", "host: web.internal, trafficPolicy: {tls: {mode: DISABLE}, portLevelSettings: [{port: {number: 80}, tls: {mode: ISTIO_MUTUAL}}]}")}, nil},
		{
			"of a subset", []string{web(endpoint), workload, strict, rule("shop/web", "host: web.internal, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}, subsets: [{name: a, labels: {app: web}, trafficPolicy: {tls: {mode: DISABLE}}}]")},
			[]string{"spec.subsets[0].trafficPolicy.tls.mode: clients send plaintext"},
		},
		{"no TLS settings, to STRICT workloads", []string{web(endpoint + ", location: MESH_INTERNAL"), workload, strict, rule("shop/web", "host: web.internal, subsets: [{name: a, labels: {app: web}}]")}, nil},
		{"plaintext to PERMISSIVE workloads", []string{web(endpoint), workload, rule("shop/web", "host: web.internal, trafficPolicy: {tls: {mode: DISABLE}}")}, nil},
		{"external, with a rule", []string{web(endpoint), workload, rule("shop/web", "host: web.internal, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}")}, nil},
	})
}

func TestSidecars(t *testing.T) {
	t.Parallel()
	sidecar := func(name, spec string) string { return object(config.Sidecar, name, spec) }
	check(t, []testCase{
		{
			"two for a namespace", []string{sidecar("shop/a", `egress: [{hosts: ["./*"]}]`), sidecar("shop/b", `egress: [{hosts: ["*/*"]}]`)},
			[]string{"IST0111 mesh.yaml:6 Sidecar shop/b spec: has no effect: Sidecar shop/a (mesh.yaml) is for all of namespace shop too and takes precedence"},
		},
		{
			"two with one selector", []string{sidecar("shop/a", `workloadSelector: {labels: {app: x}}, egress: [{hosts: ["./*"]}]`), sidecar("shop/b", `workloadSelector: {labels: {app: x}}, egress: [{hosts: ["*/*"]}]`)},
			[]string{"IST0110 mesh.yaml:6 Sidecar shop/b spec: has no effect: Sidecar shop/a (mesh.yaml) has the same selector and takes precedence"},
		},
		{"different selectors", []string{sidecar("shop/a", `workloadSelector: {labels: {app: x}}, egress: [{hosts: ["./*"]}]`), sidecar("shop/b", `egress: [{hosts: ["*/*"]}]`)}, nil},
	})
}
