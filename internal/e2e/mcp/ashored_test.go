package mcp_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/e2e/mcptest"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// servicePort is where services listen for their callers.
const servicePort = 8080

// group is a WorkloadGroup whose members have the identity and the label app of its name.
func group(namespace, name string) string {
	return strings.NewReplacer("NAMESPACE", namespace, "NAME", name).Replace(`---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  metadata: {labels: {app: NAME}}
  template: {serviceAccount: NAME}
`)
}

// backendEntry is a ServiceEntry of a host whose endpoint is a backend of the test.
func backendEntry(host string, b *harness.Backend) *networking.ServiceEntry {
	ip, port, _ := strings.Cut(b.Address, ":")
	var number uint32
	_, _ = fmt.Sscan(port, &number) // the address of a listener ends with a number
	return &networking.ServiceEntry{
		Hosts: []string{host}, Location: networking.ServiceEntry_MESH_EXTERNAL, Resolution: networking.ServiceEntry_STATIC,
		Ports:     []*networking.ServicePort{{Number: servicePort, Name: "http", Protocol: "HTTP"}},
		Endpoints: []*networking.WorkloadEntry{{Address: ip, Ports: map[string]uint32{"http": number}}},
	}
}

// source is how ashored says that one of its sources stands.
func source(t *testing.T, m *harness.Mesh, name string) feed.SourceStatus {
	t.Helper()
	s, err := admin.Send(context.Background(), m.Admin, admin.CallStatus, admin.None{})
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range s.Sources {
		if src.Name == name {
			return src
		}
	}
	t.Fatalf("ashored has no source %s: %+v", name, s.Sources)
	return feed.SourceStatus{}
}

// wantSource waits until a source stands as it should; trouble is part of what is wrong, empty:
// nothing may be.
func wantSource(t *testing.T, m *harness.Mesh, name, trouble string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("source %s with %q", name, trouble), func() error {
		s := source(t, m, name)
		if trouble == "" && (s.Error != "" || !s.Synced) || !strings.Contains(s.Error, trouble) {
			return fmt.Errorf("it says %q (synced %v)", s.Error, s.Synced)
		}
		return nil
	})
}

// Real calls by a host of an MCP server, through each way in which that can be away: nothing that
// was right is lost.
func TestAshored(t *testing.T) {
	t.Parallel()
	x := &mcptest.XDS{Store: mcptest.NewStore()}
	at, stop := mcptest.Serve(t, "", x.Register)
	m := harness.New(t, map[string]string{"a.yaml": group("shop", "a")}, harness.Secure(""),
		harness.Sources(fmt.Sprintf("{name: peer, kind: mcp, address: %q, plaintext: true}", at)))
	backend := harness.NewBackend(t, "echo", m.IP()+":18080")
	other := harness.NewBackend(t, "other", m.IP()+":18080")
	x.Put(entries, "shop/echo", backendEntry("echo.test", backend))
	wantSource(t, m, "mcp:peer", "")
	client := m.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(servicePort)
	call := harness.Request{Host: "echo.test"}
	client.Want(t, "the host of the server", call, harness.From("echo"))
	load := harness.StartCalls(t, client, call, 25*time.Millisecond)
	harness.Eventually(t, "calls, while what the server said is written down", func() error {
		if n := load.Total(); n < 120 {
			return fmt.Errorf("%d were brokene", n)
		}
		return nil
	})

	t.Log("killed")
	stop()
	wantSource(t, m, "mcp:peer", "check that it runs")
	t.Log("a cold start meanwhile")
	m.Ashored.Kill()
	m.Start()
	wantSource(t, m, "mcp:peer", "check that it runs")
	late := m.Join(harness.Workload{Name: "a-2", Group: "shop/a"}).Client(servicePort)
	late.Want(t, "the host of a server that is away, for a newcomer", call, harness.From("echo"))
	t.Log("back, and empty")
	empty := &mcptest.XDS{Store: mcptest.NewStore()}
	_, stop = mcptest.Serve(t, at, empty.Register)
	harness.Eventually(t, "the objects are retained", func() error {
		if s := source(t, m, "mcp:peer"); s.Error != "" || s.Retained == 0 {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	t.Log("back, with resources that cannot be decoded")
	stop()
	broken := &mcptest.XDS{Store: x.Store, Nonsense: true}
	_, stop = mcptest.Serve(t, at, broken.Register)
	harness.Eventually(t, "a problem", func() error {
		if s := source(t, m, "mcp:peer"); s.Problems == 0 {
			return fmt.Errorf("it stands as %+v", s)
		}
		return nil
	})
	stop()
	t.Log("back as it was")
	_, _ = mcptest.Serve(t, at, x.Register)
	wantSource(t, m, "mcp:peer", "")
	load.Stop()
	load.Clean(t, 50)

	t.Log("changes, rejections and removal")
	x.Put(entries, "shop/echo", backendEntry("echo.test", other))
	client.Want(t, "the other endpoint", call, harness.From("other"))
	x.Put(entries, "shop/echo", backendEntry("", other))
	harness.Eventually(t, "a problem that names it", func() error {
		problems, err := admin.Send(context.Background(), m.Admin, admin.CallProblems, admin.None{})
		if err != nil {
			return err
		}
		for _, p := range problems {
			if p.Object == "ServiceEntry shop/echo" && p.Stale {
				return nil
			}
		}
		return fmt.Errorf("there are %v", problems)
	})
	client.Want(t, "the last good version", call, harness.From("other"))
	x.Clear() // delta discovery removes by name
	harness.Eventually(t, "the host is gone", func() error {
		if a, err := client.Fresh().Do(call); err == nil && a.Seen.Backend != "" {
			return fmt.Errorf("%s answered", a.Seen.Backend)
		}
		return nil
	})
}

// One ashored takes from another, over TLS with an identity that the other issued, until that is
// revoked.
func TestAshoredFromAshored(t *testing.T) {
	t.Parallel()
	one := harness.New(t, map[string]string{"peer.yaml": group("istio-system", "peer")},
		harness.Secure("mcp: {readers: [rootNamespace]}"))
	state := one.Enrol(harness.Workload{Name: "peer-1", Group: "istio-system/peer"}).State
	id := filepath.Join(state, "identity.pem")
	two := harness.New(t, map[string]string{"a.yaml": group("shop", "a")}, harness.Secure(""),
		harness.Sources(fmt.Sprintf(
			"{name: one, kind: mcp, address: %q, serverName: localhost, caFile: %s, certFile: %s, keyFile: %s}",
			one.TLS(), filepath.Join(state, "roots.pem"), id, id)))
	wantSource(t, two, "mcp:one", "")
	backend := harness.NewBackend(t, "echo", one.IP()+":18080")
	one.Write("echo.yaml", strings.NewReplacer("ADDRESS", strings.TrimSuffix(backend.Address, ":18080")).Replace(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: shop}
spec:
  hosts: [echo.test]
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  endpoints: [{address: ADDRESS, ports: {http: 18080}}]
`))
	client := two.Join(harness.Workload{Name: "a-1", Group: "shop/a"}).Client(servicePort)
	call := harness.Request{Host: "echo.test"}
	client.Want(t, "a host of the other mesh", call, harness.From("echo"))

	one.Audited("config.read", "spiffe://cluster.local/ns/istio-system/sa/peer", "everything", "ok")

	out, code, err := harness.Command("ashorectl", "workload", "revoke",
		"spiffe://cluster.local/ns/istio-system/sa/peer", "--socket", one.Socket(), "--reason", "test")
	if err != nil || code != 0 {
		t.Fatalf("revoke: exit code %d, %v: %s", code, err, out)
	}
	wantSource(t, two, "mcp:one", "certFile")
	client.Want(t, "what was said before", call, harness.From("echo"))
}
