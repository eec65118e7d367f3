package agent

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// restarts ends Envoy's stream, and opens that of the next process, which asks for a cluster and a route.
func (r *relayed) restarts() {
	r.Helper()
	r.relay.close(r.stream, r.now)
	r.stream = r.relay.open(false, r.now)
	r.asks()
}

// asks makes Envoy ask for its clusters and one route.
func (r *relayed) asks() {
	r.Helper()
	r.hear(ads.Ask{TypeURL: clusterTypeURL})
	r.hear(ads.Ask{TypeURL: routeTypeURL, Subscribe: []string{"r"}})
}

// leads makes the control plane say that the route is that of a version.
func (r *relayed) leads(version string) {
	r.Helper()
	r.says(routeTypeURL, map[string]proto.Message{"r": &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: version}}}})
}

// sendsRoute reads that Envoy is sent the route of a version, and nothing else.
func (r *relayed) sendsRoute(what, version string) (nonce string) {
	r.Helper()
	resp, _ := r.stream.next(r.now)
	if resp == nil {
		r.Fatalf("%s: Envoy is sent nothing, want the route of %s", what, version)
	}
	got := "none"
	for changed := range resp.Changed() {
		var m routev3.RouteConfiguration
		if err := proto.Unmarshal(changed.Body(), &m); err != nil {
			r.Fatal(err)
		}
		got = m.VirtualHosts[0].Name
	}
	if resp.TypeURL != routeTypeURL || got != version {
		r.Fatalf("%s: Envoy is sent %s with the route of %s, want %s", what, resp.TypeURL, got, version)
	}
	return resp.Nonce
}

// takes and refuses are Envoy's answers about the route.
func (r *relayed) takes(nonce string) { r.hear(ads.Ask{TypeURL: routeTypeURL, Nonce: nonce}) }

func (r *relayed) refuses(nonce string) {
	r.hear(ads.Ask{TypeURL: routeTypeURL, Nonce: nonce, Rejected: &ads.Rejection{Code: 13, Message: "r is bad here"}})
}

// clustersAre makes Envoy have its clusters, before which it hears of no route.
func (r *relayed) clustersAre() {
	r.Helper()
	r.hear(ads.Ask{TypeURL: clusterTypeURL, Nonce: r.sends("clusters", clusterTypeURL, "web")})
}

// newRouted is a relay whose Envoy has a cluster, and took the route of a version unless that is empty.
func newRouted(t *testing.T, taken string) *relayed {
	r := newRelayed(t)
	r.asks()
	r.says(clusterTypeURL, map[string]proto.Message{"web": &clusterv3.Cluster{Name: "web"}})
	r.clustersAre()
	if taken != "" {
		r.leads(taken)
		r.takes(r.sendsRoute("first", taken))
	}
	return r
}

// What one process of Envoy refused is not offered to the next one before that has settled, whenever the control plane hears of
// the refusal, or says the refused version again: while the first is there, while none is, or when the next has come.
func TestProxyRefusedWhenSaidAgain(t *testing.T) {
	t.Parallel()
	tests := map[string]func(r *relayed){
		"never":             func(r *relayed) { r.restarts() },
		"before Envoy left": func(r *relayed) { r.leads("bad"); r.restarts() },
		"with no Envoy": func(r *relayed) {
			r.relay.close(r.stream, r.now)
			r.leads("bad")
			r.stream = r.relay.open(false, r.now)
			r.asks()
		},
		"to the next one": func(r *relayed) { r.restarts(); r.leads("bad") },
		"by another replica": func(r *relayed) {
			r.relay.close(r.stream, r.now)
			r.up = r.relay.connect()
			r.leads("bad")
			r.stream = r.relay.open(false, r.now)
			r.asks()
		},
	}
	for name, again := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRouted(t, "good")
			r.leads("bad")
			r.refuses(r.sendsRoute("the change", "bad"))
			r.takes(r.sendsRoute("after the refusal", "good"))
			again(r)
			r.clustersAre()
			r.takes(r.sendsRoute("before it settled", "good"))
			r.sends("before it settled", "", "")
			r.relay.settle(r.stream)
			r.takes(r.sendsRoute("once it settled", "bad"))
			if _, refused := r.relay.counts(); refused != 0 {
				t.Errorf("%d are refused, want none", refused)
			}
		})
	}
}

// A version that no Envoy took leaves nothing to lose: the next process is offered at once what the one before refused.
func TestProxyRefusedFirst(t *testing.T) {
	t.Parallel()
	r := newRouted(t, "")
	r.leads("bad")
	r.refuses(r.sendsRoute("first", "bad"))
	r.restarts()
	r.clustersAre()
	r.sendsRoute("at once", "bad")
}

// What Envoy took is what it keeps after a refusal, also when the control plane said something newer before Envoy answered:
// it does so when the older version came while there was no Envoy.
func TestProxyRefusedAfterLateAnswer(t *testing.T) {
	t.Parallel()
	r := newRouted(t, "")
	r.relay.close(r.stream, r.now)
	r.leads("good")
	r.stream = r.relay.open(false, r.now)
	r.asks()
	r.clustersAre()
	nonce := r.sendsRoute("first", "good")
	r.leads("bad")
	r.takes(nonce)
	r.refuses(r.sendsRoute("the change", "bad"))
	r.takes(r.sendsRoute("after the refusal", "good"))
	r.restarts()
	r.clustersAre()
	r.takes(r.sendsRoute("before it settled", "good"))
	r.relay.settle(r.stream)
	r.sendsRoute("once it settled", "bad")
}
