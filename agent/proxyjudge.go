package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// connect begins a stream to a control plane: everything that is wanted is asked for, with what is held claimed.
func (r *relay) connect() *upstream {
	r.up = &upstream{offers: map[string][]*offer{}, wake: make(chan struct{}, 1)}
	for _, t := range r.types {
		r.ask(t)
	}
	return r.up
}

// find returns the interest in a type, nil when there is none yet.
func (up *upstream) find(typeURL string) *ads.Interest {
	for _, i := range up.interests {
		if i.TypeURL() == typeURL {
			return i
		}
	}
	return nil
}

// interest is the interest in a type. Claims go out with its first request.
func (up *upstream) interest(t *heldType) *ads.Interest {
	if i := up.find(t.kind.TypeURL); i != nil {
		return i
	}
	i := ads.NewInterest(t.kind.TypeURL, t.claim())
	at, _ := slices.BinarySearchFunc(up.interests, t.rank+1, func(o *ads.Interest, rank int) int { return rankOf(o.TypeURL()) - rank })
	up.interests = slices.Insert(up.interests, at, i)
	return i
}

func rankOf(typeURL string) int {
	_, rank := proxyKind(typeURL)
	return rank
}

// next is the next request for the control plane, nil for none.
func (up *upstream) next() *ads.Ask {
	for _, i := range up.interests {
		if a := i.Next(); a != nil {
			return a
		}
	}
	return nil
}

// take takes in a response of the control plane, which is answered once Envoy has judged it.
func (r *relay) take(up *upstream, reply *ads.Reply, now time.Time) error {
	i := up.find(reply.TypeURL)
	if i == nil {
		return fmt.Errorf("the control plane answers %s, for which nobody asked", reply.TypeURL)
	}
	t := r.held(reply.TypeURL)
	i.Take(reply)
	o := &offer{names: make(map[string]verdict, len(reply.Items)+len(reply.Removed))}
	up.offers[reply.TypeURL] = append(up.offers[reply.TypeURL], o)
	var again []string // endpoints that Envoy has and waits for, since their cluster changed
	for k := range reply.Items {
		it := &reply.Items[k]
		if t.offer(it) && reply.TypeURL == endpointTypeURL {
			again = append(again, it.Name)
		}
		o.names[it.Name] = undecided
	}
	for _, name := range reply.Removed {
		t.remove(name)
		o.names[name] = undecided
	}
	t.complete = t.complete || t.all
	r.version++
	for _, st := range slices.Clone(r.streams) {
		if err := st.release(t, now); err != nil {
			st.failed = err
		}
		if sub := st.find(reply.TypeURL); sub != nil && len(again) > 0 && sub.Started() {
			sub.Force(again)
		}
	}
	r.wake(t)
	r.judge(t, now)
	return nil
}

// judge notes what Envoy made of what is offered, and answers the responses that are decided.
func (r *relay) judge(t *heldType, now time.Time) {
	if r.expired && t.kind.TypeURL == listenerTypeURL {
		return // Envoy has none, for another reason
	}
	for name := range t.open {
		st := r.speaker(t, name)
		if st == nil {
			continue
		}
		switch sub := st.find(t.kind.TypeURL); sub.Standing(name, r.target(t)) {
		case ads.Held:
			t.accept(name)
			r.version++
			r.tell(t, name)
		case ads.Refused: // on an earlier stream of the same process
			r.refusals(st, sub, "", now)
		}
	}
	for name := range t.denied {
		r.tell(t, name)
	}
	if r.up == nil {
		return
	}
	defer r.rouseUpstream()
	i := r.up.find(t.kind.TypeURL)
	for offers := r.up.offers[t.kind.TypeURL]; len(offers) > 0; offers = r.up.offers[t.kind.TypeURL] {
		o := offers[0]
		if !r.decide(t, o) {
			return
		}
		i.Answer(o.rejection())
		for name, v := range o.names {
			if e := t.entries[name]; e != nil {
				e.told = v
			}
		}
		r.up.offers[t.kind.TypeURL] = offers[1:]
	}
}

// decide judges the names of an offer; true: all of them are.
func (r *relay) decide(t *heldType, o *offer) bool {
	decided := true
	for name, v := range o.names {
		if v == undecided {
			v = r.verdict(t, name)
			o.names[name] = v
		}
		switch v {
		case undecided:
			decided = false
		case denied:
			if e := t.entries[name]; e != nil && e.words != "" && !strings.Contains(o.words, e.words) {
				o.words = strings.TrimPrefix(o.words+"; "+e.words, "; ")
			} else if o.words == "" {
				o.words = "Envoy refused " + name
			}
		}
	}
	return decided
}

// verdict is what Envoy makes of a name as it is offered.
func (r *relay) verdict(t *heldType, name string) verdict {
	if e := t.entries[name]; e != nil && e.words != "" {
		return denied
	}
	st := r.speaker(t, name)
	if st == nil {
		return taken // nobody wants it, or no Envoy is there
	}
	sub := st.find(t.kind.TypeURL)
	switch sub.Standing(name, r.target(t)) {
	case ads.Held:
		return taken
	case ads.Unwanted:
		if len(sub.queue) == 0 && len(sub.waiting) == 0 {
			return taken
		}
	}
	return undecided
}

// maxWords is how much of Envoy's words is passed on.
const maxWords = 8 << 10

// rejection is what to say of the whole offer.
func (o *offer) rejection() *ads.Rejection {
	if o.words == "" {
		return nil
	}
	return &ads.Rejection{Code: int32(codes.Internal), Message: strings.ToValidUTF8(o.words[:min(len(o.words), maxWords)], "")}
}

// tell makes the control plane ask again what Envoy makes of a name, when it was told something else: it sends the name once
// more, and that is answered.
func (r *relay) tell(t *heldType, name string) {
	e := t.entries[name]
	if r.up == nil || e == nil || e.told == undecided {
		return
	}
	truth := taken
	if e.words != "" {
		truth = denied
	}
	if e.told == truth {
		return
	}
	e.told = undecided
	if i := r.up.find(t.kind.TypeURL); i != nil {
		i.Again(name)
	}
}

// settle judges what the stream has without being sent anything.
func (st *envoyStream) settle(now time.Time) {
	for _, sub := range st.subs {
		if t := sub.held; len(t.open) > 0 || st.relay.up != nil && len(st.relay.up.offers[t.kind.TypeURL]) > 0 {
			st.relay.judge(t, now)
		}
	}
}
