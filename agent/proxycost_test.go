package agent

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// costExample is a proxy with a large mesh: so many clusters, endpoints and routes, of some KiB each.
func costExample(t testing.TB, dir string, each, size int) (p *proxy, bytes int) {
	t.Helper()
	p = costProxy(t, dir)
	for _, typeURL := range []string{clusterTypeURL, endpointTypeURL, routeTypeURL} {
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: "1"}
		held := p.relay.held(typeURL)
		held.all = held.kind.Wildcard
		for i := range each {
			body := make([]byte, size)
			copy(body, fmt.Sprint(typeURL, i))
			name := fmt.Sprintf("outbound|8080||service-%d.namespace-%d.svc.cluster.local", i, i%10)
			m.Resources = append(m.Resources, &discoveryv3.Resource{Name: name, Version: "1", Resource: &anypb.Any{TypeUrl: typeURL, Value: body}})
			if !held.all {
				held.names[name] = struct{}{}
			}
		}
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(raw)
		reply, err := ads.ReadReply(raw, ads.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if p.relay.up == nil {
			p.relay.connect()
		}
		p.relay.ask(held)
		if err := p.relay.take(p.relay.up, reply, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	return p, bytes
}

func costProxy(t testing.TB, dir string) *proxy {
	t.Helper()
	p, err := newProxy(proxyConfig{Node: testNode(t), Addresses: []string{"x"}, Copy: dir, Log: testlog.New(t),
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return nil, ctx.Err() }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What is held costs its bytes and little more: nothing is decoded, and no response is kept whole.
func TestProxyMemory(t *testing.T) {
	before := inUse()
	p, bytes := costExample(t, "", 3000, 2<<10)
	p.relay.up = nil // disconnected
	for _, held := range p.relay.types {
		held.target()
	}
	above := int(inUse()-before) - bytes
	t.Logf("%d bytes are held, %d more are in use: %d for each resource", bytes, above, above/9000)
	if above > 10<<20 {
		t.Errorf("%d bytes above the %d that are held", above, bytes)
	}
	runtime.KeepAlive(p)
}

// inUse is what is in use after a collection.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what weak references held goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkProxyStart is how long a proxy needs to be ready from a copy of 18 MB, and BenchmarkProxyCopy to write that.
func BenchmarkProxyStart(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "copy")
	p, bytes := costExample(b, dir, 3000, 2<<10)
	p.confirmed = time.Now()
	p.saveCopy(true)
	b.SetBytes(int64(bytes))
	for b.Loop() {
		if q := costProxy(b, dir); len(q.relay.types) != 3 {
			b.Fatal(q.Status())
		}
	}
}

func BenchmarkProxyCopy(b *testing.B) {
	p, bytes := costExample(b, filepath.Join(b.TempDir(), "copy"), 3000, 2<<10)
	p.confirmed = time.Now()
	b.SetBytes(int64(bytes))
	for b.Loop() {
		p.saveCopy(false)
	}
}
