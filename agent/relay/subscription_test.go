package relay

import (
	"fmt"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/xds/resource"
)

// sink takes what is sent to Envoy.
type sink struct {
	envoyStream
	sent []*response
}

func (s *sink) Send(r *response) error {
	s.sent = append(s.sent, r)
	return nil
}

// The cache answers what it has and Envoy lacks. It says nothing rather than that there is
// nothing, unless it knows that.
func TestFromCache(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ask  *request
		want string // names, and those that do not exist; "silent" for no response
	}{
		"everything": {&request{TypeUrl: resource.ClusterType}, "[a b] []"},
		"of a running Envoy": {&request{TypeUrl: resource.ClusterType, InitialResourceVersions: map[string]string{"a": "old",
			"b": "old"}}, "silent"},
		"what a running Envoy lacks": {&request{TypeUrl: resource.ClusterType, InitialResourceVersions: map[string]string{"a": "old"}},
			"[b] []"},
		"by name": {&request{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"a", "gone",
			"unknown"}}, "[a] [gone]"},
		"an unknown name":           {&request{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"unknown"}}, "silent"},
		"a type that is not cached": {&request{TypeUrl: resource.RouteType}, "silent"},
		"a type without resources":  {&request{TypeUrl: resource.ListenerType}, "[] []"},
		"the same, of a running one": {&request{TypeUrl: resource.ListenerType, InitialResourceVersions: map[string]string{"l": "1"}},
			"silent"},
	} {
		c := filled(t)
		c.put(&response{TypeUrl: resource.ListenerType}, &subscription{all: true})
		out := &sink{}
		s := &session{relay: &Relay{cache: c, rejected: rejected{}}, envoy: out, subs: map[string]*subscription{}}
		sub, _ := s.subscribe(tc.ask)
		if err := s.fromCache(sub); err != nil {
			t.Fatal(err)
		}
		got := "silent"
		for _, r := range out.sent {
			got = fmt.Sprint(itemNames(r), r.RemovedResources)
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// itemNames returns the names of the resources in a response.
func itemNames(r *response) (names []string) {
	for _, it := range r.Resources {
		names = append(names, it.Name)
	}
	return names
}

// Resources that Envoy no longer subscribes to are dropped when there are many.
func TestUnusedResources(t *testing.T) {
	t.Parallel()
	c, sub := newCache(), newSubscription(resource.EndpointType)
	r := &response{TypeUrl: resource.EndpointType}
	for i := range 2 * maxUnused {
		name := fmt.Sprint(i)
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name})
		sub.names[name] = struct{}{}
	}
	count := func() int {
		return len(c.versions(resource.EndpointType))
	}
	for _, tc := range []struct{ subscribed, want int }{{2 * maxUnused, 2 * maxUnused}, {maxUnused, 2 * maxUnused}, {1, 1}} {
		for i := tc.subscribed; i < 2*maxUnused; i++ {
			delete(sub.names, fmt.Sprint(i))
		}
		c.put(r, sub)
		if got := count(); got != tc.want {
			t.Errorf("%d subscribed: %d are kept, want %d", tc.subscribed, got, tc.want)
		}
	}
}

// A request that the control plane would refuse ends the stream of Envoy, not the link.
func TestBadRequest(t *testing.T) {
	t.Parallel()
	locator := []*discoveryv3.ResourceLocator{{Name: "a"}}
	for _, bad := range []*request{{}, {TypeUrl: resource.ClusterType, ResourceLocatorsSubscribe: locator}} {
		if err := (&session{}).request(bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: got %v", bad, err)
		}
	}
}

// What a newer Envoy left in the cache stays when an older one, which was new itself, goes on alone.
func TestOlderEnvoy(t *testing.T) {
	t.Parallel()
	r := &Relay{cache: filled(t), rejected: rejected{}}
	s := &session{relay: r, up: &upstream{}, subs: map[string]*subscription{}}
	r.sessions = []*session{s, {}}
	sub, _ := s.subscribe(&request{TypeUrl: resource.ClusterType})
	for _, nonce := range []string{"1", "2"} {
		sub.send(&response{TypeUrl: resource.ClusterType, Nonce: nonce,
			Resources: []*discoveryv3.Resource{{Name: "c", Version: nonce}}})
		s.subscribe(&request{TypeUrl: resource.ClusterType, ResponseNonce: nonce})
		r.sessions = []*session{s}
	}
	if got := r.cache.versions(resource.ClusterType); got["c"] != "2" || len(got) != 3 {
		t.Errorf("the cache has %v, want c of version 2, and a and b", got)
	}
}
