package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// recorder is a control plane that says what a test tells it to and keeps what it hears.
type recorder struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	address string

	mu     sync.Mutex
	answer func(r *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse // guarded by mu; nil: no answer
	heard  []*discoveryv3.DeltaDiscoveryRequest                                           // guarded by mu
	events []string                                                                       // guarded by mu: "open 1", "close 1"
	opened int                                                                            // guarded by mu
	end    []context.CancelFunc                                                           // guarded by mu: of the streams
}

func startRecorder(t *testing.T, answer func(r *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &recorder{address: l.Addr().String(), answer: answer}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, c)
	serveUntilEnd(t, g, l)
	return c
}

func (c *recorder) DeltaAggregatedResources(st grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	c.mu.Lock()
	c.opened++
	me := c.opened
	c.events = append(c.events, fmt.Sprint("open ", me))
	c.end = append(c.end, cancel)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.events = append(c.events, fmt.Sprint("close ", me))
		c.mu.Unlock()
	}()
	failed := make(chan error, 1)
	go func() {
		for {
			r, err := st.Recv()
			if err != nil {
				failed <- err
				return
			}
			c.mu.Lock()
			c.heard = append(c.heard, r)
			c.mu.Unlock()
			c.mu.Lock()
			answer := c.answer
			c.mu.Unlock()
			if answer == nil {
				continue
			}
			if m := answer(r); m != nil {
				if err := st.Send(m); err != nil {
					failed <- err
					return
				}
			}
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return errors.New("the test ends this stream")
	}
}

// answerWith makes it answer otherwise from now on.
func (c *recorder) answerWith(answer func(r *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// requests are what was heard of a type.
func (c *recorder) requests(typeURL string) (out []*discoveryv3.DeltaDiscoveryRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.heard {
		if r.GetTypeUrl() == typeURL {
			out = append(out, r)
		}
	}
	return out
}

// cut ends all streams.
func (c *recorder) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.end {
		end()
	}
	c.end = nil
}

// count waits until n requests of a type were heard, and returns them.
func (c *recorder) count(t *testing.T, typeURL string, n int) []*discoveryv3.DeltaDiscoveryRequest {
	t.Helper()
	var got []*discoveryv3.DeltaDiscoveryRequest
	becomesTrue(t, func() string {
		if got = c.requests(typeURL); len(got) < n {
			return fmt.Sprintf("%d requests for %s, want %d", len(got), typeURL, n)
		}
		return ""
	})
	return got
}

// A renewed certificate opens a new stream before the old one ends, and nothing is sent again.
func TestUpstreamRenews(t *testing.T) {
	t.Parallel()
	c := startRecorder(t, answerOnce(map[string]string{"": "1"}))
	renewed, dialled := make(chan struct{}, 1), 0
	p := startProxy(t, func(pc *proxyConfig) {
		dial := pc.Dial
		pc.Renewed = renewed
		pc.SetRoots = func([]string) error { return nil }
		pc.Dial = func(ctx context.Context, address string) (net.Conn, error) { dialled++; return dial(ctx, address) }
	}, c.address)
	becomesTrue(t, func() string { return connectedTo(p, c.address) })
	renewed <- struct{}{}
	becomesTrue(t, func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Equal(c.events, []string{"open 1", "open 2", "close 1"}) {
			return fmt.Sprint(c.events)
		}
		return ""
	})
	if dialled != 2 {
		t.Errorf("%d connections, want 2", dialled)
	}
	asks := slices.DeleteFunc(c.requests(proxyConfigTypeURL), func(r *discoveryv3.DeltaDiscoveryRequest) bool { return r.GetResponseNonce() != "" })
	if len(asks) != 2 || len(asks[1].GetInitialResourceVersions()) > 0 {
		t.Errorf("the streams ask %v", asks)
	}
}

func connectedTo(p *proxied, address string) string {
	if s := p.Status(); s.Connected != address {
		return s.Text(time.Now())
	}
	return ""
}

// answerOnce answers the first request for roots with versions by name, unless they are claimed.
func answerOnce(versions map[string]string) func(*discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
	return func(r *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
		if r.GetTypeUrl() != proxyConfigTypeURL || r.GetResponseNonce() != "" {
			return nil
		}
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: proxyConfigTypeURL, Nonce: "n1"}
		for name, version := range versions {
			if r.GetInitialResourceVersions()[name] == version {
				continue
			}
			b, err := anypb.New(&meshv1alpha1.ProxyConfig{CaCertificatesPem: []string{"root " + version}})
			if err != nil {
				return nil
			}
			m.Resources = append(m.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: b})
		}
		if len(m.Resources) == 0 {
			return nil
		}
		return m
	}
}

// The mesh's roots are acknowledged when they were taken, refused with the reason when not, and never claimed: they are compared
// with what the workload has. The node is Envoy's, and goes out once.
func TestUpstreamRoots(t *testing.T) {
	t.Parallel()
	for _, trouble := range []error{nil, errors.New("the disk is full")} {
		c := startRecorder(t, answerOnce(map[string]string{"": "1"}))
		var mu sync.Mutex
		var taken []string
		startProxy(t, func(pc *proxyConfig) {
			pc.SetRoots = func(pem []string) error {
				mu.Lock()
				defer mu.Unlock()
				taken = append(taken, pem...)
				return trouble
			}
		}, c.address)
		got := c.count(t, proxyConfigTypeURL, 2)
		if got[0].GetNode().GetId() != xdstest.NodeID("web", "127.0.16.1") || got[1].GetNode() != nil {
			t.Errorf("nodes %v and %v", got[0].GetNode(), got[1].GetNode())
		}
		if got[1].GetResponseNonce() != "n1" || (got[1].GetErrorDetail() == nil) != (trouble == nil) {
			t.Errorf("answer %v, trouble %v", got[1], trouble)
		}
		c.cut()
		if again := c.count(t, proxyConfigTypeURL, 3)[2]; len(again.GetInitialResourceVersions()) > 0 {
			t.Errorf("the next stream claims %v", again.GetInitialResourceVersions())
		}
		mu.Lock()
		if len(taken) == 0 || taken[0] != "root 1" {
			t.Errorf("roots %q", taken)
		}
		mu.Unlock()
	}
}

// A bundle of roots with nothing in it is not acknowledged unless it was taken.
func TestUpstreamEmptyRoots(t *testing.T) {
	t.Parallel()
	c := startRecorder(t, func(r *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
		if r.GetResponseNonce() != "" {
			return nil
		}
		b, err := anypb.New(&meshv1alpha1.ProxyConfig{})
		if err != nil {
			return nil
		}
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: proxyConfigTypeURL, Nonce: "n1", Resources: []*discoveryv3.Resource{{Name: rootsName, Version: "1", Resource: b}}}
	})
	startProxy(t, func(pc *proxyConfig) {
		pc.SetRoots = func(pem []string) error { _, err := parseRoots(pem); return err }
	}, c.address)
	if got := c.count(t, proxyConfigTypeURL, 2)[1]; got.GetErrorDetail() == nil {
		t.Errorf("an empty bundle is acknowledged: %v", got)
	}
}

// A control plane that says nothing is not one that confirms, and it is left in the end; one that does is asked again and again.
func TestUpstreamSilence(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	p, err := newProxy(proxyConfig{Node: testNode(t), Addresses: []string{"127.0.16.1:1"}, Log: testlog.New(t), Now: func() time.Time { return now }, MaxAge: time.Hour,
		Dial:     func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody") },
		SetRoots: func([]string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	l := &upstreamLink{address: "127.0.16.1:1", up: p.relay.connect()}
	l.askRoots()
	l.up.next()
	p.prove(l)
	for range maxSilence {
		if err := p.question(l); err != nil {
			t.Fatal(err)
		}
		if a := l.up.next(); a == nil || !slices.Equal(a.Subscribe, []string{rootsName}) {
			t.Fatalf("asked %+v, want the roots once more", a)
		}
	}
	if err := p.question(l); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("after %d questions: %v", maxSilence+1, err)
	}
	now = now.Add(7 * 24 * time.Hour) // the machine slept
	if age, old := p.age(); !old || age < 7*24*time.Hour {
		t.Errorf("after a week asleep: %v, old %v", age, old)
	}
	p.detach(l.address, errors.New("no pings"))
	if _, old := p.age(); !old {
		t.Error("a stream that ends makes young what nobody confirmed")
	}
	p.prove(l)
	if age, old := p.age(); old || age != 0 {
		t.Errorf("after an answer: %v, old %v", age, old)
	}
}

// Health is told when it changes and on each new stream, and never first.
func TestUpstreamHealth(t *testing.T) {
	t.Parallel()
	c := startRecorder(t, nil)
	p := startProxy(t, func(pc *proxyConfig) { pc.SetRoots = func([]string) error { return nil } }, c.address)
	p.ReportHealth(errors.New("connection refused"))
	p.ReportHealth(errors.New("connection refused"))
	got := c.count(t, healthTypeURL, 1)
	if got[0].GetErrorDetail().GetMessage() != "connection refused" {
		t.Errorf("first report %v", got[0])
	}
	p.ReportHealth(nil)
	p.ReportHealth(nil)
	if got = c.count(t, healthTypeURL, 2); got[1].GetErrorDetail() != nil {
		t.Errorf("second report %v", got[1])
	}
	c.cut()
	if got = c.count(t, healthTypeURL, 3); got[2].GetErrorDetail() != nil {
		t.Errorf("report on the next stream %v", got[2])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.heard) != 5 { // two streams ask for roots
		t.Errorf("%d requests, want 5: %v", len(c.heard), c.heard)
	}
	if c.heard[0].GetTypeUrl() == healthTypeURL || c.heard[0].GetNode() == nil {
		t.Errorf("the first request is %v", c.heard[0])
	}
}

// A control plane that sends what cannot be understood is left, and said so.
func TestUpstreamMalformed(t *testing.T) {
	t.Parallel()
	c := startRecorder(t, func(*discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: xds.ClusterType} // it has no nonce
	})
	good := startReplica(t, testport.Address(t), chain(1, "c0")...)
	p := startProxy(t, nil, c.address, good.address)
	e := fakeEnvoy(p, true, nil)
	envoyOn(t, e)
	becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
	lone := startProxy(t, nil, c.address)
	envoyOn(t, fakeEnvoy(lone, true, nil))
	becomesTrue(t, func() string {
		if s := lone.Status(); !strings.Contains(s.LastError, "cannot be understood") {
			return s.LastError
		}
		return ""
	})
}

// What Envoy does not ask for any more is not asked of the control plane.
func TestUpstreamUnsubscribes(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, delta bool) {
		r := startReplica(t, testport.Address(t), chain(1, "c0")...)
		p := startProxy(t, nil, r.address)
		e := fakeEnvoy(p, delta, nil)
		envoyOn(t, e)
		becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
		r.publish(chain(1, "c1")...)
		becomesTrue(t, func() string { return leads(e, 1, "r1", "c1") })
		becomesTrue(t, func() string {
			for _, ty := range r.server.Proxies()[0].Types {
				if ty.TypeURL == xds.EndpointType && ty.Subscribed != 1 {
					return fmt.Sprintf("%d endpoints are subscribed", ty.Subscribed)
				}
			}
			return r.latest()
		})
		if n, _ := p.counts(); n != 4 {
			t.Errorf("%d resources are held, want 4", n)
		}
	})
}

// What the Envoy before wanted is held until its successor had the time to ask.
func TestRelayPrunes(t *testing.T) {
	t.Parallel()
	r, now := newRelay(), time.Time{}
	hear := func(st *envoyStream, a ads.Ask) {
		t.Helper()
		a.TypeURL = routeTypeURL
		req, err := st.reader.Read(a.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.receive(req, now); err != nil {
			t.Fatal(err)
		}
	}
	first := r.open(false, now)
	hear(first, ads.Ask{Subscribe: []string{"a", "b"}})
	up := r.connect()
	if a := up.next(); a == nil || !slices.Equal(a.Subscribe, []string{"a", "b"}) {
		t.Fatalf("asked %+v", a)
	}
	r.close(first, now)
	second := r.open(false, now)
	hear(second, ads.Ask{Subscribe: []string{"a", "c"}})
	if a := up.next(); a == nil || !slices.Equal(a.Subscribe, []string{"c"}) || len(a.Unsubscribe) > 0 {
		t.Errorf("asked %+v, want c more", a)
	}
	r.prune()
	if a := up.next(); a == nil || len(a.Subscribe) > 0 || !slices.Equal(a.Unsubscribe, []string{"b"}) {
		t.Errorf("asked %+v, want b less", a)
	}
	hear(second, ads.Ask{Unsubscribe: []string{"a"}})
	if a := up.next(); a == nil || !slices.Equal(a.Unsubscribe, []string{"a"}) {
		t.Errorf("asked %+v, want a less", a)
	}
	r.close(second, now)
	r.prune() // nobody is there: everything stays
	if a := up.next(); a != nil {
		t.Errorf("asked %+v, want nothing", a)
	}
}

// What is not known yet is not answered: Envoy waits as it would for the control plane.
func TestRelayWaitsForAnswers(t *testing.T) {
	t.Parallel()
	r, now := newRelay(), time.Time{}
	st := r.open(false, now)
	up := r.connect()
	hear := func(a ads.Ask) {
		t.Helper()
		req, err := st.reader.Read(a.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.receive(req, now); err != nil {
			t.Fatal(err)
		}
	}
	silent := func(when string) {
		t.Helper()
		if resp, _ := st.next(now); resp != nil {
			t.Fatalf("%s: it answers %d resources, %d removed", when, resp.Resources, resp.Removed)
		}
	}
	answers := func(resources, removed int) {
		t.Helper()
		if resp, _ := st.next(now); resp == nil || resp.Resources != resources || resp.Removed != removed {
			t.Fatalf("it answers %+v, want %d resources and %d removed", resp, resources, removed)
		}
	}
	say := func(m *discoveryv3.DeltaDiscoveryResponse) {
		t.Helper()
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := ads.ReadReply(raw, ads.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.take(up, reply, now); err != nil {
			t.Fatal(err)
		}
	}
	hear(ads.Ask{TypeURL: clusterTypeURL})
	hear(ads.Ask{TypeURL: routeTypeURL, Subscribe: []string{"a", "b"}})
	silent("before the control plane spoke")
	say(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: routeTypeURL, Nonce: "1", Resources: []*discoveryv3.Resource{{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: routeTypeURL}}}})
	answers(1, 0)
	silent("with one name of two")
	say(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: routeTypeURL, Nonce: "2", RemovedResources: []string{"b"}})
	silent("with a response on its way")
	hear(ads.Ask{TypeURL: routeTypeURL, Nonce: st.prefix + "1"})
	answers(0, 1)
	say(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterTypeURL, Nonce: "3"})
	answers(0, 0) // there are no clusters: that is an answer
	if err := r.take(up, &ads.Reply{TypeURL: listenerTypeURL, Nonce: "4"}, now); err == nil {
		t.Error("an answer that nobody asked for is taken")
	}
}

// The wait before the next try is short for each replica, grows, and is not the same for everybody.
func TestBackoff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		failures, replicas int
		longest, most      time.Duration
	}{{1, 1, lastBackoff, firstBackoff}, {3, 3, lastBackoff, firstBackoff}, {4, 3, lastBackoff, 2 * firstBackoff}, {2, 1, lastBackoff, 2 * firstBackoff},
		{100, 1, lastBackoff, lastBackoff}, {100, 1, refusedBackoff, refusedBackoff}} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := backoff(c.failures, c.replicas, c.longest)
			if d < c.most/4 || d >= c.most {
				t.Errorf("%d failures of %d replicas: %s, want from %s to %s", c.failures, c.replicas, d, c.most/4, c.most)
			}
			seen[d] = true
		}
		if len(seen) < 50 {
			t.Errorf("only %d of 100 waits differ", len(seen))
		}
	}
}

// The node that the control plane hears is the bootstrap's, with what Envoy adds.
func TestReadNode(t *testing.T) {
	t.Parallel()
	raw, err := proto.Marshal(&corev3.Node{Id: "n", Cluster: "c", UserAgentName: "envoy", Extensions: []*corev3.Extension{{Name: "x"}},
		Metadata: testNode(t).Metadata, ClientFeatures: []string{"f"}})
	if err != nil {
		t.Fatal(err)
	}
	id, build, err := readNode(raw)
	if err != nil || id != "n" {
		t.Fatalf("id %q, %v", id, err)
	}
	var got corev3.Node
	if err := proto.Unmarshal(build, &got); err != nil {
		t.Fatal(err)
	}
	want := &corev3.Node{UserAgentName: "envoy", Extensions: []*corev3.Extension{{Name: "x"}}, ClientFeatures: []string{"f"}}
	if !proto.Equal(want, &got) {
		t.Errorf("it adds %v, want %v", &got, want)
	}
	part := func(key string) []byte {
		return must(proto.Marshal(&corev3.Node{UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewStringValue("v")}}}}}))
	}
	_, one, err := readNode(append(part("a"), part("b")...))
	if err != nil {
		t.Fatal(err)
	}
	if _, two, err := readNode(append(part("b"), part("a")...)); err != nil || !bytes.Equal(one, two) {
		t.Errorf("a map in another order is another program: %v", err)
	}
	if _, _, err := readNode([]byte{1 << 3}); err == nil {
		t.Error("a node that is cut short is read")
	}
}

// Everything that is held is named to the next control plane, in the version that Envoy has: what is gone has to be said.
func TestHeldClaims(t *testing.T) {
	t.Parallel()
	h, now := newHeldType(clusterTypeURL), time.Unix(1, 0)
	offer := func(name, version string) {
		h.offer(&ads.Item{Name: name, Version: version, TypeURL: clusterTypeURL, Body: []byte(name + version)})
	}
	for _, name := range []string{"taken", "changed", "refused", "vouched", "new", "never"} {
		offer(name, "1")
	}
	for _, name := range []string{"taken", "changed", "refused"} {
		h.accept(name)
	}
	h.entries["vouched"].told = taken
	offer("changed", "2")
	offer("refused", "2")
	h.refuse("refused", h.entries["refused"].offered.Version(), "bad", now)
	h.refuse("never", h.entries["never"].offered.Version(), "bad", now)
	want := map[string]string{"taken": "1", "changed": "1", "refused": "1", "vouched": "1", "new": "", "never": ""}
	if got := h.claim(); !maps.Equal(got, want) {
		t.Errorf("claims %v, want %v", got, want)
	}
	set := h.target()
	if r := set.Get("refused"); r == nil || string(r.Body()) != "refused1" {
		t.Errorf("of what it refused Envoy is to have %v, want what it took before", r)
	}
	if set.Get("never") != nil || set.Get("changed") != h.entries["changed"].offered {
		t.Errorf("Envoy is to have %v", set)
	}
}

// While a new stream is opened at a replica that does not answer, the current one is heard.
func TestUpstreamHeardWhileDialling(t *testing.T) {
	t.Parallel()
	r := startReplica(t, testport.Address(t), chain(1, "c0")...)
	renewed, hang := make(chan struct{}, 1), make(chan struct{})
	dialled := make(chan struct{}, 8)
	p := startProxy(t, func(pc *proxyConfig) {
		dial := pc.Dial
		pc.Renewed = renewed
		pc.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			dialled <- struct{}{}
			if len(dialled) > 1 {
				select {
				case <-hang:
				case <-ctx.Done():
				}
				return nil, errors.New("a firewall is in the way")
			}
			return dial(ctx, address)
		}
	}, r.address)
	e := fakeEnvoy(p, true, nil)
	envoyOn(t, e)
	becomesTrue(t, func() string { return leads(e, 1, "r1", "c0") })
	renewed <- struct{}{}
	becomesTrue(t, func() string {
		if len(dialled) < 2 {
			return "not dialled again"
		}
		return ""
	})
	r.publish(chain(1, "c1")...)
	becomesTrue(t, func() string { return leads(e, 1, "r1", "c1") })
	close(hang)
}
