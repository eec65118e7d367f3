package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// replica is one real control plane whose resources are given by hand.
type replica struct {
	t       *testing.T
	address string
	server  *xds.Server
	mesh    *xdstest.Mesh
	sets    map[string]resource.Set
	counts  *pushCounts
	stop    func()
}

// pushCounts counts the bytes of responses by wire.
type pushCounts struct {
	mu  sync.Mutex
	out int // guarded by mu: messages sent
}

func (c *pushCounts) sent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out
}

// countingStream counts what is sent.
type countingStream struct {
	grpc.ServerStream
	counts *pushCounts
}

func (s countingStream) SendMsg(m any) error {
	s.counts.mu.Lock()
	s.counts.out++
	s.counts.mu.Unlock()
	return s.ServerStream.SendMsg(m)
}

// startReplica serves until the test ends or stop is called. A replica that published nothing is not ready.
func startReplica(t *testing.T, address string, resources ...*resource.Resource) *replica {
	t.Helper()
	r := &replica{t: t, address: address, mesh: xdstest.NewMesh(), counts: &pushCounts{}}
	var err error
	if r.server, err = xds.New(xds.Config{Generator: r.mesh, Log: testlog.New(t).Named(address)}); err != nil {
		t.Fatal(err)
	}
	if len(resources) > 0 {
		r.publish(resources...)
	}
	var l net.Listener
	becomesTrue(t, func() string {
		if l, err = net.Listen("tcp", address); err != nil {
			return err.Error()
		}
		return ""
	})
	g := grpc.NewServer(append(xds.ServerOptions(), grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return h(srv, countingStream{ss, r.counts})
	}))...)
	r.server.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = r.server.Run(ctx) })
	group.Go(func() { _ = g.Serve(l) })
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			g.Stop()
			group.Wait()
		})
	}
	t.Cleanup(r.stop)
	return r
}

func (r *replica) publish(resources ...*resource.Resource) {
	r.sets = xdstest.Layers(r.sets, resources...)
	r.server.Publish(r.mesh.Context(r.sets), time.Now())
}

// latest says what the control plane believes to be missing at its proxies.
func (r *replica) latest() string {
	proxies := r.server.Proxies()
	if len(proxies) == 0 {
		return r.address + " has no proxies"
	}
	for _, p := range proxies {
		for _, ty := range p.Types {
			if !ty.Latest {
				return fmt.Sprintf("%s lacks %s: %+v", p.ID, ty.TypeURL, ty.Status)
			}
		}
	}
	return ""
}

// refusals are what the control plane shows as refused, as "name: words".
func (r *replica) refusals() []string {
	var out []string
	for _, p := range r.server.Proxies() {
		for _, ty := range p.Types {
			for _, f := range ty.Refusals {
				out = append(out, f.Name+": "+f.Words)
			}
		}
	}
	slices.Sort(out)
	return out
}

// becomesTrue fails when check still says something after a long time.
func becomesTrue(t *testing.T, check func() string) {
	t.Helper()
	said := ""
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
		if said = check(); said == "" {
			return
		}
	}
	t.Fatalf("still: %s", said)
}

// proxied is a proxy with the server that Envoy talks to.
type proxied struct {
	*proxy
	socket string
	stop   func()
}

// testNode is how the Envoy of these tests introduces itself.
func testNode(t testing.TB) *corev3.Node {
	meta, err := structpb.NewStruct(map[string]any{"NAMESPACE": "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Node{Id: xdstest.NodeID("web", "127.0.16.1"), Metadata: meta}
}

// startProxy runs a proxy until the test ends or stop is called.
func startProxy(t *testing.T, edit func(*proxyConfig), replicas ...string) *proxied {
	t.Helper()
	return startProxyAt(t, filepath.Join(stateFolder(t), "xds.sock"), edit, replicas...)
}

// startProxyAt is startProxy where Envoy looks for it.
func startProxyAt(t *testing.T, socket string, edit func(*proxyConfig), replicas ...string) *proxied {
	t.Helper()
	c := proxyConfig{
		Node: testNode(t), Addresses: replicas, Log: testlog.New(t),
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
	}
	if edit != nil {
		edit(&c)
	}
	p, err := newProxy(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	g := newLocalServer(p)
	group.Go(func() {
		if err := serveLocal(ctx, g, l); err != nil {
			t.Error(err)
		}
	})
	group.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			group.Wait()
		})
	}
	t.Cleanup(stop)
	return &proxied{p, "unix:" + socket, stop}
}

// envoyOn connects a fake Envoy to a proxy, again and again as the real one does, until the test ends or leave is called.
func envoyOn(t *testing.T, e *xdstest.Envoy) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			if err := e.Run(ctx); err != nil && ctx.Err() == nil && status.Code(err) != codes.Unavailable {
				t.Errorf("stream of envoy: %v", err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	var once sync.Once
	leave = func() {
		once.Do(func() {
			cancel()
			group.Wait()
		})
	}
	t.Cleanup(leave)
	return leave
}

func fakeEnvoy(p *proxied, delta bool, edit func(*xdstest.Config)) *xdstest.Envoy {
	c := xdstest.Config{Addr: p.socket, ID: xdstest.NodeID("web", "127.0.16.1"), Delta: delta}
	if edit != nil {
		edit(&c)
	}
	return xdstest.NewEnvoy(c)
}

// chain is a listener that leads by a route to a cluster, which it brings with endpoints.
func chain(i int, cluster string) []*resource.Resource {
	return []*resource.Resource{xdstest.Cluster(cluster, time.Second), xdstest.Endpoints(cluster, 1, 2),
		xdstest.Listener(fmt.Sprint("l", i), uint32(20000+i), fmt.Sprint("r", i)), xdstest.Route(fmt.Sprint("r", i), cluster)}
}

// leads says what a fake Envoy lacks of one chain.
func leads(e *xdstest.Envoy, clusters int, route, cluster string) string {
	cs := e.Clusters()
	switch {
	case len(cs) != clusters:
		return fmt.Sprintf("clusters %v, want %d", cs, clusters)
	case !cs[cluster].Active || cs[cluster].Warming:
		return fmt.Sprintf("cluster %s is not ready: %+v", cluster, cs[cluster])
	case !slices.Equal(e.Routes()[route], []string{cluster}):
		return fmt.Sprintf("routes %v, want %s to %s", e.Routes(), route, cluster)
	}
	return ""
}

// bothProtocols runs a test with an Envoy of the incremental protocol and with one of state of the world.
func bothProtocols(t *testing.T, f func(t *testing.T, delta bool)) {
	for name, delta := range map[string]bool{"delta": true, "states": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, delta)
		})
	}
}

// What is changed in one edit reaches Envoy in the control plane's order: no listener ever leads nowhere. A second Envoy is
// served from memory, and the control plane notices nothing of that.
func TestProxyServes(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, delta bool) {
		r := startReplica(t, testport.Address(t), chain(1, "c0")...)
		p := startProxy(t, nil, r.address)
		e := fakeEnvoy(p, delta, nil)
		leave := envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
		for i := 1; i < 20; i++ {
			c := fmt.Sprint("c", i)
			r.publish(chain(1, c)...)
			if i%3 == 0 {
				continue // the next change comes at once
			}
			becomesTrue(t, func() string { return leads(e, 1, "r1", c) })
		}
		becomesTrue(t, r.latest)
		for _, b := range e.Broken() {
			t.Error(b)
		}
		leave()
		sent := r.counts.sent()
		again := fakeEnvoy(p, delta, nil)
		envoyOn(t, again)
		becomesTrue(t, func() string { return leads(again, 1, "r1", "c19") })
		if n := r.counts.sent() - sent; n != 0 {
			t.Errorf("a new Envoy cost the control plane %d responses", n)
		}
	})
}

// A control plane that comes back, or another replica, is sent to, and sends, nothing that did not change.
func TestProxyMoves(t *testing.T) {
	t.Parallel()
	a, b := testport.Address(t), testport.Address(t)
	first := startReplica(t, a, chain(1, "c0")...)
	p := startProxy(t, nil, a, b)
	e := fakeEnvoy(p, true, nil)
	envoyOn(t, e)
	becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
	becomesTrue(t, first.latest)
	received := fmt.Sprint(e.Received())

	first.stop()
	second := startReplica(t, b, chain(1, "c0")...)
	becomesTrue(t, func() string {
		if n := len(second.server.Proxies()); n != 1 || len(second.server.Proxies()[0].Types) < 4 {
			return fmt.Sprintf("%+v", second.server.Proxies())
		}
		return second.latest()
	})
	if n := second.counts.sent(); n != 0 {
		t.Errorf("the other replica sent %d responses, want none", n)
	}
	if got := fmt.Sprint(e.Received()); got != received {
		t.Errorf("Envoy received %s, before %s", got, received)
	}
	second.publish(chain(1, "c1")...)
	becomesTrue(t, func() string { return leads(e, 1, "r1", "c1") })
	if got := p.Status(); got.Connected != b {
		t.Errorf("status says connected to %q, want %q", got.Connected, b)
	}
}

// A replica that is not ready is left for the next one.
func TestProxyLeavesUnready(t *testing.T) {
	t.Parallel()
	a, b := testport.Address(t), testport.Address(t)
	startReplica(t, a)
	startReplica(t, b, chain(1, "c0")...)
	for range 3 { // whichever is tried first
		p := startProxy(t, nil, a, b)
		e := fakeEnvoy(p, true, nil)
		leave := envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
		leave()
		p.stop()
	}
}

// The control plane hears that a route is there when Envoy says so, not before.
func TestProxyAcknowledgesForEnvoy(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, delta bool) {
		r := startReplica(t, testport.Address(t), append(chain(1, "c0"), chain(2, "c1")...)...)
		p := startProxy(t, nil, r.address)
		gate := make(chan struct{})
		var once sync.Once
		open := func() { once.Do(func() { close(gate) }) }
		defer open()
		var shut sync.Mutex
		closed := false
		e := fakeEnvoy(p, delta, func(c *xdstest.Config) {
			c.Answer = func(typeURL string) {
				shut.Lock()
				wait := closed && typeURL == xds.RouteType
				shut.Unlock()
				if wait {
					<-gate
				}
			}
		})
		envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 2, "r1", "c0") })
		becomesTrue(t, r.latest)
		shut.Lock()
		closed = true
		shut.Unlock()
		before := e.Received()[xds.RouteType]
		world := append(chain(1, "c0"), chain(2, "c1")...)
		world[3] = xdstest.Route("r1", "c1")
		r.publish(world...)
		becomesTrue(t, func() string {
			if e.Received()[xds.RouteType] == before {
				return "the route did not arrive"
			}
			return ""
		})
		for range 20 {
			if r.latest() == "" {
				t.Fatal("the route is acknowledged before Envoy did")
			}
			time.Sleep(5 * time.Millisecond)
		}
		open()
		becomesTrue(t, r.latest)
	})
}

// An Envoy that comes back after more than one change gets them in an order in which no listener leads nowhere. (Not so in state
// of the world: a response that has to hold everything cannot hold what is gone.)
func TestProxyCatchesUp(t *testing.T) {
	t.Parallel()
	r := startReplica(t, testport.Address(t), chain(1, "c0")...)
	p := startProxy(t, nil, r.address)
	e := fakeEnvoy(p, true, nil)
	leave := envoyOn(t, e)
	becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
	for i := 1; i <= 4; i++ {
		leave()
		for k := range 3 {
			world := chain(1, fmt.Sprintf("c%d-%d", i, k))
			world[2] = xdstest.Listener("l1", uint32(21000+i), "r1")
			r.publish(world...)
			becomesTrue(t, func() string {
				if got := r.refusals(); len(got) > 0 {
					return fmt.Sprint(got)
				}
				return r.latest()
			})
		}
		leave = envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 1, "r1", fmt.Sprintf("c%d-2", i)) })
		becomesTrue(t, r.latest)
	}
	for _, b := range e.Broken() {
		t.Error(b)
	}
}

// What Envoy refuses is shown upstream with its words; it keeps what it had, and so does its successor. Another replica hears
// the same without asking Envoy. The repair arrives.
func TestProxyRefusal(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, delta bool) {
		a, b := testport.Address(t), testport.Address(t)
		r := startReplica(t, a, append(chain(1, "c0"), chain(2, "d0")...)...)
		p := startProxy(t, nil, a, b)
		bad := xdstest.Route("r2", "c0")
		reject := func(c *xdstest.Config) {
			c.Reject = func(_, name string, body []byte) string {
				if name == "r2" && string(body) == string(bad.Body()) {
					return "r2 is bad"
				}
				return ""
			}
		}
		e := fakeEnvoy(p, delta, reject)
		leave := envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 2, "r2", "d0") })

		world := append(chain(1, "c0"), chain(2, "d0")...)
		world[7], world[3] = bad, xdstest.Route("r1", "d0")
		r.publish(world...)
		becomesTrue(t, func() string { return leads(e, 2, "r1", "d0") })
		shown := func(r *replica) func() string {
			return func() string {
				if got := r.refusals(); len(got) != 1 || !strings.HasPrefix(got[0], "r2: ") || !strings.Contains(got[0], "r2 is bad") {
					return fmt.Sprintf("refusals %q", got)
				}
				return r.latest()
			}
		}
		becomesTrue(t, shown(r))
		if got := p.Status(); got.Refused != 1 || len(got.Words) != 1 || !strings.Contains(got.Words[0], "r2 is bad") {
			t.Errorf("status %+v", got)
		}

		leave()
		offered := 0
		again := fakeEnvoy(p, delta, func(c *xdstest.Config) {
			c.Reject = func(_, name string, body []byte) string {
				if name == "r2" && string(body) == string(bad.Body()) {
					offered++
				}
				return ""
			}
		})
		envoyOn(t, again)
		becomesTrue(t, func() string { return leads(again, 2, "r2", "d0") })

		r.stop()
		other := startReplica(t, b, world...)
		becomesTrue(t, shown(other))
		if offered > 0 {
			t.Errorf("the refused route was offered %d times to another Envoy", offered)
		}
		world[7] = xdstest.Route("r2", "c0")
		world[6] = xdstest.Listener("l2", 29999, "r3")
		world[7] = xdstest.Route("r3", "c0")
		other.publish(world...)
		becomesTrue(t, func() string { return leads(again, 2, "r3", "c0") })
		becomesTrue(t, other.latest)
	})
}

// A refusal of what was accepted while no Envoy was there is told all the same.
func TestProxyLateRefusal(t *testing.T) {
	t.Parallel()
	r := startReplica(t, testport.Address(t), chain(1, "c0")...)
	p := startProxy(t, nil, r.address)
	leave := envoyOn(t, fakeEnvoy(p, true, nil))
	becomesTrue(t, func() string { return settledAt(r, 4) }) // it took the listener, and so has one to go back to
	leave()
	world := chain(1, "c0")
	world[2] = xdstest.Listener("l1", 25555, "r1")
	r.publish(world...)
	becomesTrue(t, r.latest)
	if got := r.refusals(); len(got) > 0 {
		t.Fatalf("refusals %q while no Envoy is there", got)
	}
	e := fakeEnvoy(p, true, func(c *xdstest.Config) {
		c.Reject = func(_, name string, body []byte) string {
			if name == "l1" && string(body) == string(world[2].Body()) {
				return "l1 cannot be bound"
			}
			return ""
		}
	})
	envoyOn(t, e)
	becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") }) // by the listener that was taken before
	becomesTrue(t, func() string {
		if got := r.refusals(); len(got) != 1 || !strings.Contains(got[0], "l1 cannot be bound") {
			return fmt.Sprintf("refusals %q", got)
		}
		return ""
	})
}

func (p *proxied) counts() (int, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.relay.counts()
}

// An Envoy that is not the agent's own is refused.
func TestProxyOtherNode(t *testing.T) {
	t.Parallel()
	p := startProxy(t, nil, "127.0.0.1:1")
	err := xdstest.NewEnvoy(xdstest.Config{Addr: p.socket, ID: xdstest.NodeID("other", "127.0.16.2"), Delta: true}).Run(t.Context())
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "other.shop") {
		t.Errorf("got %v", err)
	}
}

// A stream that ends before it began is no trouble.
func TestProxyStreamWithoutRequest(t *testing.T) {
	t.Parallel()
	p := startProxy(t, nil, "127.0.0.1:1")
	conn, err := grpc.NewClient(p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

// What is in the way is told.
func TestProxyStatusWhenAway(t *testing.T) {
	t.Parallel()
	p := startProxy(t, func(c *proxyConfig) {
		c.Dial = func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("the name mesh.example does not resolve")
		}
	}, "mesh.example:15012")
	becomesTrue(t, func() string {
		if s := p.Status(); s.Connected != "" || !strings.Contains(s.Text(time.Now()), "does not resolve") {
			return s.Text(time.Now())
		}
		return ""
	})
}

// What one process of Envoy refused, because a port was taken perhaps, the next one judges by itself: at once where it has
// nothing to lose, else once it has settled.
func TestProxyRefusedIsOfferedToTheNext(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, delta bool) {
		r := startReplica(t, testport.Address(t), chain(1, "c0")...)
		p := startProxy(t, nil, r.address)
		changed, added := xdstest.Route("r1", "d0"), xdstest.Listener("l2", 20002, "r2")
		leave := envoyOn(t, fakeEnvoy(p, delta, func(c *xdstest.Config) {
			c.Reject = func(_, name string, body []byte) string {
				if name == "l2" || name == "r1" && string(body) == string(changed.Body()) {
					return name + " is bad here"
				}
				return ""
			}
		}))
		becomesTrue(t, func() string { return settledAt(r, 4) }) // it took the route: or it would have nothing to lose
		world := append(chain(1, "c0"), chain(2, "d0")...)
		world[3], world[6] = changed, added
		r.publish(world...)
		becomesTrue(t, func() string {
			if got := p.Status(); got.Refused != 2 {
				return fmt.Sprintf("refused %q", got.Words)
			}
			return ""
		})
		state := proxyLink{proxy: p.proxy}.LinkState
		if got := state(); got.Rejected == "" {
			t.Error("nobody hears what Envoy refuses")
		}
		leave()
		becomesTrue(t, func() string { return state().Rejected }) // no Envoy refuses anything
		e := fakeEnvoy(p, delta, nil)
		envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 2, "r2", "d0") })
		if said := leads(e, 2, "r1", "c0"); said != "" {
			t.Errorf("before it settled: %s", said)
		}
		p.locked(func() { p.relay.settle(p.relay.streams[len(p.relay.streams)-1]) })
		becomesTrue(t, func() string { return leads(e, 2, "r1", "d0") })
		becomesTrue(t, func() string {
			if got := p.Status(); got.Refused != 0 || len(r.refusals()) > 0 {
				return fmt.Sprintf("refused %q, and at the control plane %q", got.Words, r.refusals())
			}
			return r.latest()
		})
	})
}
