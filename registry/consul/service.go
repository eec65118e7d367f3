package consul

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// service is one service of Consul's.
type service struct {
	// the following are set once, cancel when it is asked for
	name, group string
	object      string             // what people call it
	cancel      context.CancelFunc // ends who asks for it
	pokes       *pokes
	stop        *interrupts

	// the following belong to the goroutine of keeper.loop
	known    bool                 // there is something to say of it: what Consul said, or what stands in for it
	heard    bool                 // said is what Consul said last
	said     converted            // nothing before that
	items    []registry.Instances // and what is sent of it
	problems []feed.Problem
	asOf     time.Time
	mark     string     // see keeper.mark; empty: it is not what Consul said since the start
	within   string     // the notice that tells of it
	right    time.Time  // until when what stands in for it was right; zero: it is what Consul says
	late     bool       // what stands in for it is told to be old, for it has not answered yet, whether its place is in touch or not
	unlisted bool       // it is not among the names that the token reads, and is asked for by itself
	trouble  *trouble   // why it cannot be asked for; nil: it can
	shown    *trouble   // the one that is told; nil: none is
	checked  time.Time  // when the names were asked for because of its trouble; see excuse
	pending  *converted // what Consul says and is not believed before the names of all services are known; nil: nothing
	doubted  time.Time  // when it said so first
	hidden   time.Time  // when Consul said last that it has some of it, which the token hides
	missed   time.Time  // since when it is lost, should Consul have none of it; zero: it is gone then
	lost     bool       // Consul has none of it, as it said since the start
}

func (sc *scope) newService(name string) *service {
	return &service{
		name: name, group: sc.at.group(name), object: sc.at.object(name), within: sc.awayNotice.group, pokes: newPokes(), stop: &interrupts{},
		cancel: func() {}, // nobody asks yet
	}
}

// update is all that there is to say of the service.
func (s *service) update() feed.Update[registry.Instances] {
	u := feed.Update[registry.Instances]{Group: s.group, Items: s.items, Problems: s.problems, AsOf: s.asOf, Mark: s.mark, Within: s.within}
	u.Kept = s.known && !s.heard && !(s.lost && len(s.items) > 0) // what could not be read is kept on
	if s.shown == nil {
		if s.late {
			u.Away = s.right
		}
		return u
	}
	u.Problems = append(slices.Clone(s.problems), s.shown.problem(s.object, len(s.items) > 0))
	if len(s.items) > 0 {
		u.Away, u.AsOf = s.shown.since, s.shown.since
	}
	return u
}

// set takes in what Consul says of a service.
func (k *keeper) set(sc *scope, s *service, said converted, at time.Time) {
	if k.stirred = k.stirred || !s.right.IsZero(); s.late { // its place may have waited for that
		s.late = false
		k.post(s.group, s)
	}
	was := s.said.virtual
	sc.claim(s, s.said, said)
	s.mark = sc.mark
	s.said, s.heard, s.asOf, s.right, s.pending, s.missed = said, true, at, time.Time{}, nil, time.Time{}
	for dest := range merged(was, said.virtual) {
		if sc.bear(dest, s.name, said.virtual[dest]) && dest != s.name && sc.services[dest] != nil && sc.services[dest].heard {
			k.finish(sc, sc.services[dest], at)
		}
	}
	k.finish(sc, s, at)
	s.known = true
}

func merged(a, b map[string]netip.Addr) map[string]netip.Addr {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// bear notes that a service, or a sidecar's, bears a virtual address of service dest; the zero address: none. It says whether
// that is new.
func (sc *scope) bear(dest, by string, addr netip.Addr) bool {
	if sc.virtual[dest][by] == addr {
		return false
	}
	if addr.IsValid() {
		if sc.virtual[dest] == nil {
			sc.virtual[dest] = map[string]netip.Addr{}
		}
		sc.virtual[dest][by] = addr
		return true
	}
	delete(sc.virtual[dest], by)
	if len(sc.virtual[dest]) == 0 {
		delete(sc.virtual, dest)
	}
	return true
}

// finish makes what is sent of what was said, and notes the service if that is another than before. What is equal stays the
// same pointer.
func (k *keeper) finish(sc *scope, s *service, at time.Time) {
	var addresses []netip.Prefix
	for _, by := range slices.Sorted(maps.Keys(sc.virtual[s.name])) {
		a := sc.virtual[s.name][by]
		if p := netip.PrefixFrom(a, a.BitLen()); !slices.Contains(addresses, p) {
			addresses = append(addresses, p)
		}
	}
	old := make(map[registry.Key]registry.Instances, len(s.items))
	for _, in := range s.items {
		old[in.Service.Key] = in
	}
	same := s.known && len(s.items) == len(s.said.instances) && reflect.DeepEqual(s.problems, s.said.problems)
	items := make([]registry.Instances, len(s.said.instances))
	for i, in := range s.said.instances {
		if len(addresses) > 0 {
			own := *in.Service
			own.Addresses = addresses
			in.Service = &own
		}
		items[i] = registry.Keep(old[in.Service.Key], in)
		same = same && items[i] == s.items[i]
	}
	if same {
		return
	}
	s.items, s.problems = items, s.said.problems
	k.note(s, at)
}

// pokes are reasons to look at a service that is not watched by itself. Safe for concurrent use.
type pokes struct {
	c chan struct{} // capacity 1: there is a reason

	mu sync.Mutex
	// the following are guarded by mu
	whole   bool
	atLeast uint64
}

func newPokes() *pokes { return &pokes{c: make(chan struct{}, 1)} }

// ofLeader is what an answer's index is at least that is to be the leader's, of any index.
const ofLeader = 1

// poke leaves a reason: it has changed (whole) or may have. The answer has to have an index of atLeast.
func (p *pokes) poke(whole bool, atLeast uint64) {
	p.mu.Lock()
	p.whole, p.atLeast = p.whole || whole, max(p.atLeast, atLeast)
	p.mu.Unlock()
	select {
	case p.c <- struct{}{}:
	default:
	}
}

// take takes the reason that there is, if there is one, and returns which index the answer has to have.
func (p *pokes) take() (atLeast uint64) {
	select {
	case <-p.c:
		_, atLeast = p.reset()
	default:
	}
	return atLeast
}

// urgent says that there is a reason to ask which no answer with this index was one to.
func (p *pokes) urgent(index uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.whole && (p.atLeast == ofLeader || p.atLeast > index)
}

// reset takes what is noted of reasons.
func (p *pokes) reset() (whole bool, atLeast uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole, atLeast = p.whole, p.atLeast
	p.whole, p.atLeast = false, 0
	return whole, atLeast
}

// wait waits for a reason; ok is false when ctx ends.
func (p *pokes) wait(ctx context.Context) (whole bool, atLeast uint64, ok bool) {
	select {
	case <-ctx.Done():
		return false, 0, false
	case <-p.c:
		whole, atLeast = p.reset()
		return whole, atLeast, true
	}
}
