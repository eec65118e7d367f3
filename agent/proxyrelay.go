package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// relay stands between the control plane and Envoy. It holds what the control plane said, tells Envoy, and tells the
// control plane what Envoy made of it. No I/O, clock or goroutine; not safe for concurrent use.
//
// Why this is right, law by law of the protocol:
//
//   - Order. The control plane sends a route when the endpoints of its cluster are acknowledged, and removes a cluster when
//     listeners and routes have moved on. Its acknowledgements here are Envoy's own: a response is answered when Envoy has
//     answered for every name in it. So what is passed on as it comes arrives in that order. proxyorder.go keeps it for an
//     Envoy that missed some.
//   - Clusters are acknowledged late, while they warm, and newer ones follow meanwhile: the same holds on both sides, for
//     the answer to a response waits only for the names in it, and answers leave in the order of the responses.
//   - After a rejection nothing in the response is known: towards Envoy, its Subscription sends it apart until the culprit
//     stands alone. Only then is the response refused upstream, with Envoy's words. When the control plane takes it apart
//     too, each part is answered from what is known by then, without Envoy.
//   - A refused version is not offered again: what Envoy is to have of that name is what it took before. The control
//     plane goes on knowing, from whatever replica asks next, because the refused version is never claimed.
//   - What the control plane says again, it means: the endpoints of a cluster that changed are sent to Envoy again.
//   - Nothing is known to be missing before the control plane says so: a name that it has not answered is not answered.
//   - Without an Envoy, the agent accepts for it. When an Envoy comes and thinks otherwise, the name is asked for again so
//     that there is something to answer.
//   - Stale nonces cannot be: answers belong to the stream on which the response came, and die with it.
type relay struct {
	cache *ads.Cache

	types   []*heldType // by rank
	streams []*envoyStream
	serial  uint64
	past    map[string]ads.Doubt // what Envoy's last streams left in doubt, by type
	up      *upstream            // nil: no control plane
	expired bool                 // what is held is too old to be served
	unclean bool                 // what is held comes from a copy that was not finished: doubt the first claims
	version uint64               // counts what a copy would miss
}

// upstream is what is under way on one stream to the control plane.
type upstream struct {
	interests []*ads.Interest // by rank of the type
	offers    map[string][]*offer
	wake      chan struct{} // cap 1
}

// offer is a response that is not answered yet.
type offer struct {
	names map[string]verdict
	words string // Envoy's, about one of the names; empty: none was refused
}

func newRelay() *relay { return &relay{cache: ads.NewCache()} }

// held is what is held of a type.
func (r *relay) held(typeURL string) *heldType {
	if t := r.find(typeURL); t != nil {
		return t
	}
	t := newHeldType(typeURL)
	i, _ := slices.BinarySearchFunc(r.types, t.rank+1, func(o *heldType, rank int) int { return o.rank - rank })
	r.types = slices.Insert(r.types, i, t)
	return t
}

// find is held without making one.
func (r *relay) find(typeURL string) *heldType {
	for _, t := range r.types {
		if t.kind.TypeURL == typeURL {
			return t
		}
	}
	return nil
}

// target is what Envoy is to have of a type.
func (r *relay) target(t *heldType) resource.Set {
	if r.expired && t.kind.TypeURL == listenerTypeURL {
		return resource.Set{} // it serves nothing
	}
	return t.target()
}

// expire says whether what is held may be served: not, when it is older than its bound. Then Envoy loses its listeners.
func (r *relay) expire(expired bool) {
	if r.expired != expired {
		r.expired = expired
		r.wakeAll()
	}
}

// open takes in a stream of Envoy.
func (r *relay) open(states bool, now time.Time) *envoyStream {
	r.serial++
	st := &envoyStream{relay: r, serial: r.serial, states: states, reader: ads.NewReader(states, ads.Limits{Names: maxProxyNames}),
		prefix: noncePrefix(r.serial, now), order: r.order(), wake: make(chan struct{}, 1), doubts: r.past}
	for _, o := range r.streams {
		st.doubts = o.left(st.doubts)
	}
	if r.unclean {
		st.doubts = r.doubtAll(st.doubts)
	}
	r.past, r.unclean = nil, false
	r.streams = append(r.streams, st)
	for _, t := range r.types {
		t.retry((*heldEntry).harmless)
	}
	return st
}

// doubtAll disbelieves every claim.
func (r *relay) doubtAll(doubts map[string]ads.Doubt) map[string]ads.Doubt {
	out := maps.Clone(doubts)
	if out == nil {
		out = map[string]ads.Doubt{}
	}
	for _, t := range r.types {
		out[t.kind.TypeURL] = out[t.kind.TypeURL].Or(ads.Doubt{All: true})
	}
	return out
}

// close takes a stream out. What waited for its answer is judged without it.
func (r *relay) close(st *envoyStream, now time.Time) {
	r.streams = slices.DeleteFunc(r.streams, func(o *envoyStream) bool { return o == st })
	r.past = st.left(r.past)
	for _, sub := range st.subs {
		sub.held.retain(sub.names)
	}
	for _, t := range r.types {
		r.judge(t, now)
	}
}

// certain says whether Envoy's claims on its next stream can be believed.
func (r *relay) certain() bool {
	left := r.past
	for _, st := range r.streams {
		left = st.left(left)
	}
	return len(left) == 0 && !r.unclean
}

// want makes the control plane be asked for what Envoy newly wants, and not any more for what no stream wants. What an
// Envoy wanted that is gone stays: it comes back, or prune drops it.
func (r *relay) want(t *heldType) {
	before, all := len(t.names), t.all
	for _, st := range r.streams {
		if sub := st.find(t.kind.TypeURL); sub != nil {
			maps.Copy(t.names, sub.names)
			t.all = t.all || sub.all
		}
	}
	changed := len(t.names) != before || t.all != all
	if r.drop(t) || changed {
		r.version++
		r.ask(t)
	}
}

// drop forgets names that a stream had and that no stream wants any more.
func (r *relay) drop(t *heldType) (dropped bool) {
	for name := range t.names {
		if _, retained := t.retained[name]; retained || r.wanted(t, name) {
			continue
		}
		t.forget(name)
		dropped = true
	}
	return dropped
}

// wanted says whether a stream wants a name by name.
func (r *relay) wanted(t *heldType, name string) bool {
	for _, st := range r.streams {
		if sub := st.find(t.kind.TypeURL); sub != nil {
			if _, ok := sub.names[name]; ok {
				return true
			}
		}
	}
	return false
}

// settle is called when a stream has lasted for a while. A process that was not there when something was refused judges it by itself
// now: why the one before refused it, a port that was taken or a file that was missing, may be mended. Until now it
// had what was accepted, so that it could begin its work.
func (r *relay) settle(st *envoyStream) {
	if cds := st.find(clusterTypeURL); cds != nil && !cds.Resumed() {
		for _, t := range r.types {
			if t.retry(everything) {
				r.version++
				r.wake(t)
			}
		}
	}
	r.prune()
}

// prune drops what an Envoy wanted that is gone, once its successor has had the time to ask.
func (r *relay) prune() {
	if len(r.streams) == 0 {
		return
	}
	for _, t := range r.types {
		t.retained = nil
		if r.drop(t) {
			r.version++
			r.ask(t)
		}
	}
}

// ask tells the control plane what is wanted of a type.
func (r *relay) ask(t *heldType) {
	if r.up == nil || !t.all && len(t.names) == 0 && r.up.find(t.kind.TypeURL) == nil {
		return
	}
	r.up.interest(t).Want(t.all, t.names)
	r.rouseUpstream()
}

// refusals takes in that Envoy rejected a response.
func (r *relay) refusals(st *envoyStream, sub *envoySub, words string, now time.Time) {
	if st != r.speaker(sub.held, "") {
		return
	}
	for _, f := range sub.Refusals() {
		if f.Words == "" {
			f.Words = words
		}
		if sub.held.refuse(f.Name, f.Version, f.Words, now) {
			if f.HadKnown {
				sub.held.keep(f.Name, f.Had)
			}
			r.version++
			r.wake(sub.held)
		}
	}
}

// speaker is the stream that speaks for Envoy about a type: the newest that asked for it; with a name, the newest that wants
// that. Nil: there is none.
func (r *relay) speaker(t *heldType, name string) *envoyStream {
	for _, st := range slices.Backward(r.streams) {
		sub := st.find(t.kind.TypeURL)
		if sub == nil {
			continue
		}
		if _, named := sub.names[name]; name == "" || named || sub.all {
			return st
		}
	}
	return nil
}

// wake makes all streams look at what a type has become.
func (r *relay) wake(t *heldType) {
	for _, st := range r.streams {
		if st.find(t.kind.TypeURL) != nil {
			st.rouse()
		}
	}
}

// rouseUpstream wakes who talks to the control plane.
func (r *relay) rouseUpstream() {
	if r.up == nil {
		return
	}
	select {
	case r.up.wake <- struct{}{}:
	default: // it is awake already
	}
}

func (r *relay) wakeAll() {
	for _, st := range r.streams {
		st.rouse()
	}
}

// rouse wakes the stream's goroutine.
func (st *envoyStream) rouse() {
	select {
	case st.wake <- struct{}{}:
	default: // it is awake already and will see the latest
	}
}

// counts are how many resources are held, and how many of them Envoy refuses.
func (r *relay) counts() (resources, refused int) {
	for _, t := range r.types {
		resources += len(t.entries)
		refused += len(t.denied)
	}
	return resources, refused
}

// refusedWords are what Envoy does not take, and why.
func (r *relay) refusedWords() []string {
	var out []string
	for _, t := range r.types {
		for _, name := range slices.Sorted(maps.Keys(t.denied)) {
			out = append(out, fmt.Sprintf("%s %s: %s", t.kind.TypeURL[strings.LastIndexByte(t.kind.TypeURL, '.')+1:], name, t.entries[name].words))
		}
	}
	return out
}
