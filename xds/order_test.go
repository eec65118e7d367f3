package xds

import (
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// conversation is an order whose client answers by hand, at times that the test chooses.
type conversation struct {
	*testing.T
	order order
	now   time.Time
}

func (c *conversation) hear(typeURL, nonce, words string, names ...string) {
	c.Helper()
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: nonce, ResourceNamesSubscribe: names}
	if words != "" {
		m.ErrorDetail = &statuspb.Status{Message: words}
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		c.Fatal(err)
	}
	r, err := ads.NewReader(false, ads.Limits{}).Read(raw)
	if err != nil {
		c.Fatal(err)
	}
	t := c.order.find(typeURL)
	if _, err := t.Receive(r, t.to, ads.Limits{}, c.now); err != nil {
		c.Fatal(err)
	}
}

// settle answers everything that is sent, and returns the removals in it. Of routes it refuses what stands in refuse.
func (c *conversation) settle(refuse string) (removed []string) {
	c.Helper()
	for {
		r, _ := c.order.next(c.now)
		if r == nil {
			return removed
		}
		var raw []byte
		for _, p := range r.Parts {
			raw = append(raw, p...)
		}
		var m discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			c.Fatal(err)
		}
		removed = append(removed, m.RemovedResources...)
		words := ""
		if r.TypeURL == RouteType && slices.ContainsFunc(m.Resources, func(r *discoveryv3.Resource) bool { return r.Name == refuse }) {
			words = refuse + " is bad"
		}
		c.hear(r.TypeURL, r.Nonce, words)
	}
}

// to makes clusters and routes, each route with its cluster, all that there is to have.
func (c *conversation) to(clusters []string, routes map[string]string) {
	var cs, rs []*resource.Resource
	for _, name := range clusters {
		cs = append(cs, resource.New(ClusterType, name, nil, func() []byte { return nil }))
	}
	for name, cluster := range routes {
		rs = append(rs, resource.New(RouteType, name, []resource.Ref{{TypeURL: ClusterType, Name: cluster}}, func() []byte { return []byte(cluster) }))
	}
	c.order.find(ClusterType).to = resource.Set{Shared: resource.NewLayer(cs)}
	c.order.find(RouteType).to = resource.Set{Shared: resource.NewLayer(rs)}
}

// A removal that a refused route holds for long does not cost a later one its wait.
func TestRemovalsWaitEachForItself(t *testing.T) {
	t.Parallel()
	c := &conversation{T: t, order: newOrder(time.Second, 10*time.Second), now: time.Unix(0, 0)}
	known, cache := newKinds(), ads.NewCache()
	for _, url := range []string{ClusterType, RouteType} {
		c.order.add(ads.NewSubscription(known.of(url), false, cache, "n-"), known.rank(url))
	}
	c.to([]string{"a", "c"}, map[string]string{"r1": "a", "r2": "c"})
	c.hear(ClusterType, "", "")
	c.hear(RouteType, "", "", "r1", "r2")
	c.settle("")

	c.to([]string{"b", "c"}, map[string]string{"r1": "b", "r2": "c"})
	if removed := c.settle("r1"); len(removed) > 0 {
		t.Fatalf("removed %v, and the client still routes to a", removed)
	}
	c.now = c.now.Add(time.Minute)
	c.settle("r1")

	c.to([]string{"b", "d"}, map[string]string{"r1": "b", "r2": "d"})
	r, _ := c.order.next(c.now)
	if r == nil || r.TypeURL != ClusterType || r.Removed > 0 {
		t.Fatalf("got %+v, want a new cluster and no removal before the route moved on", r)
	}
	c.hear(ClusterType, r.Nonce, "")
	if removed := c.settle("r1"); !slices.Equal(removed, []string{"c"}) {
		t.Errorf("removed %v in the end, want c", removed)
	}
}
