package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// envoyStream is one stream of Envoy. What it asks for reaches its subscriptions only as far as the control plane's answer
// is known: until then Envoy waits, as it would for the control plane.
type envoyStream struct {
	relay  *relay        // set once
	serial uint64        // set once
	states bool          // set once: state of the world
	reader *ads.Reader   // set once
	prefix string        // set once: of nonces
	wake   chan struct{} // set once; cap 1

	subs   []*envoySub
	order  ads.Order
	doubts map[string]ads.Doubt // what an earlier stream left, of types not asked for yet
	failed error                // what the stream has to end with
}

// envoySub is one type of a stream.
type envoySub struct {
	*ads.Turn
	held *heldType

	all     bool                // it asks for everything
	names   map[string]struct{} // it asks for these by name
	waiting map[string]struct{} // of names: not answered by the control plane yet
	queue   []*ads.Request      // what it asked before everything was held, oldest first
	nonce   string              // state of the world: what it named last
	version string              // likewise
}

// errTypes is that a stream asks for too much.
var errTypes = fmt.Errorf("a stream may subscribe to %d types", maxProxyTypes)

// find returns the state of a type, nil when Envoy did not ask for it on this stream.
func (st *envoyStream) find(typeURL string) *envoySub {
	for _, sub := range st.subs {
		if sub.held.kind.TypeURL == typeURL {
			return sub
		}
	}
	return nil
}

// sub is the state of a type, made when it is new.
func (st *envoyStream) sub(typeURL string) (*envoySub, error) {
	if sub := st.find(typeURL); sub != nil {
		return sub, nil
	}
	if len(st.subs) >= maxProxyTypes {
		return nil, errTypes
	}
	held := st.relay.held(typeURL)
	turn, at := st.order.Add(ads.NewSubscription(held.kind, st.states, st.relay.cache, st.prefix), held.rank)
	sub := &envoySub{Turn: turn, held: held, names: map[string]struct{}{}, waiting: map[string]struct{}{}}
	sub.Distrust(st.doubt(typeURL))
	delete(st.doubts, typeURL)
	st.subs = slices.Insert(st.subs, at, sub)
	return sub, nil
}

// doubt is what an earlier stream left about a type. What Envoy refused counts for the same process, which it shows by
// naming clusters that it has.
func (st *envoyStream) doubt(typeURL string) ads.Doubt {
	d := st.doubts[typeURL]
	if cds := st.find(clusterTypeURL); cds == nil || !cds.Resumed() {
		d.Refused = nil
	}
	return d
}

// receive takes in a request. Errors say what Envoy may not do; the stream ends with them.
func (st *envoyStream) receive(r *ads.Request, now time.Time) error {
	switch r.TypeURL {
	case healthTypeURL, proxyConfigTypeURL, probeTypeURL:
		return nil // these are the agent's own business
	}
	sub, err := st.sub(r.TypeURL)
	if err != nil {
		return err
	}
	if st.states || !sub.Started() || r.Renames() {
		if err := sub.note(r, st.states); err != nil {
			return err
		}
		st.relay.want(sub.held)
	}
	if !sub.Started() && !sub.ready() {
		if len(sub.queue) >= maxProxyQueue {
			return fmt.Errorf("%d requests for %s before the first answer are too many", len(sub.queue)+1, r.TypeURL)
		}
		sub.queue = append(sub.queue, r)
		return nil
	}
	if err := st.feed(sub, r, now); err != nil {
		return err
	}
	st.relay.judge(sub.held, now)
	return nil
}

// note keeps what a request says of what Envoy wants.
func (sub *envoySub) note(r *ads.Request, states bool) error {
	names, everything := r.Subscribes()
	added, first := maps.Collect(pairs(names)), sub.nonce == "" && !sub.Started() && len(sub.queue) == 0
	if states {
		sub.nonce, sub.version = r.Nonce, r.Version
		sub.all = everything || sub.held.kind.Wildcard && len(added) == 0 && (first || sub.all)
		sub.names = added
	} else {
		maps.Copy(sub.names, added)
		dropped, nothing := r.Unsubscribes()
		for name := range dropped {
			delete(sub.names, name)
		}
		implicit := first && sub.held.kind.Wildcard && len(added) == 0
		sub.all = (sub.all || everything || implicit) && !nothing
	}
	if len(sub.names) > maxProxyNames {
		return fmt.Errorf("subscription to %s holds %d resource names, at most %d are allowed", sub.held.kind.TypeURL, len(sub.names), maxProxyNames)
	}
	clear(sub.waiting)
	for name := range sub.names {
		if !sub.held.answered(name) {
			sub.waiting[name] = struct{}{}
		}
	}
	return nil
}

// ready says whether the control plane answered enough for a first request: with everything, or, where no name at all
// would read as everything, with one of the names.
func (sub *envoySub) ready() bool {
	if sub.all {
		return sub.held.complete
	}
	return !sub.held.kind.Wildcard || len(sub.waiting) < len(sub.names)
}

func pairs(names func(func(string) bool)) func(func(string, struct{}) bool) {
	return func(yield func(string, struct{}) bool) {
		names(func(name string) bool { return yield(name, struct{}{}) })
	}
}

// feed gives a request to its subscription, without the names that wait.
func (st *envoyStream) feed(sub *envoySub, r *ads.Request, now time.Time) error {
	if len(sub.waiting) > 0 {
		var err error
		if r, err = st.reader.Without(r, func(name string) bool { _, waits := sub.waiting[name]; return waits }); err != nil {
			return err
		}
	}
	out, err := sub.Receive(r, st.relay.target(sub.held), ads.Limits{Names: maxProxyNames}, now)
	if err != nil {
		return err
	}
	if out.Rejected {
		st.relay.refusals(st, sub, r.Rejected.Message, now)
	}
	return nil
}

// release gives the subscriptions what the control plane has answered since.
func (st *envoyStream) release(held *heldType, now time.Time) error {
	sub := st.find(held.kind.TypeURL)
	if sub == nil {
		return nil
	}
	var known []string
	for name := range sub.waiting {
		if held.answered(name) {
			known = append(known, name)
			delete(sub.waiting, name)
		}
	}
	if len(sub.queue) > 0 {
		return st.dequeue(sub, now)
	}
	if len(known) == 0 {
		return nil
	}
	slices.Sort(known)
	if st.states {
		return st.repeat(sub, now)
	}
	ask := ads.Ask{TypeURL: held.kind.TypeURL, Subscribe: known}
	return st.pretend(sub, ask.Encode(), now)
}

// dequeue lets the subscription hear what Envoy asked before it was ready.
func (st *envoyStream) dequeue(sub *envoySub, now time.Time) error {
	if !sub.ready() {
		return nil
	}
	queue := sub.queue
	sub.queue = nil
	for _, r := range queue {
		if err := st.feed(sub, r, now); err != nil {
			return err
		}
	}
	return nil
}

// repeat says again, in state of the world, what Envoy said last, with the names that are answered by now.
func (st *envoyStream) repeat(sub *envoySub, now time.Time) error {
	var names []string
	for name := range sub.names {
		if _, waits := sub.waiting[name]; !waits {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if sub.all {
		names = append([]string{"*"}, names...)
	}
	return st.pretend(sub, ads.EncodeState(sub.held.kind.TypeURL, names, sub.nonce, sub.version), now)
}

// pretend makes the subscription hear a request that Envoy did not send in this form.
func (st *envoyStream) pretend(sub *envoySub, raw []byte, now time.Time) error {
	r, err := st.reader.Read(raw)
	if err != nil {
		return err
	}
	_, err = sub.Receive(r, st.relay.target(sub.held), ads.Limits{Names: maxProxyNames}, now)
	return err
}

// left is what Envoy's claims on its next stream cannot be believed for.
func (st *envoyStream) left(doubts map[string]ads.Doubt) map[string]ads.Doubt {
	out := maps.Clone(doubts)
	add := func(typeURL string, d ads.Doubt) {
		if d.None() {
			return
		}
		if out == nil {
			out = map[string]ads.Doubt{}
		}
		out[typeURL] = out[typeURL].Or(d)
	}
	for typeURL, d := range st.doubts {
		add(typeURL, d)
	}
	for _, sub := range st.subs {
		add(sub.held.kind.TypeURL, sub.Doubt())
	}
	return out
}

// maxProxyQueue is how many requests of a type may come before the first answer.
const maxProxyQueue = 64

func noncePrefix(serial uint64, now time.Time) string {
	return strconv.FormatUint(serial, 36) + "." + strconv.FormatInt(now.UnixNano(), 36) + "-"
}
