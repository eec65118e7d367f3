package mcp_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/hashicorp/consul/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// nameEntry is a ServiceEntry of a host, with further lines of its spec.
const nameEntry = `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 5432, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.0.1}]
  %[2]s
`

// fields are the values of one field of a message.
func fields(t *testing.T, b []byte, number protowire.Number) (out [][]byte) {
	t.Helper()
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 || typ != protowire.BytesType {
			t.Fatalf("not a message of texts: %x", b)
		}
		v, vsize := protowire.ConsumeBytes(b[size:])
		if vsize < 0 {
			t.Fatalf("cut off: %x", b)
		}
		if n == number {
			out = append(out, v)
		}
		b = b[size+vsize:]
	}
	return out
}

// nameTable reads a table of names. Source: Istio, pkg/dns/proto/nds.proto.
func nameTable(t *testing.T, body []byte) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, entry := range fields(t, body, 1) {
		var ips []string
		for _, ip := range fields(t, fields(t, entry, 2)[0], 1) {
			ips = append(ips, string(ip))
		}
		out[string(fields(t, entry, 1)[0])] = ips
	}
	return out
}

// names asks ashored for the table of names until it is as it should be, as the agent of a workload
// does.
func names(t *testing.T, m *harness.Mesh, id *harness.Identity, what string,
	want func(map[string][]string) error) map[string][]string {
	t.Helper()
	host, _, err := net.SplitHostPort(m.TLS())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string][]string
	harness.Eventually(t, what, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		conn, err := grpc.NewClient("passthrough:///"+m.TLS(),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{id.Certificate}, RootCAs: id.Roots, ServerName: host,
			})))
		if err != nil {
			return err
		}
		defer conn.Close()
		st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		if err != nil {
			return err
		}
		node := &corev3.Node{
			Id:       fmt.Sprintf("sidecar~%s~a-1.shop~shop.svc.cluster.local", id.IP),
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"DNS_CAPTURE": structpb.NewStringValue("true")}},
		}
		if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.NameTableType}); err != nil {
			return err
		}
		r, err := st.Recv()
		if err != nil || len(r.Resources) != 1 {
			return fmt.Errorf("%d tables, %w", len(r.GetResources()), err)
		}
		got = nameTable(t, r.Resources[0].Resource.Value)
		return want(got)
	})
	return got
}

// allocated says whether a host has one virtual address of each IP version.
func allocated(table map[string][]string, host string) error {
	ips := table[host]
	if len(ips) != 2 || !netip.MustParsePrefix("240.240.0.0/16").Contains(netip.MustParseAddr(ips[0])) ||
		!netip.MustParsePrefix("2001:2::/48").Contains(netip.MustParseAddr(ips[1])) {
		return fmt.Errorf("%s has the addresses %q of %v", host, ips, table)
	}
	return nil
}

// Hosts of files, the store, an MCP server and Consul are in the table of names: with the addresses
// that they declare, else with allocated ones, which no two share and which a restart leaves as
// they are; those that are to have none with the addresses of their healthy endpoints.
func TestNames(t *testing.T) {
	t.Parallel()
	x := &mcptest.XDS{Store: mcptest.NewStore()}
	peer, _ := mcptest.Serve(t, "", x.Register)
	x.Store.Put("networking.istio.io/v1/ServiceEntry", "shop/peer", &networking.ServiceEntry{
		Hosts: []string{"peer.test"}, Resolution: networking.ServiceEntry_STATIC, Ports: []*networking.ServicePort{{Number: 5432, Name: "tcp", Protocol: "TCP"}},
		Endpoints: []*networking.WorkloadEntry{{Address: "10.0.0.1"}},
	})
	a := testconsul.Start(t, nil)
	c, err := api.NewClient(&api.Config{Address: a.Address})
	if err != nil {
		t.Fatal(err)
	}
	register := func(id, address, status string) {
		t.Helper()
		if _, err := c.Catalog().Register(&api.CatalogRegistration{Node: "node-of-" + id, Address: "10.9.9.9",
			SkipNodeUpdate: true,
			Service:        &api.AgentService{ID: id, Service: "db", Address: address, Port: 5432},
			Check: &api.AgentCheck{Node: "node-of-" + id, CheckID: "service:" + id, Name: "alive", Status: status,
				ServiceID: id}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	register("db-1", "10.0.0.1", "passing")
	register("db-2", "10.0.0.2", "critical")
	m := harness.New(t, map[string]string{"a.yaml": group("shop", "a") + fmt.Sprintf(nameEntry, "file",
		"") + fmt.Sprintf(nameEntry, "fixed", "addresses: [10.1.1.1]")}, harness.Secure(""),
		harness.Sources(fmt.Sprintf("{name: peer, kind: mcp, address: %q, plaintext: true}", peer),
			fmt.Sprintf("{name: dc1, kind: consul, address: %q}", "http://"+a.Address),
			fmt.Sprintf("{name: flat, kind: consul, address: %q, domain: flat, virtualAddresses: none}",
				"http://"+a.Address)))
	stored := filepath.Join(t.TempDir(), "stored.yaml")
	if err := os.WriteFile(stored, []byte(fmt.Sprintf(nameEntry, "stored", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code, err := harness.Command("ashorectl", "--socket", m.Socket(), "apply", "-f", stored); err != nil ||
		code != 0 {
		t.Fatalf("apply: %d, %v\n%s", code, err, out)
	}
	id := m.Enrol(harness.Workload{Name: "a-1", Group: "shop/a"})

	given := []string{"file.test", "stored.test", "peer.test", "db.service.consul", "db.service.dc1.consul"}
	all := func(table map[string][]string) error {
		seen := map[string]string{}
		for _, host := range given {
			if err := allocated(table, host); err != nil {
				return err
			}
			for _, ip := range table[host] {
				if seen[ip] != "" {
					return fmt.Errorf("%s and %s share %s", host, seen[ip], ip)
				}
				seen[ip] = host
			}
		}
		for host, want := range map[string][]string{"fixed.test": {"10.1.1.1"}, "db.service.flat": {"10.0.0.1"},
			"db.service.dc1.flat": {"10.0.0.1"}} {
			if !slices.Equal(table[host], want) {
				return fmt.Errorf("%s has the addresses %q, want %q", host, table[host], want)
			}
		}
		return nil
	}
	before := names(t, m, id, "hosts of every source", all)

	register("db-2", "10.0.0.2", "passing")
	names(t, m, id, "an endpoint that is well again", func(table map[string][]string) error {
		if got := table["db.service.flat"]; !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2"}) ||
			!slices.Equal(table["db.service.consul"], before["db.service.consul"]) {
			return fmt.Errorf("%q, and %q", got, table["db.service.consul"])
		}
		return nil
	})
	m.Ashored.Kill()
	m.Write("first.yaml", fmt.Sprintf(nameEntry, "a-newcomer", "")) // which comes before the others
	m.Start()
	names(t, m, id, "the same addresses after a restart", func(table map[string][]string) error {
		for _, host := range given {
			if !slices.Equal(table[host], before[host]) {
				return fmt.Errorf("%s had %q and has %q", host, before[host], table[host])
			}
		}
		return allocated(table, "a-newcomer.test")
	})

	for _, words := range [][]string{{"peer.test", "mcp:peer"}, {"stored.test", "store"}, {"file.test", "files"},
		{"db.service.consul", "consul:dc1"}, {"db.service.flat", "consul:flat"}} {
		out, code, err := harness.Command("ashorectl", "--socket", m.Socket(), "get", "endpoints", words[0])
		if err != nil || code != 0 || !strings.Contains(out, "10.0.0.1") || !strings.Contains(out, " "+words[1]+"\n") {
			t.Errorf("endpoints of %s: %d, %v\n%s\nwant some from %s", words[0], code, err, out, words[1])
		}
	}
}
