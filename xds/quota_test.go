package xds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// named is a node of shop by a name that its workload makes up.
func named(t *testing.T, name string) *corev3.Node {
	n := node(t, map[string]any{})
	n.Id = xdstest.NodeID(name, "10.0.0.1")
	return n
}

// A workload has so many streams, whatever certificates and names it uses; another workload of its
// identity is served.
func TestStreamsOfOneWorkload(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, func(c *xds.Config) { c.WorkloadStreams = 2 })
	connect := func(workload, name string) (*line, error) {
		own := a.issueTo(workload, "shop", "web", time.Hour, time.Now())
		l := call(t, p, &own)
		return l, l.connects(named(t, name))
	}
	for _, workload := range []string{"shop/web-1", "shop/web-2", ""} {
		first, err := connect(workload, "a")
		if err != nil {
			t.Fatalf("workload %q: %v", workload, err)
		}
		if _, err := connect(workload, "b"); err != nil {
			t.Fatalf("workload %q, second stream: %v", workload, err)
		}
		if _, err := connect(workload,
			"c"); status.Code(err) != codes.ResourceExhausted ||
			!strings.Contains(err.Error(),
				"this workload has 2 streams, no more are served") {
			t.Errorf("workload %q, third stream: %v", workload, err)
		}
		if err := first.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if code := first.ended(); code != codes.Unknown { // io.EOF
			t.Fatal(code)
		}
		if _, err := connect(workload, "c"); err != nil {
			t.Errorf("workload %q, after one has ended: %v", workload, err)
		}
	}
}

// subscription asks for many load assignments.
func subscription(host string) *discoveryv3.DeltaDiscoveryRequest {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType}
	for i := range 15_000 {
		r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe,
			fmt.Sprintf("outbound|8080||%s-%d.some-namespace.svc.cluster.local", host, i))
	}
	return r
}

// A workload may subscribe to 15,000 names of which nothing is known. Beyond that it is refused on
// every stream, others are not, and when its streams have ended it is served again.
func TestMemoryOfOneWorkload(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, nil)
	connect := func(workload string, r *discoveryv3.DeltaDiscoveryRequest) (*line, error) {
		own := a.issueTo(workload, "shop", "web", time.Hour, time.Now())
		l := call(t, p, &own)
		if err := l.connects(named(t, "a")); err != nil {
			return nil, err
		}
		l.says(r)
		_, err := l.hears(resource.EndpointType)
		return l, err
	}
	first, err := connect("shop/web-1", subscription("gone"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = connect("shop/web-1", subscription("another"))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(),
		"take more than 12288 KiB on all of its streams") {
		t.Fatalf("as many more: %v", err)
	}
	if _, err := connect("shop/web-2", subscription("another")); err != nil {
		t.Errorf("another workload: %v", err)
	}
	first.hang()
	for begin := time.Now(); ; {
		if _, err = connect("shop/web-1", subscription("another")); err == nil {
			return
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("after its stream has ended: %v", err)
		}
	}
}

// A proxy that reconnects with 15,000 names that exist takes less than half of what its workload
// may, even while the stream that it had before is still there.
func TestMemoryOfLargeProxy(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	p := newSecurePlane(t, a, func(c *xds.Config) { c.WorkloadBytes = 8 << 20 })
	r := subscription("svc")
	r.InitialResourceVersions = map[string]string{}
	var all []*resource.Resource
	for _, name := range r.GetResourceNamesSubscribe() {
		all = append(all, xdstest.Endpoints(name, 1))
		r.InitialResourceVersions[name] = "0123456789abcdef"
	}
	p.publish(append(all, serving("a", 1)...)...)
	own := a.issueTo("shop/web-1", "shop", "web", time.Hour, time.Now())
	for range 2 { // the first stream of a proxy that lost its connection may be there still
		l := call(t, p, &own)
		if err := l.connects(named(t, "a")); err != nil {
			t.Fatal(err)
		}
		l.says(r)
		if _, err := l.hears(resource.EndpointType); err != nil {
			t.Fatal(err)
		}
	}
}
