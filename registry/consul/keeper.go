package consul

import (
	"context"
	"net/netip"
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
	back    *broadcast // Consul answers again
	crowds  *broadcast // there are more services than can be watched by themselves, or no more
	running sync.WaitGroup

	// the following belong to the goroutine of loop
	scopes  map[place]*scope
	placed  bool            // scopes has all places
	told    bool            // the first, full batch is sent
	changed map[string]told // groups that differ from what was sent
	since   time.Time       // when the content of the first of them was noticed to be another
	// kept is what was said before the start, by group; nil: nothing complete, or the first full batch is sent.
	kept              map[string]feed.Update[registry.Instances]
	stands            standing
	dirty             bool      // there is something to review
	stirred           bool      // so there is of services in trouble, which may be many, within stirredGap
	unplaced          *trouble  // of what datacenters there are
	misfilter         *trouble  // of the option filter, with which every service is asked for
	datacentersNotice *notice   // of that
	turnsNotice       *notice   // that there are more places than connections for them
	culprit           *service  // which keeps the first full batch from being complete
	over              time.Time // when a trouble of the whole was over
	wholeLog, partLog teller
}

// scope is one place in Consul. The goroutine of loop owns it.
type scope struct {
	// the following are set once
	at                       place
	few                      *seats      // of who asks without waiting
	names, critical, warning *interrupts // of who asks for these
	restored                 *interrupts // of who asks for restorations
	before                   uint64      // the index that the names of all services had before the start; zero: nobody knows

	checked  time.Time // when checks were told of last
	listed   bool
	stoodIn  bool      // what was kept stands in until it is listed
	doubted  bool      // the names are asked for, because services have none of their instances any more
	answered time.Time // when Consul told of the names last
	mark     string    // see keeper.mark; of the names
	services map[string]*service
	// lost are those that Consul does not know any more since it came back without them, or has not told of yet since the start:
	// they stay as they were.
	lost      map[string]*service
	lostSince time.Time
	lostElse  bool // others are lost than was told

	troubles map[string]*trouble // by what cannot be asked for
	named    time.Time           // when the names could be asked for again
	old      time.Time           // of when what is known of it is, told or covered by more; zero: of now
	ill      map[*service]bool   // services that cannot be

	awayNotice, lostNotice, hiddenNotice, restoredNotice, chosenNotice *notice

	unchosen *unchosen // the settings choose nothing of what there is
	// bearers are the names of the services that have instances, by these.
	bearers map[instanceID]bearer
	// virtual are the addresses that Consul gave to services, by who bears them: the service, or a sidecar's.
	virtual map[string]map[string]netip.Addr
}

// newScope makes one in which nobody may ask before crowd says how many.
func newScope(at place) *scope {
	return &scope{
		at: at, few: &seats{}, names: &interrupts{}, critical: &interrupts{}, warning: &interrupts{}, restored: &interrupts{},
		services: map[string]*service{}, lost: map[string]*service{}, virtual: map[string]map[string]netip.Addr{}, bearers: map[instanceID]bearer{},
		troubles: map[string]*trouble{}, ill: map[*service]bool{},
		awayNotice: at.notice(noticeAway), lostNotice: at.notice(noticeLost), hiddenNotice: at.notice(noticeHidden), restoredNotice: at.notice(noticeRestored),
		chosenNotice: at.notice(noticeChosen),
	}
}

// stirredGap is how long troubles of services are gathered before they are reviewed, and the least time from one review to the next for
// the sake of time alone.
const stirredGap = 200 * time.Millisecond

func newKeeper(o *Options, c *client, log hclog.Logger) *keeper {
	return &keeper{
		o: o, client: c, log: log, do: make(chan func()), back: newBroadcast(), crowds: newBroadcast(),
		slots:  newSlots(o.Connections),
		scopes: map[place]*scope{}, changed: map[string]told{}, stands: newStanding(), datacentersNotice: &notice{group: "/" + noticeDatacenters},
		turnsNotice: &notice{group: "/" + noticeTurns},
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

// loop owns the state. Only one of these things can happen at a time: somebody has something to tell, a batch is taken, or it
// is time to tell of a trouble.
func (k *keeper) loop(ctx context.Context, out chan<- feed.Batch[registry.Instances]) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	var next time.Time // of the timer; zero: there is nothing to wait for
	for {
		switch soon := time.Now().Add(stirredGap); {
		case k.dirty:
			again.Stop()
			if next = k.review(time.Now()); !next.IsZero() {
				next = later(next, soon)
				again.Reset(time.Until(next))
			}
		case k.stirred && (next.IsZero() || soon.Before(next)):
			next = soon
			again.Reset(stirredGap)
		}
		k.stirred = false
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
		case <-again.C:
			k.dirty = true
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

// lagged takes in how old the answer may be that a change is from. The oldest of those counts that are sent at once.
func (k *keeper) lagged(lag time.Duration) {
	if k.since.IsZero() {
		k.stands.lag = 0
	}
	k.stands.lag = max(k.stands.lag, lag)
}

// crowd tells how many services there are, on which depends who may wait for changes by itself.
func (k *keeper) crowd() {
	n := 0
	for _, sc := range k.scopes {
		n += len(sc.services)
	}
	changed, turns := k.slots.crowd(n, len(k.scopes), k.client.transport.Shared())
	few := k.slots.few(len(k.scopes))
	for _, sc := range k.scopes {
		sc.few.bound(few)
	}
	if turns {
		for _, sc := range k.scopes {
			sc.shorten()
		}
	}
	k.tellTurns()
	if !changed {
		return
	}
	k.crowds.wake()
	if k.slots.isCrowded() {
		return // who has a connection keeps it; the first answers about checks have all others looked at
	}
	k.dirty = true
	for _, sc := range k.scopes { // who waited to be looked at may wait by itself now, and the checks are asked for no more
		delete(sc.troubles, askCritical)
		delete(sc.troubles, askWarning)
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
