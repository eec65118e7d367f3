package gen

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/internal/testenvoy"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// requestFiltersInside puts the filters that are fetched on their own into the list that names
// them.
func requestFiltersInside(list []*hcmv3.HttpFilter,
	filters map[string]*corev3.TypedExtensionConfig) []*hcmv3.HttpFilter {
	for _, f := range list {
		if f.GetConfigDiscovery() != nil {
			f.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: filters[f.Name].TypedConfig}
		}
	}
	return list
}

// withRoutesInside puts the route configurations and the filters that are fetched on their own into
// the listeners that name them, so that an Envoy without a control plane can run them.
func withRoutesInside(t *testing.T, g *Generator, sc *push.Scope) []*listenerv3.Listener {
	t.Helper()
	routes := decoded[*routev3.RouteConfiguration](t, g.Set(resource.RouteType, sc))
	filters := decoded[*corev3.TypedExtensionConfig](t, g.Set(resource.ExtensionConfigType, sc))
	listeners := decodeListeners(t, g.Set(resource.ListenerType, sc))
	for _, l := range listeners {
		chains := l.FilterChains
		if l.DefaultFilterChain != nil {
			chains = append(chains, l.DefaultFilterChain)
		}
		for _, c := range chains {
			for i, f := range c.Filters {
				if f.GetConfigDiscovery() != nil {
					f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: filters[f.Name].TypedConfig}
				}
				m := &hcmv3.HttpConnectionManager{}
				if !f.GetTypedConfig().MessageIs(m) {
					continue
				}
				if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
					t.Fatal(err)
				}
				if name := m.GetRds().GetRouteConfigName(); name != "" {
					m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes[name]}
				}
				m.HttpFilters = requestFiltersInside(m.HttpFilters, filters)
				c.Filters[i] = envoy.NetworkFilter(f.Name, m)
			}
		}
	}
	return listeners
}

// staticCluster leads to one address.
func staticCluster(name, to string) *clusterv3.Cluster {
	a := netip.MustParseAddrPort(to)
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
					Endpoint: &endpointv3.Endpoint{Address: envoy.SocketAddress(a.Addr().String(), uint32(a.Port()))},
				}}},
			}}},
	}
}

// runEnvoy runs an Envoy until the test ends.
func runEnvoy(t *testing.T, listeners []*listenerv3.Listener, clusters []*clusterv3.Cluster) {
	t.Helper()
	text, err := protojson.Marshal(&bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{Listeners: listeners, Clusters: clusters}})
	if err != nil {
		t.Fatal(err)
	}
	testenvoy.Start(t, text, "--log-level", "warning", "--file-flush-interval-msec", "50", "--service-node", "test",
		"--service-cluster", "test")
}

// dialUntil connects, waiting for the listener to open.
func dialUntil(t *testing.T, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() }) // may be closed already
			return conn
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s does not open: %v", address, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tcpServer says its name and the first line that it is sent.
func tcpServer(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				_, _ = fmt.Fprintf(conn, "%s got %s", name, line) // the client says what it misses
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// The real Envoy sends connections where the listeners say: HTTP and TCP on one port by what is
// spoken, TLS by name, requests of HTTP proxies by URL, and logs each.
func TestEnvoyListensAsPlanned(t *testing.T) {
	t.Parallel()
	const address = "127.201.7.3"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprintf(w, "web got %s", r.URL.Path)
	}))
	t.Cleanup(web.Close)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "secure")
	}))
	t.Cleanup(secure.Close)
	hidden := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "hidden")
	}))
	t.Cleanup(hidden.Close)

	sc := gentest.Scope(gentest.Egress(nil,
		gentest.Service("web.example", 1, "", "http/18080"), gentest.Service("raw.example", 1, "", "tcp/18080"),
		gentest.Service("secure.example", 1, "", "tls/18443"), gentest.Service("hidden.example", 1, "", "https/18443"),
	))
	sc.Interception, sc.Bind, sc.HTTPProxyPort = push.None, netip.MustParseAddr(address), 18002
	log := filepath.Join(t.TempDir(), "access.log")
	sc.Mesh.Config.AccessLogFile = log
	runEnvoy(t, withRoutesInside(t, New(), sc), []*clusterv3.Cluster{
		staticCluster("outbound|18080||web.example", web.Listener.Addr().String()),
		staticCluster("outbound|18080||raw.example", tcpServer(t, "raw")),
		staticCluster("outbound|18443||secure.example", secure.Listener.Addr().String()),
		staticCluster("outbound|18443||hidden.example", hidden.Listener.Addr().String()),
	})

	conn := dialUntil(t, address+":18080")
	if _, err := io.WriteString(conn, "hello there\n"); err != nil {
		t.Fatal(err)
	}
	expectText(t, "tcp", conn, "raw got hello there\n")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}

	get := func(name string, client *http.Client, target, want string) {
		t.Helper()
		resp, err := client.Get(target)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		expectText(t, name, resp.Body, want)
		if err := resp.Body.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	through := func(port string) *http.Client {
		return &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the name is what is tried, not the certificate
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", address+":"+port)
			},
		}}
	}
	get("http", through("18080"), "http://web.example:18080/path", "web got /path")
	get("tls by name", through("18443"), "https://secure.example:18443/", "secure")
	get("tls by another name", through("18443"), "https://hidden.example:18443/", "hidden")
	proxy := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address + ":18002"})}}
	get("http proxy", proxy, "http://web.example:18080/proxied", "web got /proxied")
	if _, err := through("18443").Get("https://unknown.example:18443/"); err == nil {
		t.Error("a name that nobody has: got an answer, want a closed connection")
	}
	expectInLog(t, log, `"GET /path HTTP/1.1" 200`, `"GET /proxied HTTP/1.1" 200`, "NR filter_chain_not_found",
		"outbound|18080||raw.example")
}

func expectText(t *testing.T, name string, r io.Reader, want string) {
	t.Helper()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
	}
}

// expectInLog waits for lines, which Envoy writes a little late.
func expectInLog(t *testing.T, file string, want ...string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		text, err := os.ReadFile(file)
		missing := ""
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the access log lacks %q (%v):\n%s", missing, err, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
