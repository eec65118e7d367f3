package ca

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Limits bound what callers can make the authority do. Zero values are the defaults.
type Limits struct {
	// Size bounds a request, in bytes. Zero means 64 KiB.
	Size int
	// InFlight is how many calls are worked on at once. Zero means 256.
	InFlight int
	// Waiting is how many more wait for their turn. Zero means 4096.
	Waiting int
	// Wait is how long they do. Zero means 5s.
	Wait time.Duration
	// AddressInFlight is how many calls of one address are worked on or wait at once. Zero means 2048.
	AddressInFlight int
	// Address is how often one address may call, proven or not. Zero means 500 a second, 4000 at once. Here and below an
	// IPv6 address counts by its first 64 bits, for whoever has one has all of them.
	Address Rate
	// Refused is how often an address may be refused before it is not listened to. Zero means 10 a second, 200 at once.
	Refused Rate
	// Written is how many refusals of one address, or of one caller that was proven, are written into the audit log, and
	// WrittenAll of all of them together: old lines make room for new ones there, and nobody shall drive them out. Of what is
	// left out the next line has the number. Zero means one in 10 seconds, 100 at once; all together 2 a second, 2000 at once.
	Written, WrittenAll Rate
	// Caller is how often a join token, a workload or a service account proven by JWT may call. Zero means 50 a second, 500
	// at once.
	Caller Rate
	// Callers is how many of each are remembered; beyond, whoever was silent for longest is forgotten. Zero means 10000.
	Callers int
}

// Rate is how often something may happen.
type Rate struct {
	// PerSecond is how often for good. Negative means without bound.
	PerSecond float64
	// Burst is how often at once.
	Burst int
}

func (l Limits) withDefaults() Limits {
	defaults := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	defaults(&l.Size, 64<<10)
	defaults(&l.InFlight, 256)
	defaults(&l.Waiting, 4096)
	defaults(&l.AddressInFlight, 2048)
	defaults(&l.Callers, 10000)
	if l.Wait == 0 {
		l.Wait = 5 * time.Second
	}
	if l.Address == (Rate{}) {
		l.Address = Rate{500, 4000}
	}
	if l.Refused == (Rate{}) {
		l.Refused = Rate{10, 200}
	}
	if l.Written == (Rate{}) {
		l.Written = Rate{.1, 100}
	}
	if l.WrittenAll == (Rate{}) {
		l.WrittenAll = Rate{2, 2000}
	}
	if l.Caller == (Rate{}) {
		l.Caller = Rate{50, 500}
	}
	return l
}

// buckets is a rate for each of many callers, in bounded memory.
type buckets struct {
	rate Rate // set once
	max  int  // set once

	mu     sync.Mutex
	by     map[string]*list.Element // guarded by mu: of *bucket
	recent *list.List               // guarded by mu: latest first
}

// bucket is what a caller has left.
type bucket struct {
	caller string
	left   float64
	at     time.Time
}

func newBuckets(r Rate, limit int) *buckets {
	return &buckets{rate: r, max: limit, by: map[string]*list.Element{}, recent: list.New()}
}

// has says whether a caller has one left, and changes nothing.
func (b *buckets) has(caller string, now time.Time) bool {
	if b.rate.PerSecond < 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.by[caller]
	return !ok || b.leftOf(e.Value.(*bucket), now) >= 1 //nolint:forcetypeassert // the list holds nothing else
}

// take uses one up, and says whether there was one.
func (b *buckets) take(caller string, now time.Time) bool {
	if b.rate.PerSecond < 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.find(caller, now)
	x.left, x.at = b.leftOf(x, now), now
	if x.left < 1 {
		return false
	}
	x.left--
	return true
}

// find returns a caller's bucket, a full one when it is new. Called with mu held.
func (b *buckets) find(caller string, now time.Time) *bucket {
	if e, ok := b.by[caller]; ok {
		b.recent.MoveToFront(e)
		return e.Value.(*bucket) //nolint:forcetypeassert // the list holds nothing else
	}
	if last := b.recent.Back(); last != nil && b.recent.Len() >= b.max {
		delete(b.by, b.recent.Remove(last).(*bucket).caller) //nolint:forcetypeassert // the list holds nothing else
	}
	x := &bucket{caller: caller, left: float64(b.rate.Burst), at: now}
	b.by[caller] = b.recent.PushFront(x)
	return x
}

// leftOf is what a bucket holds now.
func (b *buckets) leftOf(x *bucket, now time.Time) float64 {
	passed := max(0, now.Sub(x.at).Seconds()) // a clock that goes back takes nothing away
	return min(float64(b.rate.Burst), x.left+passed*b.rate.PerSecond)
}

// turns lets a bounded number of calls work at once, and a bounded number wait, few of them of one address.
type turns struct {
	work chan struct{} // one for each call that works
	all  int           // set once: how many may work or wait
	each int           // set once: of one address

	mu    sync.Mutex
	count int            // guarded by mu: that work or wait
	by    map[string]int // guarded by mu: the same by address
}

func newTurns(l Limits) *turns {
	return &turns{work: make(chan struct{}, l.InFlight), all: l.InFlight + l.Waiting, each: l.AddressInFlight, by: map[string]int{}}
}

// enter lets a call of an address in to wait, or says no.
func (t *turns) enter(address string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= t.all || t.by[address] >= t.each {
		return false
	}
	t.count++
	t.by[address]++
	return true
}

// leave is the end of a call that entered.
func (t *turns) leave(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	if t.by[address]--; t.by[address] == 0 {
		delete(t.by, address)
	}
}

// addressKey is what calls of an address are counted by.
func addressKey(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
