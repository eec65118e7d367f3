package relay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// world is a control plane and an Envoy around one subscription, as simple as can be.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	sub     *subscription
	server  map[string]string // what there is: version by name
	believe map[string]string // what the control plane believes that Envoy has
	envoy   map[string]string // what Envoy has
	sent    []*response       // not answered by Envoy yet
	nonces  int
}

// request makes the subscription hear a request.
func (w *world) request(a *ads.Ask, first bool) {
	a.TypeURL = w.sub.typeURL
	r, err := ads.NewReader(false, limits()).Read(a.Encode())
	if err != nil {
		w.t.Fatal(err)
	}
	w.sub.subscribe(r, first)
}

// push sends what the control plane believes to be missing, and that what is asked for does not exist.
func (w *world) push(asked ...string) {
	w.nonces++
	r := &response{Reply: &ads.Reply{TypeURL: w.sub.typeURL, Nonce: fmt.Sprint(w.nonces)}}
	for name, version := range w.server {
		if w.sub.wants(name) && w.believe[name] != version {
			r.Items = append(r.Items, ads.Item{Name: name, Version: version})
			w.believe[name] = version
		}
	}
	for _, name := range asked {
		if _, ok := w.server[name]; !ok {
			r.Removed = append(r.Removed, name)
		}
	}
	for name := range w.believe {
		if _, ok := w.server[name]; !ok {
			r.Removed = append(r.Removed, name)
			delete(w.believe, name)
		}
	}
	if len(r.Items)+len(r.Removed) > 0 {
		w.sub.send(r)
		w.sent = append(w.sent, r)
	}
}

// answer makes Envoy answer the oldest response. One that it rejects it applies in part.
func (w *world) answer(reject bool) {
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
	var rejected *ads.Rejection
	if reject {
		rejected = &ads.Rejection{Message: "no"}
	}
	if w.sub.answer(r.Nonce, rejected) != r {
		w.t.Fatalf("the response %s is not known", r.Nonce)
	}
}

// reconnect makes the control plane believe what is claimed, as one that restarted does.
func (w *world) reconnect() {
	w.believe = map[string]string{}
	if a := w.sub.ask(nil); a != nil {
		w.believe = maps.Clone(a.Claims)
		maps.DeleteFunc(w.believe, func(_, version string) bool { return version == "" })
	}
	w.push()
}

// Whatever Envoy answers or not, what is claimed of it on the next stream makes a control plane that believes it send what
// Envoy lacks, and nothing else when Envoy acknowledged everything.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), sub: newSubscription("t"),
			server: map[string]string{}, believe: map[string]string{}, envoy: map[string]string{}}
		all := seed%2 == 0
		first := &ads.Ask{}
		if !all {
			first.Subscribe = []string{"a", "b"}
		}
		w.request(first, true)
		names := []string{"a", "b", "c", "d"}
		for range 40 {
			name := names[w.rng.IntN(len(names))]
			switch w.rng.IntN(8) {
			case 0, 1:
				w.server[name] = fmt.Sprint("v", w.rng.IntN(3))
				w.push()
			case 2:
				delete(w.server, name)
				w.push()
			case 3, 4:
				w.answer(false)
			case 5:
				w.answer(true)
			case 6:
				w.reconnect()
			case 7:
				switch {
				case all:
				case w.rng.IntN(2) == 0:
					w.request(&ads.Ask{Subscribe: []string{name}}, false)
					delete(w.believe, name)
					w.push(name)
				default:
					w.request(&ads.Ask{Unsubscribe: []string{name}}, false)
					delete(w.envoy, name)
					delete(w.believe, name)
				}
			}
		}
		w.reconnect()
		for len(w.sent) > 0 {
			w.answer(false)
		}
		want := maps.Clone(w.server)
		maps.DeleteFunc(want, func(name, _ string) bool { return !w.sub.wants(name) })
		if !maps.Equal(w.envoy, want) {
			t.Errorf("seed %d: Envoy has %v, want %v; claims %v", seed, w.envoy, want, w.sub.claims)
		}
		if w.reconnect(); len(w.sent) > 0 {
			t.Errorf("seed %d: Envoy has everything and is sent %+v, removed %v", seed, w.sent[0].Items, w.sent[0].Removed)
		}
	}
}

// Endpoints are not claimed while their cluster is not acknowledged: Envoy warms it until they come again.
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

// A request of Envoy that answers another stream's response keeps what it says of names.
func TestRenaming(t *testing.T) {
	t.Parallel()
	r, err := ads.NewReader(false, limits()).Read((&ads.Ask{TypeURL: "t", Nonce: "old", Subscribe: []string{"*", "a"}, Unsubscribe: []string{"b"}}).Encode())
	if err != nil {
		t.Fatal(err)
	}
	a := renaming(r)
	slices.Sort(a.Subscribe)
	if fmt.Sprint(a.Subscribe, a.Unsubscribe, a.Nonce) != "[* a] [b]" {
		t.Errorf("got %+v", a)
	}
}
