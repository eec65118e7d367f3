package xds_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what weak references held goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// A stream at rest costs little: what equal proxies have, they share. The bound holds both ends of
// the connection, of which gRPC's buffers and goroutines are nearly all.
func TestMemoryOfStreams(t *testing.T) {
	const streams, clusters = 100, 1000
	p := newPlane(t, nil, testport.Address(t), nil)
	var world []*resource.Resource
	for i := range clusters {
		world = append(world, serving(fmt.Sprintf("outbound|80||service-%d.shop.svc.cluster.local", i), 1)...)
	}
	p.publish(world...)
	names := make([]string, clusters)
	for i := range names {
		names[i] = world[2*i].Name
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := heap()
	conns := make([]*grpc.ClientConn, streams)
	for i := range streams {
		conns[i] = attach(t, ctx, p.addr, i, slices.Clone(names))
		defer conns[i].Close()
	}
	eventually(t, func() string { return latest(p.server) })
	each := (heap() - before) / streams
	t.Logf("%d bytes a stream, both ends", each)
	if each > 200<<10 {
		t.Errorf("a stream at rest costs %d bytes, want at most 200 KiB", each)
	}
}

// attach opens a stream that acknowledges its clusters and endpoints and forgets them.
func attach(t *testing.T, ctx context.Context, addr string, i int, names []string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev3.Node{Id: xdstest.NodeID(fmt.Sprint("web", i), "10.0.0.1")}
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{{Node: node, TypeUrl: resource.ClusterType},
		{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names}} {
		if err := st.Send(r); err != nil {
			t.Fatal(err)
		}
		m, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Resources) != len(names) {
			t.Fatalf("%d resources of %s, want %d", len(m.Resources), m.TypeUrl, len(names))
		}
		if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// A client that does not read stops nobody, and has the latest when it reads again.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	slow := make(chan struct{})
	stuck := func(string) { <-slow }
	e := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("slow", "10.0.0.2"),
		Answer: stuck})
	quick := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("quick", "10.0.0.1")})
	world := func(i int) []*resource.Resource {
		var out []*resource.Resource
		for c := range 500 {
			out = append(out, serving(fmt.Sprintf("%0200d", c), time.Duration(i))...)
		}
		return append(out, chain(1, fmt.Sprintf("%0200d", 0))...)
	}
	p.publish(world(1)...)
	connect(t, e)
	connect(t, quick)
	for i := 2; i < 50; i++ {
		p.publish(world(i)...)
	}
	eventually(t, func() string {
		if m := has(quick, 500, "r1", fmt.Sprintf("%0200d", 0)); m != "" {
			return "the quick one: " + m
		}
		return ""
	})
	close(slow)
	eventually(t, func() string {
		if m := latest(p.server); m != "" {
			return m
		}
		return has(e, 500, "r1", fmt.Sprintf("%0200d", 0))
	})
}

// What a proxy is sent can be read, and secrets cannot.
func TestDump(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, testport.Address(t), nil)
	e := xdstest.NewEnvoy(xdstest.Config{Addr: p.addr, ID: xdstest.NodeID("web", "10.0.0.1")})
	p.publish(slices.Concat(serving("a", 1), chain(1, "a"))...)
	connect(t, e)
	eventually(t, func() string { return has(e, 1, "r1", "a") })
	for _, id := range []string{"web.shop", xdstest.NodeID("web", "10.0.0.1")} {
		d, err := p.server.Dump(id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ty := range d {
			for _, r := range ty.Resources {
				got = append(got, fmt.Sprint(r.Name, " ", r.Version() != "", " ", len(r.Body()) > 0))
			}
		}
		want := []string{"a true true", "a true true", "l1 true true", "r1 true true"}
		if !slices.Equal(got, want) {
			t.Errorf("dump of %s is %q, want %q", id, got, want)
		}
	}
	if _, err := p.server.Dump("nobody"); err == nil || err.Error() != `no proxy "nobody" is connected` {
		t.Errorf("dump of nobody: %v", err)
	}
}
