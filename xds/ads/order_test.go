package ads_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// Bounds of the orders of these tests.
const routeWait, removalWait = time.Second, 10 * time.Second

// conversation is an order whose client answers by hand, at times that the test chooses.
type conversation struct {
	*testing.T
	order ads.Order
	now   time.Time
}

// newConversation is one about some types.
func newConversation(t *testing.T, types ...string) *conversation {
	t.Helper()
	c := &conversation{T: t, order: ads.Order{RouteWait: routeWait, RemovalWait: removalWait}, now: time.Unix(0, 0)}
	cache := ads.NewCache()
	for rank, kind := range []*ads.Kind{clusters(), endpoints(), routes(), {TypeURL: resource.ExtensionConfigType}} {
		if slices.Contains(types, kind.TypeURL) {
			c.order.Add(ads.NewSubscription(kind, false, cache, "n-"), rank)
		}
	}
	return c
}

func (c *conversation) hear(typeURL, nonce, words string, names ...string) {
	c.Helper()
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: nonce, ResourceNamesSubscribe: names}
	if words != "" {
		m.ErrorDetail = rejection(words)
	}
	c.receive(m)
}

func (c *conversation) receive(m *discoveryv3.DeltaDiscoveryRequest) {
	c.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		c.Fatal(err)
	}
	r, err := ads.ReadRequest(raw, false)
	if err != nil {
		c.Fatal(err)
	}
	t := c.order.Find(m.TypeUrl)
	if _, err := t.Receive(r, c.now); err != nil {
		c.Fatal(err)
	}
}

// said is what one response says: "+name" and "-name", sorted, after the type's last word; empty
// for no response.
func (c *conversation) said() (r *ads.Response, text string) {
	c.Helper()
	r, _ = c.order.Next(c.now)
	if r == nil {
		return nil, ""
	}
	m := c.decode(r)
	var words []string
	for _, has := range m.Resources {
		words = append(words, "+"+has.Name)
	}
	for _, name := range m.RemovedResources {
		words = append(words, "-"+name)
	}
	slices.Sort(words)
	return r, r.TypeURL[strings.LastIndexByte(r.TypeURL, '.')+1:] + " " + strings.Join(words, " ")
}

// wants reads the next response, or that there is none.
func (c *conversation) wants(what, want string) *ads.Response {
	c.Helper()
	r, got := c.said()
	if got != want {
		c.Fatalf("%s: said %q, want %q", what, got, want)
	}
	return r
}

func (c *conversation) decode(r *ads.Response) *discoveryv3.DeltaDiscoveryResponse {
	c.Helper()
	m := &discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(slices.Concat(r.Parts...), m); err != nil {
		c.Fatal(err)
	}
	return m
}

// settle answers everything that is sent, and returns the removals in it. It refuses what stands in
// refuse.
func (c *conversation) settle(refuse string) (removed []string) {
	c.Helper()
	for {
		r, _ := c.order.Next(c.now)
		if r == nil {
			return removed
		}
		m := c.decode(r)
		removed = append(removed, m.RemovedResources...)
		words := ""
		if slices.ContainsFunc(m.Resources, func(r *discoveryv3.Resource) bool { return r.Name == refuse }) {
			words = refuse + " is bad"
		}
		c.hear(r.TypeURL, r.Nonce, words)
	}
}

// to makes what there is to have: clusters, of which those have endpoints to fetch that end with a
// star, and "name=text cluster" of a type that names clusters, or "name=text >other" of filters, whose
// guards follow at the end: "deny=1 !a,b".
func (c *conversation) to(typeURL string, items ...string) {
	var out []*resource.Resource
	for _, it := range items {
		f := strings.Fields(it)
		var refs []resource.Ref
		var guards []string
		name, text, _ := strings.Cut(f[0], "=")
		if list, ok := strings.CutPrefix(f[len(f)-1], "!"); ok {
			guards, f = strings.Split(list, ","), f[:len(f)-1]
		}
		if len(f) > 1 {
			refs = []resource.Ref{{TypeURL: clusterType, Name: f[1]}}
			if other, leaves := strings.CutPrefix(f[1], ">"); leaves {
				refs = []resource.Ref{{TypeURL: extensionType, Name: other}}
			}
		}
		if bare, fetches := strings.CutSuffix(name, "*"); fetches {
			name, refs = bare, []resource.Ref{{TypeURL: endpointType, Name: bare}}
		}
		out = append(out, resource.New(typeURL, name, refs,
			func() []byte { return body(typeURL, name, it+text).Body() }))
		out[len(out)-1].Guards = guards
	}
	c.order.Find(typeURL).To = resource.Set{Shared: resource.NewLayer(out)}
}

// No cluster is removed while the client keeps an older route, which may use it.
func TestRemovalsWaitForRefusedRoute(t *testing.T) {
	t.Parallel()
	c := newConversation(t, clusterType, routeType)
	c.to(clusterType, "a", "c")
	c.to(routeType, "r1 a", "r2 c")
	c.hear(clusterType, "", "")
	c.hear(routeType, "", "", "r1", "r2")
	c.settle("")

	c.to(clusterType, "b", "d")
	c.to(routeType, "r1 b", "r2 d")
	if removed := c.settle("r1"); len(removed) > 0 {
		t.Fatalf("removed %v at once", removed)
	}
	c.now = c.now.Add(time.Minute)
	if removed := c.settle("r1"); len(removed) > 0 {
		t.Fatalf("removed %v, and the client still routes to a", removed)
	}
	c.to(routeType, "r1=2 b", "r2 d")
	if removed := c.settle(""); !slices.Equal(removed, []string{"a", "c"}) {
		t.Errorf("removed %v in the end, want a and c", removed)
	}
}

// A service that returns with another cluster before it was removed gets its endpoints again: Envoy
// waits for them after each change of a cluster.
func TestReturnedClusterGetsEndpoints(t *testing.T) {
	t.Parallel()
	c := newConversation(t, clusterType, endpointType)
	c.to(clusterType, "a*", "b*=1")
	c.to(endpointType, "a", "b")
	c.hear(clusterType, "", "")
	c.hear(endpointType, "", "", "a", "b")
	c.settle("")

	c.to(clusterType, "a*")
	c.to(endpointType, "a")
	c.wants("while the removal waits", "")
	c.to(clusterType, "a*", "b*=2")
	c.to(endpointType, "a", "b")
	c.wants("the changed cluster", "Cluster +b")
	c.wants("its endpoints", "ClusterLoadAssignment +b")
}

// An Envoy that asks for endpoints before clusters waits for some of those that it has.
func TestWarmingClusterAfterReconnect(t *testing.T) {
	t.Parallel()
	c := newConversation(t, endpointType)
	c.to(endpointType, "a", "b")
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: endpointType, ResourceNamesSubscribe: []string{"a", "b"},
		InitialResourceVersions: map[string]string{}}
	for r := range c.order.Find(endpointType).To.All() {
		m.InitialResourceVersions[r.Name] = r.Version()
	}
	c.receive(m)
	c.wants("endpoints that it claims", "ClusterLoadAssignment +a +b")
}
