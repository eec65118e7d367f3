package policy

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/goldentest"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen"
)

// base is the workload that all policies of the tables are about, and whom CUSTOM policies ask.
const base = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.example]
  ports: [{number: 8080, name: http}, {number: 9000, name: tcp}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.9, labels: {app: web}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: judge, namespace: ops}
spec:
  hosts: [judge.example]
  ports: [{number: 80, name: http}, {number: 90, name: grpc}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.8}]
---
`

// table is one file of testdata: policies, and what calls under them get. A part calls has a call
// on each line,
//
//	shop/web GET web.example /path x-header=value -> 200
//	shop/web tcp -> open
//
// from an identity, or from "-" without a certificate, after "@" the address that it comes from,
// with sni=NAME by TLS and with protocol=h2 by HTTP/2. By "tcp" and TLS there are two connections:
// on one the caller speaks, and on one it is silent. Keys and tokens are written as in harness.Expand. A
// part revoked lists identities and certificates. $HTTP and $TCP stand for the ports.
type table struct {
	name      string
	http, tcp uint32
	calls     []string
	scope     *push.Scope
	archive   *txtar.Archive
}

// part is a part of the table's file, with its ports.
func (tb *table) part(name string) string {
	for _, f := range tb.archive.Files {
		if f.Name == name {
			return strings.NewReplacer("$HTTP", strconv.Itoa(int(tb.http)), "$TCP",
				strconv.Itoa(int(tb.tcp))).Replace(string(f.Data))
		}
	}
	return ""
}

// Each call of the tables gets the expected answer from a real Envoy.
func TestTables(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	w := newWorld(t)
	b := &bootstrapv3.Bootstrap{
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: w.backends(t)},
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name: "test", // as in the bootstrap that the agent writes
			LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
				"re2.max_program_size.error_level": structpb.NewNumberValue(32768),
			}}},
		}}},
	}
	var tables []*table
	calls := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tb := &table{
			name: strings.TrimSuffix(filepath.Base(file), ".txtar"), archive: archive,
			http: uint32(testport.Free(t)), tcp: uint32(testport.Free(t)),
		}
		for line := range strings.Lines(tb.part("calls")) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				tb.calls = append(tb.calls, line)
			}
		}
		calls += len(tb.calls)
		g, sc := gen.New(), w.scope(t, tb)
		tb.scope = sc
		b.StaticResources.Listeners = append(b.StaticResources.Listeners,
			w.listen(t, tb.http, inboundFilters(t, g, sc, 8080)), w.listen(t, tb.tcp, inboundFilters(t, g, sc, 9000)))
		tables = append(tables, tb)
	}
	if calls < 60 {
		t.Errorf("the tables have %d calls, at least 60 are wanted", calls)
	}
	runEnvoy(t, b)
	t.Run("tables", func(t *testing.T) {
		for _, tb := range tables {
			t.Run(tb.name, func(t *testing.T) {
				t.Parallel()
				for _, line := range tb.calls {
					w.call(t, tb, line)
					w.judge(t, tb, line)
				}
			})
		}
	})
}

// scope is what the workload's proxy sees under the policies of a table.
func (w *world) scope(t *testing.T, tb *table) *push.Scope {
	t.Helper()
	c := push.Build(nil, w.inputs(t, tb))
	n := goldentest.Proxy{Name: "web-1", Namespace: "shop", Addresses: []string{"10.0.0.9"},
		Labels: map[string]string{"app": "web"}}.Node(t)
	return c.Scope(c.Classify(n))
}

// inputs are what a table says.
func (w *world) inputs(t *testing.T, tb *table) push.Inputs {
	t.Helper()
	result := config.Parse("config.yaml", []byte(base+harness.Expand(t, tb.part("policies.yaml"))))
	for _, p := range result.Problems {
		if p.Severity == feed.Error {
			t.Fatalf("%s: %v", tb.name, p)
		}
	}
	in := goldentest.Inputs(t, result.Objects, goldentest.Counting)
	if text := tb.part("mesh.yaml"); text != "" {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		m, problems := config.ParseMesh("mesh.yaml", doc.Content[0])
		if len(problems) > 0 {
			t.Fatalf("%s: %v", tb.name, problems)
		}
		in.Mesh.Config = m
	}
	in.Trust = w.trust(t, tb)
	return in
}

// archive is a table without calls, in a mesh that has a provider.
func archive(policies, revoked string) *txtar.Archive {
	const mesh = "extensionProviders: [{name: judge, envoyExtAuthzHttp: {service: judge.example, port: 80, includeRequestHeadersInCheck: [x-pass]}}]"
	return &txtar.Archive{Files: []txtar.File{
		{Name: "policies.yaml", Data: []byte(policies)}, {Name: "revoked", Data: []byte(revoked)}, {Name: "mesh.yaml", Data: []byte(mesh)},
	}}
}

// trust is what a table's part revoked says.
func (w *world) trust(t *testing.T, tb *table) *push.Trust {
	t.Helper()
	out := &push.Trust{}
	for line := range strings.Lines(tb.part("revoked")) {
		switch what, name, _ := strings.Cut(strings.TrimSpace(line), " "); what {
		case "identity":
			out.Identities = append(out.Identities, identity(t, name).String())
		case "certificate":
			out.Certificates = append(out.Certificates, digest(w.certificate(t, name)))
		default:
			t.Fatalf("%s: cannot read %q", tb.name, line)
		}
	}
	return out
}

// backends are the workload and the providers of CUSTOM policies.
func (w *world) backends(t *testing.T) []*clusterv3.Cluster {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-saw-user", r.Header.Get("x-user"))
	}))
	t.Cleanup(web.Close)
	judge := httptest.NewServer(http.HandlerFunc(judgeRequest))
	t.Cleanup(judge.Close)
	return []*clusterv3.Cluster{
		cluster(t, "inbound|8080||", web.Listener.Addr().String(), false),
		cluster(t, "inbound|9000||", lineServer(t), false),
		cluster(t, "outbound|80||judge.example", judge.Listener.Addr().String(), false),
		cluster(t, "outbound|90||judge.example", grpcJudge(t), true),
	}
}

// call makes one call and compares its answer.
func (w *world) call(t *testing.T, tb *table, line string) {
	t.Helper()
	what, want, ok := strings.Cut(line, " -> ")
	fields := strings.Fields(what)
	if !ok || len(fields) < 2 {
		t.Fatalf("cannot read %q", line)
	}
	from := fields[0]
	got := ""
	if fields[1] == "tcp" {
		got = w.connect(t, tb, from, fields[2:])
	} else {
		got = w.request(t, tb, from, fields[1:])
	}
	if got != want {
		t.Errorf("%s: got %s", line, got)
	}
}

// request sends a request, and returns the status of its answer.
func (w *world) request(t *testing.T, tb *table, from string, fields []string) string {
	t.Helper()
	for i := range fields {
		fields[i] = harness.Expand(t, fields[i])
	}
	req, err := http.NewRequest(fields[0], "http://"+address+fields[2], nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = fields[1]
	name, protocols := "", &http.Protocols{}
	protocols.SetHTTP1(true)
	for _, h := range fields[3:] {
		key, value, _ := strings.Cut(h, "=")
		switch key {
		case "sni":
			name = value
		case "protocol":
			protocols.SetUnencryptedHTTP2(value == "h2")
		default:
			req.Header.Add(key, value)
		}
	}
	client := &http.Client{Transport: &http.Transport{
		Protocols:         protocols,
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.dial(ctx, t, tb.http, from, name)
		},
	}, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	if err := resp.Body.Close(); err != nil {
		return err.Error()
	}
	out := strconv.Itoa(resp.StatusCode)
	if user := resp.Header.Get("x-saw-user"); user != "" {
		out += " " + user
	}
	return out
}

// connect returns whether a connection is served: "open" or "closed".
func (w *world) connect(t *testing.T, tb *table, from string, fields []string) string {
	t.Helper()
	name := ""
	for _, f := range fields {
		name = strings.TrimPrefix(f, "sni=")
	}
	conn, err := w.dial(t.Context(), t, tb.tcp, from, name)
	if err != nil {
		return "closed"
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err.Error()
	}
	const want = greeting + "hello\n"
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return "closed"
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		return "closed"
	}
	return "open"
}

// dial connects as a caller, waiting for Envoy to start.
func (w *world) dial(ctx context.Context, t *testing.T, port uint32, from, name string) (net.Conn, error) {
	who, source, _ := strings.Cut(from, "@")
	d := &net.Dialer{}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	to := fmt.Sprintf("%s:%d", address, port)
	conn, err := d.DialContext(ctx, "tcp", to)
	for err != nil && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		conn, err = d.DialContext(ctx, "tcp", to)
	}
	if err != nil || !isTLS(who) {
		return conn, err
	}
	c := tls.Client(conn, &tls.Config{
		ServerName:            name,
		Certificates:          []tls.Certificate{*w.certificate(t, who)},
		InsecureSkipVerify:    true, // its name is none of DNS: VerifyPeerCertificate looks at the chain
		VerifyPeerCertificate: w.verify,
	})
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error says it all
		return nil, err
	}
	return c, nil
}

// verify looks whether a certificate is of the authority.
func (w *world) verify(raw [][]byte, _ [][]*x509.Certificate) error {
	leaf, err := x509.ParseCertificate(raw[0])
	if err != nil {
		return err
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: w.pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func keyOf(t *testing.T, c *tls.Certificate) crypto.Signer {
	t.Helper()
	key, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		t.Fatal("the key cannot sign")
	}
	return key
}
