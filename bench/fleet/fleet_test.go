package fleet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	_ "github.com/ashore-mesh/ashore/xds/envoytypes" // for the values of EnvoyFilters
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// delta is a response with one resource.
func delta(t *testing.T, typeURL, name string, m proto.Message) []byte {
	t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: "n",
		Resources: []*discoveryv3.Resource{{Name: name, Version: "1", Resource: body}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// smallMesh is a recording with one resource of each type, all of service 0.
func smallMesh(t *testing.T, s Shape) *Recording {
	t.Helper()
	name := fmt.Sprintf("outbound|8080||%s", s.Host(0))
	manager, err := anypb.New(&hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "8080"}}})
	if err != nil {
		t.Fatal(err)
	}
	filter := &listenerv3.Filter{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}}
	judge := &listenerv3.Filter{Name: "deny",
		ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{}}}
	address := &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: "10.0.0.1"}}}
	endpoint := &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}}}
	return &Recording{shape: s, first: map[string][]byte{
		cdsType: delta(t, cdsType, name, &clusterv3.Cluster{Name: name,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}),
		EDS: delta(t, EDS, name, &endpointv3.ClusterLoadAssignment{ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{endpoint}}}}),
		ldsType: delta(t, ldsType, "0.0.0.0_8080", &listenerv3.Listener{Name: "0.0.0.0_8080",
			FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{judge, filter}}}}),
		rdsType: delta(t, rdsType, "8080", &routev3.RouteConfiguration{Name: "8080"}),
		ecdsType: delta(t, ecdsType, "deny", &corev3.TypedExtensionConfig{Name: "deny",
			TypedConfig: &anypb.Any{Value: []byte(firstPolicy)}}),
	}}
}

// serveFloor runs a floor until the test ends and returns its address.
func serveFloor(t *testing.T, rec *Recording, dir string, a *Authority) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	floor, err := NewFloor(rec, a)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- floor.Run(ctx, l, dir) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the floor ended with %v", err)
		}
	})
	return l.Addr().String()
}

// Every proxy converges in every phase, what was recorded of a floor is what the floor has, and
// nothing is left running.
func TestRunOnFloor(t *testing.T) {
	t.Parallel()
	shape := Shape{Services: 10, Endpoints: 2, Namespaces: 1}
	dir := filepath.Join(t.TempDir(), "files")
	if err := shape.Write(dir); err != nil {
		t.Fatal(err)
	}
	rec := smallMesh(t, shape)
	addr := serveFloor(t, rec, dir, nil)

	again, err := Record(t.Context(), addr, shape, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rec.first, again.first); d != "" {
		t.Errorf("recorded from the floor (-want +got):\n%s", d)
	}

	// The eighth change of churn is of service 0, whose assignment is the only one recorded.
	got, err := Run(t.Context(), RunConfig{Shape: shape, Addr: addr, PID: os.Getpid(), Proxies: 3,
		Timeout: 20 * time.Second, Settle: time.Millisecond, Changes: shape.FileChanges(dir, 3, 2, 8)})
	if err != nil {
		t.Fatal(err)
	}
	var phases []string
	for _, f := range got.Phases {
		phases = append(phases, f.Phase)
		if f.Missing != 0 || f.MaxMs <= 0 || f.PeakMB <= 0 || f.RecvMB == 0 {
			t.Errorf("phase %+v: want no proxy missing and all figures", f)
		}
	}
	if want := "[connect endpoint endpoint route route churn]"; fmt.Sprint(phases) != want {
		t.Errorf("phases %v, want %s", phases, want)
	}
	if got.LostStreams != 0 {
		t.Errorf("%d streams lost: %s", got.LostStreams, got.LastError)
	}
}

// By mutual TLS every proxy converges too, policies included, and who has no certificate of the
// mesh is served nothing.
func TestRunByTLS(t *testing.T) {
	t.Parallel()
	shape := Shape{Services: 10, Endpoints: 2, Namespaces: 1, Policies: 3}
	dir := filepath.Join(t.TempDir(), "files")
	if err := shape.Write(dir); err != nil {
		t.Fatal(err)
	}
	ours, others := testAuthority(t), testAuthority(t)
	rec := smallMesh(t, shape)
	addr := serveFloor(t, rec, dir, ours)
	if again, err := Record(t.Context(), addr, shape, ours); err != nil {
		t.Fatal(err)
	} else if d := cmp.Diff(rec.first, again.first); d != "" {
		t.Fatalf("recorded from the floor (-want +got):\n%s", d)
	}
	cfg := RunConfig{Shape: shape, Addr: addr, Authority: ours, PID: os.Getpid(), Proxies: 3,
		Timeout: 20 * time.Second, Settle: time.Millisecond, Changes: shape.FileChanges(dir, 3, 2, 0)}
	got, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var phases []string
	for _, f := range got.Phases {
		phases = append(phases, f.Phase)
		if f.Missing != 0 {
			t.Errorf("phase %+v: a proxy is missing", f)
		}
	}
	if want := "[connect endpoint endpoint route route policy policy]"; fmt.Sprint(phases) != want ||
		got.LostStreams != 0 {
		t.Errorf("phases %v, %d streams lost: want %s", phases, got.LostStreams, want)
	}
	for name, a := range map[string]*Authority{"another authority": others, "plaintext": nil} {
		cfg.Authority, cfg.Timeout, cfg.Changes = a, 50*time.Millisecond, nil
		if got, err := Run(t.Context(), cfg); err != nil || got.Phases[0].Missing != 3 {
			t.Errorf("%s: %+v, %v: want all proxies missing", name, got, err)
		}
	}
}

func testAuthority(t *testing.T) *Authority {
	t.Helper()
	dir := t.TempDir()
	if err := WriteAuthority(dir); err != nil {
		t.Fatal(err)
	}
	a, err := OpenAuthority(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A proxy that is sent nothing is counted as missing; a server that is gone is no reason to wait
// for ever.
func TestRunAgainstNobody(t *testing.T) {
	t.Parallel()
	shape := Shape{Services: 1, Endpoints: 1, Namespaces: 1}
	got, err := Run(t.Context(), RunConfig{Shape: shape, Addr: "127.0.0.1:1", PID: os.Getpid(), Proxies: 2,
		Timeout: 50 * time.Millisecond, Settle: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if f := got.Phases[0]; f.Missing != 2 {
		t.Errorf("%d proxies missing, want 2", f.Missing)
	}
	if got.LostStreams == 0 || got.LastError == "" {
		t.Errorf("%d streams lost, last error %q: want some and why", got.LostStreams, got.LastError)
	}
}

func TestCostOfNobody(t *testing.T) {
	t.Parallel()
	if _, err := CostOf(1 << 30); err == nil {
		t.Error("no error")
	}
}

// What the yardstick writes is right: a mistake in it would be measured as speed.
func TestShapeIsValid(t *testing.T) {
	t.Parallel()
	shape := Shape{Services: 20, Endpoints: 3, Namespaces: 2, Scoped: true, Policies: 5, Filters: 4}
	dir := t.TempDir()
	if err := shape.Write(dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) != 20+2+2+5+1+4 {
		t.Fatalf("%d files, %v; want 20 services, 2 routes, 2 sidecars, 5 policies, strict mutual TLS and 4 filters",
			len(files), err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if r := config.Parse(f, data); feed.Errors(r.Problems) > 0 || len(r.Objects) == 0 {
			t.Errorf("%s: %d objects, problems %v", f, len(r.Objects), r.Problems)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{0x0a, 1, 'v', 0x22, 1, 't'})
	f.Fuzz(func(_ *testing.T, b []byte) {
		parse(b)
		assignmentOf(b)
	})
}
