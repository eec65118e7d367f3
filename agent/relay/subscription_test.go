package relay

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// sink takes what is sent to Envoy.
type sink struct {
	grpc.ServerStream
	sent []*ads.Reply
}

func (s *sink) SendMsg(m any) error {
	r, err := ads.ReadReply(m.(*Frame).Data, false)
	s.sent = append(s.sent, r)
	return err
}

// The cache answers what it has and Envoy lacks. It says nothing rather than that there is
// nothing, unless it knows that.
func TestFromCache(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ask  ads.Ask
		want string // names, and those that do not exist; "silent" for no response
	}{
		"everything": {ads.Ask{TypeURL: resource.ClusterType}, "[a b] []"},
		"of a running Envoy": {ads.Ask{TypeURL: resource.ClusterType, Claims: map[string]string{"a": "old",
			"b": "old"}}, "silent"},
		"what a running Envoy lacks": {ads.Ask{TypeURL: resource.ClusterType, Claims: map[string]string{"a": "old"}},
			"[b] []"},
		"by name": {ads.Ask{TypeURL: resource.EndpointType, Subscribe: []string{"a", "gone",
			"unknown"}}, "[a] [gone]"},
		"an unknown name":           {ads.Ask{TypeURL: resource.EndpointType, Subscribe: []string{"unknown"}}, "silent"},
		"a type that is not cached": {ads.Ask{TypeURL: resource.RouteType}, "silent"},
		"a type without resources":  {ads.Ask{TypeURL: resource.ListenerType}, "[] []"},
		"the same, of a running one": {ads.Ask{TypeURL: resource.ListenerType, Claims: map[string]string{"l": "1"}},
			"silent"},
	} {
		c := filled(t)
		c.put(&ads.Reply{TypeURL: resource.ListenerType}, &subscription{all: true})
		out := &sink{}
		s := &session{relay: &Relay{cache: c, rejected: rejected{}}, envoy: out, subs: map[string]*subscription{}}
		r, err := ads.ReadRequest(tc.ask.Encode(), false)
		if err != nil {
			t.Fatal(err)
		}
		sub, _ := s.subscribe(r)
		if err := s.fromCache(sub); err != nil {
			t.Fatal(err)
		}
		got := "silent"
		for _, r := range out.sent {
			got = fmt.Sprint(itemNames(r), r.Removed)
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// itemNames returns the names of the resources in a response.
func itemNames(r *ads.Reply) (names []string) {
	for _, it := range r.Items {
		names = append(names, it.Name)
	}
	return names
}

// Resources that Envoy no longer subscribes to are dropped when there are many.
func TestUnusedResources(t *testing.T) {
	t.Parallel()
	c, sub := newCache(), newSubscription(resource.EndpointType)
	r := &ads.Reply{TypeURL: resource.EndpointType}
	for i := range 2 * maxUnused {
		name := fmt.Sprint(i)
		r.Items = append(r.Items, ads.Item{Name: name, Raw: []byte(name)})
		sub.names[name] = struct{}{}
	}
	count := func() int {
		all, _ := c.reply(resource.EndpointType, everything)
		return len(all.Items)
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
