package ads_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// model is a naive client that rejects every text that begins with "bad", applies a random part of
// what it rejects, and keeps old version names for it, as Envoy does. On a new stream it claims no
// version that it does not have, as the agent sees to it.
type model struct {
	*peer
	rng      *rand.Rand
	has      map[string]string // what it runs: name -> text
	versions map[string]string // what it says that it runs: delta
	version  string            // the same: state of the world
	nonce    string            // of the last response: state of the world
	names    map[string]bool   // subscribed by name
	all      bool
	asked    bool
	inbox    []*response
	to       resource.Set
	want     map[string]string
	log      []string
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// publish changes some of what is configured.
func (m *model) publish() {
	for range 1 + m.rng.IntN(4) {
		name := string(rune('a' + m.rng.IntN(8)))
		switch m.rng.IntN(4) {
		case 0:
			delete(m.want, name)
		case 1:
			m.want[name] = fmt.Sprint("bad", m.rng.IntN(3))
		default:
			m.want[name] = fmt.Sprint("v", m.rng.IntN(4))
		}
	}
	var shared, own []*resource.Resource
	for name, text := range m.want {
		r := body(m.kind.TypeURL, name, text)
		switch m.rng.IntN(4) {
		case 0:
			own = append(own, r)
		case 1: // overrules what equal proxies have
			own = append(own, r)
			shared = append(shared, body(m.kind.TypeURL, name, "v9"))
		default:
			shared = append(shared, r)
		}
	}
	m.to = resource.Set{Shared: resource.NewLayer(shared)}
	if len(own) > 0 {
		m.to.Own = resource.NewLayer(own)
	}
	m.note("publish %v", m.want)
}

// step does one random thing.
func (m *model) step() {
	switch n := m.rng.IntN(10); {
	case !m.asked:
		m.ask()
	case n < 2:
		m.publish()
	case n < 5:
		m.delay()
		m.pull()
	case n < 8:
		m.take()
	case n == 8:
		m.resubscribe()
	default:
		if m.rng.IntN(3) == 0 {
			m.note("reconnect, rejected %v", m.sub.Rejected())
			m.reconnect()
			m.claimTruly()
			m.inbox, m.asked, m.nonce = nil, false, ""
		}
	}
}

// delay makes some of what there is to send wait until the end.
func (m *model) delay() {
	late := string(rune('a' + m.rng.IntN(8)))
	m.lag = func(name string) bool { return name >= late }
	m.hold = func(name string) bool { return name < late }
	m.note("changes from %s on wait, and removals before it", late)
}

// pull lets the server send.
func (m *model) pull() bool {
	r := m.next(m.to)
	if r == nil {
		return false
	}
	m.note("sent %s (%s)", r, r.nonce)
	m.inbox = append(m.inbox, r)
	return true
}

// ask is the first request of a stream.
func (m *model) ask() {
	m.asked = true
	if m.states {
		m.state(m.to, &discoveryv3.DiscoveryRequest{VersionInfo: m.version, ResourceNames: m.list()})
		m.note("ask %v at %q", m.list(), m.version)
		return
	}
	m.delta(m.to, &discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: maps.Clone(m.versions),
		ResourceNamesSubscribe: m.list()})
	m.note("ask %v with %v", m.list(), m.versions)
}

// claimTruly makes the claims of the next stream say what the client runs.
func (m *model) claimTruly() {
	if len(m.has) > 0 {
		m.version = "unacknowledged"
	}
	for name, text := range m.has {
		if m.versions[name] != body(m.kind.TypeURL, name, text).Version() {
			m.versions[name] = "unacknowledged"
		}
	}
	for name := range m.versions {
		if _, ok := m.has[name]; !ok {
			m.versions[name] = "unacknowledged"
		}
	}
}

func (m *model) list() []string {
	if m.all {
		return nil
	}
	return slices.Sorted(maps.Keys(m.names))
}

// resubscribe adds or drops a name.
func (m *model) resubscribe() {
	if m.all {
		return
	}
	name := string(rune('a' + m.rng.IntN(9)))
	if m.names[name] && len(m.names) == 1 {
		return
	}
	req := &discoveryv3.DeltaDiscoveryRequest{}
	if m.names[name] {
		delete(m.names, name)
		delete(m.has, name)
		delete(m.versions, name)
		req.ResourceNamesUnsubscribe = []string{name}
		m.note("unsubscribe %s", name)
	} else {
		m.names[name] = true
		req.ResourceNamesSubscribe = []string{name}
		m.note("subscribe %s", name)
	}
	if m.states {
		m.state(m.to, &discoveryv3.DiscoveryRequest{VersionInfo: m.version, ResponseNonce: m.nonce,
			ResourceNames: m.list()})
		return
	}
	m.delta(m.to, req)
}

// take processes the oldest response and answers it.
func (m *model) take() bool {
	if len(m.inbox) == 0 {
		return false
	}
	r := m.inbox[0]
	m.inbox = m.inbox[1:]
	var bad []string
	for name, text := range r.items {
		if strings.HasPrefix(text, "bad") {
			bad = append(bad, name)
		}
	}
	m.apply(r, len(bad) > 0)
	var words string
	if len(bad) > 0 {
		words = "something is wrong"
		if m.rng.IntN(2) == 0 {
			words = "Error adding/updating: " + bad[0] + ": bad"
		}
	}
	m.answer(r, words)
	return true
}

// apply takes in what a response says, or a random part of it.
func (m *model) apply(r *response, partly bool) {
	for name, text := range r.items {
		if !m.all && !m.names[name] {
			continue // unsubscribed meanwhile
		}
		if partly && (strings.HasPrefix(text, "bad") || !m.thorough() && m.rng.IntN(2) == 0) {
			continue
		}
		m.has[name] = text
		if !partly {
			m.versions[name] = r.versions[name]
		}
	}
	for _, name := range r.removed {
		if partly && m.rng.IntN(2) == 0 {
			continue
		}
		delete(m.has, name)
		if !partly {
			delete(m.versions, name)
		}
	}
	if m.states && m.kind.Whole {
		for name := range m.has {
			if _, ok := r.items[name]; !ok && (!partly || m.thorough() || m.rng.IntN(2) == 0) {
				delete(m.has, name)
			}
		}
	}
}

// thorough says whether the client applies all that is right in what it rejects: of whole sets it
// does, as Envoy's clusters and listeners.
func (m *model) thorough() bool { return m.states && m.kind.Whole }

func (m *model) answer(r *response, words string) {
	if m.states {
		m.nonce = r.nonce
		req := &discoveryv3.DiscoveryRequest{VersionInfo: m.version, ResponseNonce: r.nonce, ResourceNames: m.list()}
		if words != "" {
			req.ErrorDetail = rejection(words)
		} else {
			m.version, req.VersionInfo = r.version, r.version
		}
		m.note("answer %s %q, has %v", r.nonce, words, m.has)
		m.state(m.to, req)
		return
	}
	req := &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.nonce}
	if words != "" {
		req.ErrorDetail = rejection(words)
	}
	m.note("answer %s %q, has %v", r.nonce, words, m.has)
	m.delta(m.to, req)
}

// settle lets both sides talk until neither has anything to say.
func (m *model) settle() {
	m.lag, m.hold = nil, nil
	if !m.asked {
		m.ask()
	}
	for i := 0; ; i++ {
		if i > 500 {
			m.fail("never ends")
		}
		pulled, took := m.pull(), m.take()
		if !pulled && !took {
			return
		}
	}
}

// check compares what the client runs with what is configured.
func (m *model) check() {
	for name, text := range m.want {
		if !m.all && !m.names[name] || strings.HasPrefix(text, "bad") {
			continue
		}
		if m.has[name] != text {
			m.fail("%s is %q, want %q", name, m.has[name], text)
		}
	}
	for name, text := range m.has {
		if _, ok := m.want[name]; ok || m.states && !m.kind.Whole && m.kind.Empty == nil {
			continue // wanted, or a removal that state of the world cannot express
		}
		if m.kind.Empty == nil || text != "" {
			m.fail("%s is %q, want nothing", name, text)
		}
	}
	if !m.sub.Settled() {
		m.fail("not settled")
	}
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.log[max(0, len(m.log)-30):], "\n"))
}

// Whatever happens on the way, a client ends with exactly what is configured, apart from what it
// refuses.
func TestModel(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func() *ads.Kind{"clusters": clusters, "endpoints": endpoints,
		"listeners": listeners, "routes": routes, "secrets": secrets} {
		for _, states := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s states=%v", name, states), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(200) {
					runModel(t, kind(), states, seed)
				}
			})
		}
	}
}

func runModel(t *testing.T, kind *ads.Kind, states bool, seed uint64) {
	m := &model{peer: newPeer(t, kind, states), rng: rand.New(rand.NewPCG(seed, 1)), all: kind.Whole,
		has: map[string]string{}, versions: map[string]string{}, want: map[string]string{}, names: map[string]bool{}}
	m.note("seed %d", seed)
	if !m.all {
		m.names["a"] = true
	}
	m.publish()
	for range 5 {
		for range 15 {
			m.step()
		}
		m.settle()
		m.check()
	}
}
