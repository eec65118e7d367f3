package mcp

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// server is a discovery server that tests script, and a Source that calls it, in a bubble of
// synctest.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t    *testing.T
	out  chan feed.Batch[*config.Object]
	pipe func(net.Conn) net.Conn // wraps the connections of the source

	deltas chan discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	states chan discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	// noDelta and noState refuse one of the two.
	noDelta, noState bool
}

// newServer starts a server and a Source. change applies to the server before.
func newServer(t *testing.T, cfg Config, change ...func(*server)) *server {
	t.Helper()
	cfg.Name, cfg.Address, cfg.NodeID, cfg.Plaintext, cfg.Log = "mcp:test", "server.test:1", "a", true, testlog.New(t)
	if cfg.Kinds == nil {
		cfg.Kinds = []string{"Gateway", "Sidecar"}
	}
	src, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, out: make(chan feed.Batch[*config.Object]), pipe: func(c net.Conn) net.Conn { return c },
		deltas: make(chan discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer), states: make(chan discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer)}
	for _, f := range change {
		f(s)
	}
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	src.dial = func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := l.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		return s.pipe(c), nil
	}
	var running sync.WaitGroup
	running.Go(func() { _ = g.Serve(l) }) // ends with Stop
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() {
		if err := src.Run(ctx, s.out); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); g.Stop(); running.Wait() })
	return s
}

// DeltaAggregatedResources hands the stream to the test, until it ends.
func (s *server) DeltaAggregatedResources(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if s.noDelta {
		return status.Error(codes.Unimplemented, "no such method")
	}
	select {
	case s.deltas <- st:
	case <-st.Context().Done():
	}
	<-st.Context().Done()
	return nil
}

func (s *server) StreamAggregatedResources(st discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if s.noState {
		return status.Error(codes.Unimplemented, "no such method")
	}
	select {
	case s.states <- st:
	case <-st.Context().Done():
	}
	<-st.Context().Done()
	return nil
}

func (s *server) next() feed.Batch[*config.Object] {
	s.t.Helper()
	select {
	case b := <-s.out:
		return b
	case <-time.After(24 * time.Hour):
		s.t.Fatal("no batch")
	}
	return feed.Batch[*config.Object]{}
}

// text describes a batch: "full: Gateway s/a; Gateway s/b invalid".
func text(b feed.Batch[*config.Object]) string {
	var out []string
	for _, u := range b.Updates {
		line := u.Group
		switch {
		case u.Unreadable:
			line += " unreadable"
		case len(u.Invalid) > 0:
			line += " invalid"
		case len(u.Items) == 0:
			line += " gone"
		}
		out = append(out, line)
	}
	slices.Sort(out)
	prefix := ""
	for _, p := range []struct {
		is   bool
		text string
	}{{b.Full, "full: "}, {b.Explicit, "explicit: "}, {b.Down != nil, fmt.Sprintf("down: %v", b.Down)}} {
		if p.is {
			prefix += p.text
		}
	}
	return prefix + strings.Join(out, "; ")
}

func (s *server) want(texts ...string) {
	s.t.Helper()
	for _, want := range texts {
		if got := text(s.next()); got != want {
			s.t.Errorf("got %q, want %q", got, want)
		}
	}
}

const (
	gatewayV1, gatewayBeta, gatewayAlpha = "networking.istio.io/v1/Gateway", "networking.istio.io/v1beta1/Gateway", "networking.istio.io/v1alpha3/Gateway"
	sidecarV1                            = "networking.istio.io/v1/Sidecar"
)

// gateway is a resource: a Gateway with a host, which is invalid when that is empty.
func gateway(name, host string, labels ...string) *anypb.Any {
	g := &networking.Gateway{Servers: []*networking.Server{{Port: &networking.Port{Number: 80, Name: "http",
		Protocol: "HTTP"}}}}
	if host != "" {
		g.Servers[0].Hosts = []string{host}
	}
	body, err := anypb.New(g)
	if err != nil {
		panic(err) // a Gateway can be encoded
	}
	m := &mcpv1.Metadata{Name: name, Labels: map[string]string{}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		m.Labels[k] = v
	}
	res, err := anypb.New(&mcpv1.Resource{Metadata: m, Body: body})
	if err != nil {
		panic(err)
	}
	return res
}

// deltaStream is a delta stream as the server sees it.
type deltaStream struct {
	*testing.T
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	nonce int
}

func (s *server) delta() *deltaStream {
	return &deltaStream{T: s.t, AggregatedDiscoveryService_DeltaAggregatedResourcesServer: <-s.deltas}
}

// asked reads requests, and fails the test unless they are these: "TYPE", "TYPE ack", "TYPE nack".
func (d *deltaStream) asked(want ...string) *discoveryv3.DeltaDiscoveryRequest {
	d.Helper()
	var last *discoveryv3.DeltaDiscoveryRequest
	for _, w := range want {
		r, err := d.Recv()
		if err != nil {
			d.Fatal(err)
		}
		got := r.TypeUrl
		switch {
		case r.ErrorDetail != nil:
			got += " nack"
		case r.ResponseNonce != "":
			got += " ack"
		}
		if got != w {
			d.Errorf("the source sent %q, want %q", got, w)
		}
		last = r
	}
	return last
}

// say sends resources, by name, and removes names.
func (d *deltaStream) say(typeURL string, resources map[string]*anypb.Any, removed ...string) {
	d.Helper()
	d.nonce++
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: fmt.Sprint(d.nonce), RemovedResources: removed}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Resource: resources[name]})
	}
	if err := d.Send(r); err != nil {
		d.Fatal(err)
	}
}

type set = map[string]*anypb.Any

// Everything arrives as one batch when all kinds are answered, then changes, and removals as
// explicit ones. Versions that the server does not know are passed over.
func TestDelta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{})
		d := s.delta()
		if r := d.asked(gatewayV1); r.Node == nil || r.Node.Metadata.Fields["GENERATOR"].GetStringValue() != "api" {
			t.Errorf("the first request has the node %v", r.Node)
		}
		d.asked(sidecarV1)
		d.say(gatewayV1, nil)
		d.asked(gatewayV1+" ack", gatewayBeta)
		d.say(gatewayBeta, set{"s/a": gateway("s/a", "a.test"), "s/b": gateway("s/b", "b.test")})
		d.asked(gatewayBeta + " ack")
		d.say(sidecarV1, nil)
		d.asked(sidecarV1+" ack", "networking.istio.io/v1beta1/Sidecar")
		d.say("networking.istio.io/v1beta1/Sidecar", nil)
		d.asked("networking.istio.io/v1beta1/Sidecar ack", "networking.istio.io/v1alpha3/Sidecar")
		d.say("networking.istio.io/v1alpha3/Sidecar", nil)
		s.want("full: Gateway s/a; Gateway s/b")
		d.asked("networking.istio.io/v1alpha3/Sidecar ack")
		d.say(gatewayBeta, set{"s/a": gateway("s/a", "other.test"), "s/b": gateway("s/b", "b.test")})
		s.want("Gateway s/a")
		d.say(gatewayBeta, set{"s/c": gateway("s/c", "c.test")}, "s/a", "s/unknown")
		s.want("Gateway s/c", "explicit: Gateway s/a gone")
		d.say("networking.istio.io/v9/Gateway", set{"s/x": gateway("s/x", "x.test")}) // ignored
		d.say(gatewayBeta, nil, "s/b")
		s.want("explicit: Gateway s/b gone")
	})
}

// Over state of the world each answer is everything of its type: what is missing is gone, and that
// is not explicit.
func TestStateOfTheWorld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}}}, func(s *server) { s.noDelta = true })
		st := <-s.states
		recv := func(want string) {
			t.Helper()
			r, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s %q %q", r.TypeUrl, r.ResponseNonce, r.VersionInfo); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		say := func(version string, resources ...*anypb.Any) {
			t.Helper()
			if err := st.Send(&discoveryv3.DiscoveryResponse{TypeUrl: gatewayV1, VersionInfo: version,
				Nonce: "n" + version, Resources: resources}); err != nil {
				t.Fatal(err)
			}
		}
		recv(gatewayV1 + ` "" ""`)
		say("1", gateway("s/a", "a.test"), gateway("s/b", "b.test"))
		s.want("full: Gateway s/a; Gateway s/b")
		recv(gatewayV1 + ` "n1" "1"`)
		say("2", gateway("s/b", "b.test"), gateway("s/c", ""))
		s.want("Gateway s/c invalid", "Gateway s/a gone")
		recv(gatewayV1 + ` "n2" "1"`)
		say("3", gateway("s/b", "b.test"))
		s.want("Gateway s/c gone")
	})
}

// What is not valid is refused to the server, which does not end in a loop, and is a problem of its
// object.
func TestInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}}})
		d := s.delta()
		d.asked(gatewayV1)
		wrongBody := gateway("s/w", "w.test")
		res := &mcpv1.Resource{}
		if err := wrongBody.UnmarshalTo(res); err != nil {
			t.Fatal(err)
		}
		res.Body.TypeUrl = "type.googleapis.com/istio.networking.v1alpha3.Sidecar"
		if err := wrongBody.MarshalFrom(res); err != nil {
			t.Fatal(err)
		}
		bad := set{
			"s/a": gateway("s/a", ""), "s/b": gateway("s/other", "b.test"), "s/c": {TypeUrl: resourceType, Value: []byte{0xff}},
			"s/d": {TypeUrl: "type.googleapis.com/x"}, "s/w": wrongBody, "odd": gateway("odd", "x"), "s/good": gateway("s/good", "good.test"),
		}
		d.say(gatewayV1, bad)
		b := s.next()
		want := "full: Gateway odd unreadable; Gateway s/a invalid; Gateway s/b unreadable; Gateway s/c invalid; Gateway s/d invalid; Gateway s/good; Gateway s/w invalid"
		if got := text(b); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, u := range b.Updates {
			if (feed.Errors(u.Problems) == 0) != (len(u.Items) == 1) {
				t.Errorf("%s has the problems %v", u.Group, u.Problems)
			}
		}
		if r := d.asked(gatewayV1 + " nack"); !strings.Contains(r.ErrorDetail.Message, "invalid resources (6): ") {
			t.Errorf("the server is told %q", r.ErrorDetail.Message)
		}
		d.say(gatewayV1, bad) // at once again
		d.asked(gatewayV1 + " ack")
		d.say(gatewayV1, set{"s/a": gateway("s/a", "a.test")})
		s.want("Gateway s/a")
		d.asked(gatewayV1 + " ack")
	})
}

// While the server is away the source is down; afterwards it sends everything again.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn net.Conn
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}}}, func(s *server) {
			s.pipe = func(c net.Conn) net.Conn { conn = c; return c }
		})
		d := s.delta()
		d.asked(gatewayV1)
		d.say(gatewayV1, set{"s/a": gateway("s/a", "a.test")})
		s.want("full: Gateway s/a")
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if b := s.next(); b.Down == nil || !strings.Contains(b.Down.Error(),
			"the server server.test:1 cannot be used") || b.Full {
			t.Errorf("got %q, want that it is down", text(b))
		}
		d = s.delta()
		d.asked(gatewayV1)
		d.say(gatewayV1, set{"s/b": gateway("s/b", "b.test")})
		s.want("full: Gateway s/b")
	})
}

// A server that answers nothing, too much, or nonsense is down, and the reason is reported.
func TestBadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}}, MaxObjects: 2})
		<-s.deltas
		if b := s.next(); b.Down == nil || !strings.Contains(b.Down.Error(),
			"it answers nothing within 30s") {
			t.Errorf("got %q", text(b))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}}, MaxObjects: 2})
		d := s.delta()
		d.say(gatewayV1, set{"s/a": gateway("s/a", "a"), "s/b": gateway("s/b", "b"), "s/c": gateway("s/c", "c")})
		if b := s.next(); b.Down == nil || !strings.Contains(b.Down.Error(), "more than 2 objects: subscribe to fewer kinds") {
			t.Errorf("got %q", text(b))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{}, func(s *server) { s.noDelta, s.noState = true, true })
		if b := s.next(); b.Down == nil || !strings.Contains(b.Down.Error(),
			"no such method): check that it serves configuration") {
			t.Errorf("got %q", text(b))
		}
	})
}

// Objects for another revision are left out.
func TestRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{Options: Options{Kinds: []string{"Gateway"}, Revision: "canary"}})
		d := s.delta()
		if r := d.asked(gatewayV1); r.Node.Metadata.Fields["ISTIO_REVISION"].GetStringValue() != "canary" {
			t.Errorf("the node is %v", r.Node)
		}
		d.say(gatewayV1, set{"s/a": gateway("s/a", "a.test"), "s/b": gateway("s/b", "b.test", "istio.io/rev=stable"),
			"s/c": gateway("s/c", "c.test", "istio.io/rev=canary")})
		s.want("full: Gateway s/a; Gateway s/b gone; Gateway s/c")
	})
}

// Whatever a server sends, nothing breaks, and what is used is valid.
func FuzzItem(f *testing.F) {
	f.Add("s/a", resourceType, gateway("s/a", "a.test").Value)
	f.Add("", resourceType, gateway("s/a", "").Value)
	f.Add("x", "y", []byte{0xff})
	kind, _ := config.Info(config.Gateway)
	f.Fuzz(func(t *testing.T, name, typeURL string, raw []byte) {
		r := item{kind: kind, name: name, typeURL: typeURL, raw: raw}
		u := r.update("mcp:test", "")
		for _, o := range u.Items {
			if problems, ok := config.Accept(&config.Object{Key: o.Key, Labels: o.Labels, Annotations: o.Annotations,
				Spec: proto.Clone(o.Spec)}); !ok {
				t.Errorf("%s is used: %v", o.Key, problems)
			}
		}
		if u.Group == "" || len(u.Items) == 0 && len(u.Problems) == 0 {
			t.Errorf("got %+v", u)
		}
	})
}
