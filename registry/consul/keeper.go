package consul

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// keeper keeps what is known of one Consul. One goroutine, that of loop, owns it; those that ask Consul hand it functions to
// call.
type keeper struct {
	// the following are set once
	o       *Options
	client  *client
	log     hclog.Logger
	source  string
	do      chan func()
	slots   *slots
	few     chan struct{} // who asks without waiting, bounded by its capacity
	back    *broadcast    // Consul answers again
	crowds  *broadcast    // there are more services than can be watched by themselves, or no more
	running sync.WaitGroup
	kept    []feed.Update[registry.Instances] // from before the start

	// the following belong to the goroutine of loop
	scopes  map[place]*scope
	placed  bool                // scopes has all places
	told    bool                // the first, full batch is sent
	changed map[string]*service // groups that differ from what was sent
	since   time.Time           // when the first of them was noticed
	stands  standing
}

// scope is one place in Consul. The goroutine of loop owns it.
type scope struct {
	// the following are set once
	at                       place
	names, critical, warning *interrupts // of who asks for these

	listed   bool
	doubted  bool // the names are asked for, because services have none of their instances any more
	services map[string]*service
	// lost are those that Consul does not know any more since it came back without them: they stay as they were.
	lost map[string]*service
	// virtual are the addresses that Consul gave to services, by who bears them: the service, or a sidecar's.
	virtual map[string]map[string]netip.Addr
}

func newScope(at place) *scope {
	return &scope{
		at: at, names: &interrupts{}, critical: &interrupts{}, warning: &interrupts{},
		services: map[string]*service{}, lost: map[string]*service{}, virtual: map[string]map[string]netip.Addr{},
	}
}

// keeping is how many goroutines may ask at once without waiting for a change.
const keeping = 8

func newKeeper(o *Options, c *client, log hclog.Logger) *keeper {
	return &keeper{
		o: o, client: c, log: log, do: make(chan func()), back: newBroadcast(), crowds: newBroadcast(),
		slots: newSlots(o.Connections), few: make(chan struct{}, min(keeping, o.Connections/4)),
		scopes: map[place]*scope{}, changed: map[string]*service{}, stands: newStanding(),
	}
}

// start runs f until it returns; loop's end waits for it.
func (k *keeper) start(ctx context.Context, f func(context.Context)) {
	k.running.Go(func() { f(ctx) })
}

// tell has the goroutine of loop call f, and waits until it does or ctx ends.
func (k *keeper) tell(ctx context.Context, f func()) {
	select {
	case <-ctx.Done():
	case k.do <- f:
	}
}

// loop owns the state. Only one of these things can happen at a time: somebody has something to tell, or a batch is taken.
func (k *keeper) loop(ctx context.Context, out chan<- feed.Batch[registry.Instances]) {
	for {
		batch, any := k.batch()
		to := out
		if !any {
			to = nil
		}
		select {
		case <-ctx.Done():
			return
		case f := <-k.do:
			f()
			k.more()
		case to <- batch:
			k.sent(batch)
		}
	}
}

// more calls what else is there to be called now, so that many changes at once make one batch.
func (k *keeper) more() {
	for range 256 {
		select {
		case f := <-k.do:
			f()
		default:
			return
		}
	}
}

// batch is what there is to send; false: nothing.
func (k *keeper) batch() (feed.Batch[registry.Instances], bool) {
	b := feed.Batch[registry.Instances]{Source: k.source, Since: k.since, Standing: k.stands.untold()}
	if !k.told {
		if b.Full = k.complete(); b.Full {
			for _, s := range k.all() {
				if u := s.update(); len(u.Items) > 0 || len(u.Problems) > 0 {
					b.Updates = append(b.Updates, u)
				}
			}
		}
		return b, b.Full || b.Standing != nil
	}
	for _, group := range slices.Sorted(maps.Keys(k.changed)) {
		b.Updates = append(b.Updates, k.changed[group].update())
	}
	return b, len(b.Updates) > 0 || b.Standing != nil
}

// sent notes that a batch was taken.
func (k *keeper) sent(b feed.Batch[registry.Instances]) {
	if b.Standing != nil {
		k.stands.tell(*b.Standing, k.log)
	}
	if b.Full {
		k.told, k.kept = true, nil
		k.log.Info("Consul's services are known", "services", len(b.Updates), "places", len(k.scopes))
	}
	if k.told {
		clear(k.changed)
		k.since = time.Time{}
	}
}

// complete says that everything is known.
func (k *keeper) complete() bool {
	if !k.placed {
		return false
	}
	for _, sc := range k.scopes {
		if !sc.listed {
			return false
		}
		for _, s := range sc.services {
			if !s.known {
				return false
			}
		}
	}
	return true
}

// all are the services of all places, in the order of their groups.
func (k *keeper) all() []*service {
	var out []*service
	for _, sc := range k.scopes {
		out = slices.AppendSeq(slices.AppendSeq(out, maps.Values(sc.services)), maps.Values(sc.lost))
	}
	slices.SortFunc(out, func(a, b *service) int { return strings.Compare(a.group, b.group) })
	return out
}

// note says that a service is another than what was sent.
func (k *keeper) note(s *service, at time.Time) {
	k.changed[s.group] = s
	if k.since.IsZero() || at.Before(k.since) {
		k.since = at
	}
}

// crowd tells how many services there are, on which depends who may wait for changes by itself.
func (k *keeper) crowd() {
	n := 0
	for _, sc := range k.scopes {
		n += len(sc.services)
	}
	if !k.slots.crowd(n, len(k.scopes), k.client.transport.Shared()) {
		return
	}
	k.crowds.wake()
	if k.slots.isCrowded() {
		return // who has a connection keeps it; the first answers about checks have all others looked at
	}
	for _, sc := range k.scopes { // who waited to be looked at may wait by itself now
		for _, s := range sc.services {
			s.pokes.poke(false, 0)
		}
	}
}

// grow lets more services wait for changes by themselves when Consul has not refused for a while.
func (k *keeper) grow(ctx context.Context) {
	for sleep(ctx, growLook) == nil {
		if k.slots.grow(time.Now()) {
			k.tell(ctx, k.crowd)
		}
	}
}

// yield has services that wait for changes by themselves do without their connections, where there are too few for all.
func (k *keeper) yield() {
	k.crowd()
	if k.slots.isCrowded() {
		for _, sc := range k.scopes {
			sc.release()
		}
	}
}

// broadcast wakes all who wait.
type broadcast struct {
	mu sync.Mutex
	c  chan struct{} // guarded by mu
}

func newBroadcast() *broadcast { return &broadcast{c: make(chan struct{})} }

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}
