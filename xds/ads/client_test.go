package ads_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	secretType   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	routeType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// Kinds as the server has them.
func clusters() *ads.Kind {
	return &ads.Kind{TypeURL: clusterType, Whole: true, MaxPending: 32}
}
func listeners() *ads.Kind { return &ads.Kind{TypeURL: listenerType, Whole: true} }
func secrets() *ads.Kind   { return &ads.Kind{TypeURL: secretType, Single: true, MaxPending: 16} }
func routes() *ads.Kind    { return &ads.Kind{TypeURL: routeType} }
func endpoints() *ads.Kind {
	return &ads.Kind{TypeURL: endpointType, Empty: func(name string) *resource.Resource {
		return resource.New(endpointType, name, nil, func() []byte {
			return resource.Encode(&endpointv3.ClusterLoadAssignment{ClusterName: name})
		})
	}}
}

// body makes a resource of any kind that carries its name and a text: ClusterLoadAssignment serves
// for all.
func body(typeURL, name, text string) *resource.Resource {
	return resource.New(typeURL, name, nil, func() []byte {
		return resource.Encode(&endpointv3.ClusterLoadAssignment{ClusterName: name,
			NamedEndpoints: map[string]*endpointv3.Endpoint{text: {}}})
	})
}

// layer makes a layer of "name=text" items.
func layer(typeURL string, items ...string) *resource.Layer {
	var out []*resource.Resource
	for _, it := range items {
		name, text, _ := strings.Cut(it, "=")
		out = append(out, body(typeURL, name, text))
	}
	return resource.NewLayer(out)
}

// set makes a set of one shared layer.
func set(typeURL string, items ...string) resource.Set {
	return resource.Set{Shared: layer(typeURL, items...)}
}

// read is the reverse of body.
func read(t *testing.T, b []byte) (name, text string) {
	t.Helper()
	var m endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(b, &m); err != nil {
		t.Fatalf("resource: %v", err)
	}
	for text = range m.NamedEndpoints {
	}
	return m.ClusterName, text
}

// response is one response as a client sees it.
type response struct {
	nonce, version string
	items          map[string]string // name -> text
	versions       map[string]string
	removed        []string
}

// String lists it: "a=1 b=2 -c".
func (r *response) String() string {
	if r == nil {
		return "none"
	}
	var out []string
	for _, n := range slices.Sorted(maps.Keys(r.items)) {
		out = append(out, n+"="+r.items[n])
	}
	for _, n := range r.removed {
		out = append(out, "-"+n)
	}
	if len(out) == 0 {
		return "empty"
	}
	return strings.Join(out, " ")
}

// peer is one end of a subscription in a test: it encodes requests and decodes responses with the
// protobuf library.
type peer struct {
	t      *testing.T
	kind   *ads.Kind
	states bool
	cache  *ads.Cache
	sub    *ads.Subscription
	hold   func(string) bool // removals that wait
	lag    func(string) bool // changes that wait
	now    time.Time
	stream int
}

func newPeer(t *testing.T, kind *ads.Kind, states bool) *peer {
	p := &peer{t: t, kind: kind, states: states, cache: ads.NewCache(), now: time.Unix(1000, 0)}
	p.reconnect()
	return p
}

// reconnect begins another stream.
func (p *peer) reconnect() {
	p.stream++
	p.sub = ads.NewSubscription(p.kind, p.states, p.cache, "s"+string(rune('a'+p.stream%26))+"-")
}

// receive gives a request to the subscription.
func (p *peer) receive(to resource.Set, m proto.Message) {
	p.t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := ads.ReadRequest(raw, p.states)
	if err != nil {
		p.t.Fatal(err)
	}
	p.sub.To, p.sub.Hold = to, p.waits
	if _, err := p.sub.Receive(r, p.now); err != nil {
		p.t.Fatal(err)
	}
}

// delta sends a DeltaDiscoveryRequest.
func (p *peer) delta(to resource.Set, m *discoveryv3.DeltaDiscoveryRequest) {
	p.t.Helper()
	m.TypeUrl = p.kind.TypeURL
	p.receive(to, m)
}

// state sends a DiscoveryRequest.
func (p *peer) state(to resource.Set, m *discoveryv3.DiscoveryRequest) {
	p.t.Helper()
	m.TypeUrl = p.kind.TypeURL
	p.receive(to, m)
}

// waits is what has to wait, as an ads.Hold.
func (p *peer) waits(name string, next *resource.Resource, _, _ time.Time) time.Duration {
	if next == nil && p.hold != nil && p.hold(name) || next != nil && p.lag != nil && p.lag(name) {
		return ads.Forever
	}
	return 0
}

func rejection(text string) *rpcstatus.Status {
	return &rpcstatus.Status{Code: 13, Message: text}
}

// next asks for the next response and decodes it.
func (p *peer) next(to resource.Set) *response {
	p.t.Helper()
	p.sub.To, p.sub.Hold = to, p.waits
	r, _ := p.sub.Next(p.now)
	if r == nil {
		return nil
	}
	raw := slices.Concat(r.Parts...)
	if len(raw) != r.Size() {
		p.t.Fatalf("Size is %d, want %d", r.Size(), len(raw))
	}
	out := &response{items: map[string]string{}, versions: map[string]string{}}
	if p.states {
		var m discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			p.t.Fatal(err)
		}
		out.nonce, out.version = m.Nonce, m.VersionInfo
		if m.TypeUrl != p.kind.TypeURL {
			p.t.Fatalf("response for %s, want %s", m.TypeUrl, p.kind.TypeURL)
		}
		for _, a := range m.Resources {
			name, text := read(p.t, a.Value)
			if _, twice := out.items[name]; twice {
				p.t.Fatalf("%s stands twice in one response", name)
			}
			out.items[name] = text
		}
		return out
	}
	var m discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(raw, &m); err != nil {
		p.t.Fatal(err)
	}
	if m.TypeUrl != p.kind.TypeURL {
		p.t.Fatalf("response for %s, want %s", m.TypeUrl, p.kind.TypeURL)
	}
	out.nonce, out.removed = m.Nonce, m.RemovedResources
	for _, e := range m.Resources {
		name, text := read(p.t, e.Resource.Value)
		if name != e.Name {
			p.t.Fatalf("resource %s is named %s", name, e.Name)
		}
		if _, twice := out.items[name]; twice || slices.Contains(m.RemovedResources, name) {
			p.t.Fatalf("%s stands twice in one response", name)
		}
		out.items[name], out.versions[name] = text, e.Version
	}
	return out
}
