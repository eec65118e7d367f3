package relay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/grpc"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// world is a control plane and an Envoy around one subscription, as simple as can be.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	sub     *subscription
	server  map[string]string // what there is: version by name
	assumed map[string]string // what Envoy has, according to the control plane
	envoy   map[string]string // what Envoy has
	sent    []*response       // Envoy has not looked at them yet
	answers []answer          // of Envoy, on their way
	nonces  int
}

type answer struct {
	to       *response
	rejected *ads.Rejection
}

// request passes a request to the subscription.
func (w *world) request(a *ads.Ask, first bool) {
	a.TypeURL = w.sub.typeURL
	r, err := ads.ReadRequest(a.Encode(), false, limits())
	if err != nil {
		w.t.Fatal(err)
	}
	w.sub.subscribe(r, first)
}

// push sends what is missing according to the control plane, and removals of subscribed names that
// do not exist.
func (w *world) push(asked ...string) {
	w.nonces++
	r := &response{Reply: &ads.Reply{TypeURL: w.sub.typeURL, Nonce: fmt.Sprint(w.nonces)}}
	for name, version := range w.server {
		if w.sub.wants(name) && w.assumed[name] != version {
			r.Items = append(r.Items, ads.Item{Name: name, Version: version})
			w.assumed[name] = version
		}
	}
	for _, name := range asked {
		if _, ok := w.server[name]; !ok {
			r.Removed = append(r.Removed, name)
		}
	}
	for name := range w.assumed {
		if _, ok := w.server[name]; !ok {
			r.Removed = append(r.Removed, name)
			delete(w.assumed, name)
		}
	}
	if len(r.Items)+len(r.Removed) > 0 {
		w.sub.send(r)
		w.sent = append(w.sent, r)
	}
}

// apply makes Envoy take the oldest response. One that it rejects it applies in part.
func (w *world) apply(reject bool) {
	if len(w.sent) == 0 {
		return
	}
	r := w.sent[0]
	w.sent = w.sent[1:]
	for _, it := range r.Items {
		if w.sub.wants(it.Name) && (!reject || w.rng.IntN(2) == 0) {
			w.envoy[it.Name] = it.Version
		}
	}
	for _, name := range r.Removed {
		if !reject || w.rng.IntN(2) == 0 {
			delete(w.envoy, name)
		}
	}
	a := answer{to: r}
	if reject {
		a.rejected = &ads.Rejection{Message: "no"}
	}
	w.answers = append(w.answers, a)
}

// answer makes the oldest answer of Envoy arrive.
func (w *world) answer() {
	if len(w.answers) == 0 {
		return
	}
	a := w.answers[0]
	w.answers = w.answers[1:]
	if w.sub.answer(a.to.Nonce, a.rejected) != a.to {
		w.t.Fatalf("the response %s is not known", a.to.Nonce)
	}
}

// reconnect makes the control plane accept the claims, like one that restarted.
func (w *world) reconnect() {
	w.assumed = map[string]string{}
	if a := w.sub.ask(nil); a != nil {
		w.assumed = maps.Clone(a.Claims)
		maps.DeleteFunc(w.assumed, func(_, version string) bool { return version == "" })
	}
	w.push()
}

// For any answers of Envoy, the claims on the next stream make a control plane send what Envoy
// lacks. If Envoy acknowledged everything, it sends nothing else.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), sub: newSubscription("t"),
			server: map[string]string{}, assumed: map[string]string{}, envoy: map[string]string{}}
		all := seed%2 == 0
		first := &ads.Ask{}
		if !all {
			first.Subscribe = []string{"a", "b"}
		}
		w.request(first, true)
		names := []string{"a", "b", "c", "d"}
		for range 40 {
			name := names[w.rng.IntN(len(names))]
			switch w.rng.IntN(10) {
			case 0, 1:
				w.server[name] = fmt.Sprint("v", w.rng.IntN(3))
				w.push()
			case 2:
				delete(w.server, name)
				w.push()
			case 3, 4:
				w.apply(false)
			case 5:
				w.apply(true)
			case 6, 7:
				w.answer()
			case 8:
				w.server[name] = fmt.Sprint("v", w.rng.IntN(3)) // while no client was connected
				w.reconnect()
			case 9:
				switch {
				case all:
				case w.rng.IntN(2) == 0:
					w.request(&ads.Ask{Subscribe: []string{name}}, false)
					delete(w.assumed, name)
					w.push(name)
				default:
					w.request(&ads.Ask{Unsubscribe: []string{name}}, false)
					delete(w.envoy, name)
					delete(w.assumed, name)
				}
			}
		}
		w.reconnect()
		for len(w.sent)+len(w.answers) > 0 {
			w.apply(false)
			w.answer()
		}
		want := maps.Clone(w.server)
		maps.DeleteFunc(want, func(name, _ string) bool { return !w.sub.wants(name) })
		if !maps.Equal(w.envoy, want) {
			t.Errorf("seed %d: Envoy has %v, want %v; claims %v", seed, w.envoy, want, w.sub.claims)
		}
		if w.reconnect(); len(w.sent) > 0 {
			t.Errorf("seed %d: Envoy has everything and is sent %+v, removed %v", seed, w.sent[0].Items,
				w.sent[0].Removed)
		}
	}
}

// Endpoints are not claimed while their cluster is not acknowledged: Envoy warms it until they
// come again.
func TestUnacknowledgedCluster(t *testing.T) {
	t.Parallel()
	sent := func(typeURL string, names ...string) *subscription {
		s := newSubscription(typeURL)
		r := &response{Reply: &ads.Reply{TypeURL: typeURL, Nonce: "1"}}
		for _, name := range names {
			s.names[name] = struct{}{}
			r.Items = append(r.Items, ads.Item{Name: name, Version: "v"})
		}
		s.send(r)
		return s
	}
	clusters, endpoints := sent(resource.ClusterType, "a"), sent(resource.EndpointType, "a", "b")
	endpoints.answer("1", nil)
	if got := fmt.Sprint(endpoints.ask(clusters).Claims); got != "map[b:v]" {
		t.Errorf("claims %s, want b alone", got)
	}
	clusters.answer("1", nil)
	if got := fmt.Sprint(endpoints.ask(clusters).Claims); got != "map[a:v b:v]" {
		t.Errorf("claims %s, want both", got)
	}
}

// A request of Envoy that answers another stream's response keeps its changes of names.
func TestRenaming(t *testing.T) {
	t.Parallel()
	r, err := ads.ReadRequest((&ads.Ask{TypeURL: "t", Nonce: "old", Subscribe: []string{"*", "a"},
		Unsubscribe: []string{"b"}}).Encode(), false, limits())
	if err != nil {
		t.Fatal(err)
	}
	a := renaming(r)
	slices.Sort(a.Subscribe)
	if fmt.Sprint(a.Subscribe, a.Unsubscribe, a.Nonce) != "[* a] [b]" {
		t.Errorf("got %+v", a)
	}
}

// sink takes what is sent to Envoy.
type sink struct {
	grpc.ServerStream
	sent []*ads.Reply
}

func (s *sink) SendMsg(m any) error {
	r, err := ads.ReadReply(m.(*Frame).Data, false, limits())
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
		c.put(&ads.Reply{TypeURL: resource.ListenerType}, true, everything)
		out := &sink{}
		s := &session{relay: &Relay{cache: c}, envoy: out}
		r, err := ads.ReadRequest(tc.ask.Encode(), false, limits())
		if err != nil {
			t.Fatal(err)
		}
		sub := newSubscription(r.TypeURL)
		sub.subscribe(r, true)
		if err := s.fromCache(sub); err != nil {
			t.Fatal(err)
		}
		got := "silent"
		for _, r := range out.sent {
			got = fmt.Sprint(nameList(r), r.Removed)
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
