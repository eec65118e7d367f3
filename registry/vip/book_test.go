package vip

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/internal/virtualip"
	"github.com/ashore-mesh/ashore/registry"
)

// shelf is a Ledger in memory with room for three hosts, which several books may share.
type shelf struct {
	mu      sync.Mutex
	kept    map[registry.Key]registry.Allocation // guarded by mu
	broken  error                                // guarded by mu: what writes end with
	writes  int                                  // guarded by mu
	asked   int                                  // guarded by mu: how often Allocate and Reuse were called
	walked  int                                  // guarded by mu: how often Allocations was
	entries []audit.Event                        // guarded by mu
}

func (s *shelf) Allocate(_ context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	out, free := map[registry.Key][]netip.Addr{}, s.free()
	var err error
	for _, k := range keys {
		a, has := s.kept[k]
		if has && a.Idle.IsZero() {
			out[k] = a.Addresses
			continue
		}
		if s.broken != nil {
			return out, s.broken
		}
		if !has && len(free) == 0 {
			err = virtualip.ErrExhausted
			continue
		}
		if !has {
			a, free = registry.Allocation{Key: k, Addresses: free[0]}, free[1:]
		}
		a.Idle = time.Time{}
		s.kept[k], out[k] = a, a.Addresses
		s.writes++
	}
	return out, err
}

// free are the addresses that nobody has.
func (s *shelf) free() (out [][]netip.Addr) {
	taken := map[netip.Addr]bool{}
	for _, a := range s.kept {
		taken[a.Addresses[0]] = true
	}
	for i := range byte(3) {
		if v4 := netip.AddrFrom4([4]byte{240, 240, 0, i + 1}); !taken[v4] {
			out = append(out, []netip.Addr{v4, netip.AddrFrom16([16]byte{0x20, 1, 15: i + 1})})
		}
	}
	return out
}

func (s *shelf) Allocations() iter.Seq[registry.Allocation] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walked++
	return maps.Values(maps.Clone(s.kept))
}

func (s *shelf) Retire(_ context.Context, keys []registry.Key, since time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if a, has := s.kept[k]; has && s.broken == nil {
			a.Idle = since
			s.kept[k] = a
			s.writes++
		}
	}
	return s.broken
}

func (s *shelf) Reuse(_ context.Context, keys []registry.Key, idle map[registry.Key]time.Time) ([]registry.Handover, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.broken != nil {
		return nil, s.broken
	}
	out := registry.HandOver(maps.Values(s.kept), keys, idle)
	for _, h := range out {
		delete(s.kept, h.From.Key)
		s.kept[h.To] = registry.Allocation{Key: h.To, Addresses: h.From.Addresses}
	}
	return out, nil
}

// breakDown has writes end with an error; nil: not any more.
func (s *shelf) breakDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// replica is a book over a shelf that runs until the test ends.
func (s *shelf) replica(t *testing.T) *Book {
	b := NewBook(BookConfig{Ledger: s, Log: testlog.New(t), Audit: func(e audit.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.entries = append(s.entries, e)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return b
}

func keysOf(hosts ...string) (out []registry.Key) {
	for _, h := range hosts {
		out = append(out, registry.Key{Host: h, Namespace: "shop"})
	}
	return out
}

// asks has a holder ask for hosts, and checks which of them have an address then, and of whom there is one: "a1 b2".
func asks(t *testing.T, what string, h *Holder, want string, hosts ...string) error {
	t.Helper()
	got, err := h.Allocate(t.Context(), keysOf(hosts...))
	var text []string
	for _, k := range keysOf(hosts...) {
		if a := got[k]; a != nil {
			text = append(text, fmt.Sprint(k.Host, a[0].As4()[3]))
		}
	}
	if s := strings.Join(text, " "); s != want {
		t.Errorf("%s: got %q and %v, want %q", what, s, err, want)
	}
	return err
}

// hours lets time pass.
func hours(n float64) {
	time.Sleep(time.Duration(n * float64(time.Hour)))
	synctest.Wait()
}

// Names come and go for years and there are addresses for those that are there. A host that is back keeps its own while that is
// nobody else's.
func TestNamesComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{kept: map[registry.Key]registry.Allocation{}}
		h := s.replica(t).Holder()
		_ = asks(t, "at first", h, "stays1", "stays")
		for day := range 40 {
			name := fmt.Sprint("job", day, "-")
			if err := asks(t, name, h, fmt.Sprint(name, 2+day%2), name); err != nil {
				t.Fatal(err)
			}
			h.Release(keysOf(name))
			hours(20)
		}
		_ = asks(t, "it stayed", h, "stays1", "stays")
		_ = asks(t, "it is back", h, "job39-3", "job39-")
		if len(s.kept) != 3 {
			t.Errorf("%d are kept", len(s.kept))
		}
		if e := s.entries[0]; len(s.entries) != 38 || e.Action != audit.AddressReuse || e.Target != "240.240.0.2" || e.Details["host"] != "job2-" || e.Details["formerHost"] != "job0-" {
			t.Errorf("%d events, the first %+v", len(s.entries), e)
		}
	})
}

// Where all are in use, or were a short while ago, nobody's is taken, and the error says so.
func TestNoneToTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{kept: map[registry.Key]registry.Allocation{}}
		h := s.replica(t).Holder()
		_ = asks(t, "at first", h, "a1 b2 c3", "a", "b", "c")
		h.Release(keysOf("c"))
		hours(24)
		err := asks(t, "it has not rested", h, "a1", "a", "d", "e")
		if !errors.Is(err, virtualip.ErrExhausted) || !strings.Contains(err.Error(), "no source has had for 24h") {
			t.Errorf("got %v", err)
		}
		hours(2)
		if err := asks(t, "now it has", h, "d3", "d", "e"); !errors.Is(err, virtualip.ErrExhausted) {
			t.Errorf("one is left without: %v", err)
		}
		err = asks(t, "it is back too late", h, "", "c")
		if !errors.Is(err, virtualip.ErrExhausted) {
			t.Errorf("got %v", err)
		}
	})
}

// What any replica has in use is not taken, whichever of them looks; what each has is noted without end of writes.
func TestInUseElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{kept: map[registry.Key]registry.Allocation{}}
		one, other := s.replica(t).Holder(), s.replica(t).Holder()
		_ = asks(t, "one", one, "a1 b2", "a", "b")
		_ = asks(t, "other", other, "b2 c3", "b", "c")
		hours(240)
		if err := asks(t, "all are in use", one, "", "d"); !errors.Is(err, virtualip.ErrExhausted) {
			t.Errorf("got %v", err)
		}
		if s.writes > 3+4*11 { // each is noted and claimed once a day
			t.Errorf("%d writes", s.writes)
		}
		if lost := append(one.Lost(), other.Lost()...); len(lost) > 0 {
			t.Errorf("%v lost theirs", lost)
		}
		other.Release(keysOf("b", "c"))
		hours(50)
		_ = asks(t, "c is nowhere", one, "d3 b2", "d", "b")
	})
}

// What is noted to be idle and in use here is claimed before any is taken, and none is taken when that cannot be.
func TestClaimedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{kept: map[registry.Key]registry.Allocation{}}
		h := NewBook(BookConfig{Ledger: s}).Holder() // nobody looks
		_ = asks(t, "at first", h, "a1 b2 c3", "a", "b", "c")
		if err := s.Retire(t.Context(), keysOf("a", "b"), time.Now()); err != nil {
			t.Fatal(err)
		}
		h.Release(keysOf("b"))
		hours(25)
		_ = asks(t, "nobody has looked yet", h, "", "e")
		h.Release(keysOf("e"))
		if err := s.Retire(t.Context(), keysOf("a"), time.Now().Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
		hours(0.4)
		s.breakDown(errors.New("disk full"))
		if err := asks(t, "it cannot be claimed", h, "", "d"); err == nil || err.Error() != "disk full" {
			t.Errorf("got %v", err)
		}
		s.breakDown(nil)
		_ = asks(t, "b alone is nowhere", h, "d2", "d")
		_ = asks(t, "a has its own", h, "a1 c3", "a", "c")
	})
}

// Clocks may be wrong by any time: what a replica uses is not taken, as it says so before another one has seen for long enough
// that nobody does. What nobody uses is taken then.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{kept: map[registry.Key]registry.Allocation{}}
		one, other := s.replica(t).Holder(), s.replica(t).Holder()
		_ = asks(t, "one", one, "a1 b2 c3", "a", "b", "c")
		hours(3.05)
		note := func(hosts ...string) { // by a replica whose clock is late
			if err := s.Retire(t.Context(), keysOf(hosts...), time.Now().Add(-48*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		note("a", "b", "c")
		_ = asks(t, "at once", other, "", "d")
		one.Release(keysOf("c"))
		hours(0.15)
		_ = asks(t, "before it has claimed them twice", other, "", "d")
		note("a")
		hours(0.15)
		_ = asks(t, "seen for a while, one of them not since then", other, "", "d")
		hours(0.1)
		_ = asks(t, "seen for long enough", other, "d3", "d", "e")
		_ = asks(t, "they have theirs", one, "a1 b2", "a", "b")
		if lost := one.Lost(); len(lost) > 0 {
			t.Errorf("%v lost theirs", lost)
		}
	})
}

// All holders of a replica have one attempt in a while together, not one each; whoever is new is told at once that there are none.
func TestOneRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{kept: map[registry.Key]registry.Allocation{}}
		b := NewBook(BookConfig{Ledger: s}) // nobody looks
		x, y, z := b.Holder(), b.Holder(), b.Holder()
		_ = asks(t, "at first", x, "a1 b2 c3", "a", "b", "c")
		all := func(want string) {
			t.Helper()
			for i, h := range []*Holder{x, y, z} {
				host := fmt.Sprint("new", i, "-")
				if err := asks(t, host, h, "", host); !errors.Is(err, virtualip.ErrExhausted) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", host, err)
				}
				time.Sleep(time.Second)
			}
			time.Sleep(2 * time.Second)
		}
		all("")
		s.asked, s.walked = 0, 0
		for range 12 {
			all("no source has had")
		}
		if s.asked != 12 || s.walked != 12 {
			t.Errorf("the store was asked %d times and walked through %d times in a minute", s.asked, s.walked)
		}
		x.Release(keysOf("a"))
		if err := s.Retire(t.Context(), keysOf("a"), time.Now().Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
		z.Release(keysOf("new2-"))
		for range 300 {
			_, _ = x.Allocate(t.Context(), keysOf("new0-"))
			_, _ = y.Allocate(t.Context(), keysOf("new1-"))
			time.Sleep(5 * time.Second)
		}
		got, _ := x.Allocate(t.Context(), keysOf("new0-"))
		more, err := y.Allocate(t.Context(), keysOf("new1-"))
		if len(got)+len(more) != 1 || len(s.kept) != 3 {
			t.Errorf("got %v and %v, %v", got, more, err)
		}
		for _, h := range []*Holder{x, y} {
			h.Release(keysOf("new0-", "new1-", "b"))
		}
		if err := s.Retire(t.Context(), keysOf("b"), time.Now().Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
		for range 300 {
			_, _ = y.Allocate(t.Context(), keysOf("last"))
			time.Sleep(5 * time.Second)
		}
		_ = asks(t, "who lacks it alone is given", y, "last2", "last")
	})
}

// A replica that could say nothing for longer than a rest finds out whose addresses are others' now.
func TestCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{kept: map[registry.Key]registry.Allocation{}}
		h, same := s.replica(t).Holder(), s.replica(t).Holder()
		_ = asks(t, "at first", h, "a1 b2 c3", "a", "b", "c")
		_ = asks(t, "at first", same, "b2", "b")
		s.mu.Lock()
		delete(s.kept, keysOf("a")[0])
		s.kept[keysOf("d")[0]] = registry.Allocation{Key: keysOf("d")[0], Addresses: []netip.Addr{netip.AddrFrom4([4]byte{240, 240, 0, 1}), netip.AddrFrom16([16]byte{0x20, 1, 15: 1})}}
		s.mu.Unlock()
		hours(1)
		if lost := h.Lost(); len(lost) != 1 || lost[0].Host != "a" {
			t.Errorf("lost %v, want a", lost)
		}
		hours(1)
		if lost := append(h.Lost(), same.Lost()...); len(lost) > 0 {
			t.Errorf("lost %v again", lost)
		}
		if err := asks(t, "there is no other", h, "", "a"); !errors.Is(err, virtualip.ErrExhausted) {
			t.Errorf("got %v", err)
		}
	})
}

// When the store was replaced by an older state, in which other hosts have what is in use here, that is found out at once.
func TestReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{kept: map[registry.Key]registry.Allocation{}}
		moved := make(chan struct{}, 1)
		b := NewBook(BookConfig{Ledger: s, Moved: moved, Log: testlog.New(t)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		h := b.Holder()
		_ = asks(t, "at first", h, "a1 b2", "a", "b")
		s.mu.Lock()
		s.kept[keysOf("c")[0]] = registry.Allocation{Key: keysOf("c")[0], Addresses: s.kept[keysOf("a")[0]].Addresses}
		delete(s.kept, keysOf("a")[0])
		s.mu.Unlock()
		moved <- struct{}{}
		synctest.Wait()
		if lost := h.Lost(); len(lost) != 1 || lost[0].Host != "a" {
			t.Errorf("lost %v, want a", lost)
		}
		_ = asks(t, "another one", h, "a3 b2", "a", "b")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// slow is a shelf whose answers take until arrive is closed.
type slow struct {
	*shelf
	arrive chan struct{}
}

func (s slow) Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	got, err := s.shelf.Allocate(ctx, keys)
	<-s.arrive
	return got, err
}

// An answer from before the store jumped is compared though it arrives after that was.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := slow{&shelf{kept: map[registry.Key]registry.Allocation{}}, make(chan struct{})}
		moved := make(chan struct{})
		b := NewBook(BookConfig{Ledger: s, Moved: moved})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		h := b.Holder()
		asked := make(chan struct{})
		go func() { defer close(asked); _ = asks(t, "before", h, "a1", "a") }()
		synctest.Wait()
		s.mu.Lock()
		clear(s.kept)
		s.kept[keysOf("c")[0]] = registry.Allocation{Key: keysOf("c")[0], Addresses: s.free()[0]}
		s.mu.Unlock()
		moved <- struct{}{}
		synctest.Wait()
		close(s.arrive)
		<-asked
		synctest.Wait()
		if lost := h.Lost(); !slices.Equal(lost, keysOf("a")) {
			t.Errorf("lost %v, want a", lost)
		}
		_ = asks(t, "anew", h, "a2", "a")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Whoever is told an address that another host here was told, or another for the same host, has that one lose it before the answer
// arrives, though nobody has compared anything yet. What was let go, or moved by an answer, is nobody's.
func TestNoTwoHaveOne(t *testing.T) {
	t.Parallel()
	s := &shelf{kept: map[registry.Key]registry.Allocation{}}
	b := NewBook(BookConfig{Ledger: s}) // nobody looks
	one, other := b.Holder(), b.Holder()
	_ = asks(t, "at first", one, "a1 b2", "a", "b")
	_ = asks(t, "at first", other, "a1", "a")
	jump := func(hosts ...string) { // to a state in which each has the address of its place
		s.mu.Lock()
		defer s.mu.Unlock()
		clear(s.kept)
		free := s.free()
		for i, k := range keysOf(hosts...) {
			s.kept[k] = registry.Allocation{Key: k, Addresses: free[i]}
		}
	}
	lost := func(what string, h *Holder, hosts ...string) {
		t.Helper()
		told := len(h.Losing()) > 0
		if told {
			<-h.Losing()
		}
		if got := h.Lost(); !slices.Equal(got, keysOf(hosts...)) || told != (len(hosts) > 0) {
			t.Errorf("%s: lost %v, told %v; want %v", what, got, told, hosts)
		}
	}
	jump("c", "b", "a")
	_ = asks(t, "another has it", other, "c1", "c")
	lost("a of the one", one, "a")
	lost("a of the other", other, "a")
	_ = asks(t, "again", one, "a3 b2", "a", "b")
	_ = asks(t, "again", other, "c1", "c")
	lost("nobody", one)
	lost("nobody", other)
	_ = asks(t, "it too", other, "a3", "a")
	jump("b", "c", "a")
	other.Release(keysOf("c"))
	_ = asks(t, "b alone has moved, to what was let go", one, "b1", "b")
	_ = asks(t, "to what b had", other, "c2", "c")
	lost("nobody", one)
	lost("nobody", other)
	jump("c", "a", "b")
	_ = asks(t, "another of its own", other, "a2", "a")
	lost("the same host", one, "a")
	lost("who has it by now", other, "c")
}

// That many hosts have lost their addresses is told in few lines.
func TestLostIsTold(t *testing.T) {
	t.Parallel()
	s := &shelf{kept: map[registry.Key]registry.Allocation{}}
	var hosts []string
	for i := range 120 {
		host := fmt.Sprint("h", i)
		k := keysOf(host)[0]
		s.kept[k] = registry.Allocation{Key: k, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{240, 240, 1, byte(i)}), netip.AddrFrom16([16]byte{0x20, 15: byte(i)})}}
		hosts = append(hosts, host)
	}
	var (
		told  []audit.Event
		lines strings.Builder
	)
	b := NewBook(BookConfig{Ledger: s, Audit: func(e audit.Event) { told = append(told, e) }, Log: hclog.New(&hclog.LoggerOptions{Output: &lines})})
	if _, err := b.Holder().Allocate(t.Context(), keysOf(hosts...)); err != nil {
		t.Fatal(err)
	}
	clear(s.kept)
	if err := b.look(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(lines.String(), "\n"); n != 51 {
		t.Errorf("%d lines", n)
	}
	if len(told) != 51 || told[0].Action != audit.AddressLose || told[0].Details["host"] == "" || told[50].Reason != "70 more at once" {
		t.Errorf("%d events, the last %+v", len(told), told[len(told)-1])
	}
}

// A storm of new hosts is told in few lines.
func TestStormIsTold(t *testing.T) {
	t.Parallel()
	s := &shelf{kept: map[registry.Key]registry.Allocation{}}
	idle := map[registry.Key]time.Time{}
	var hosts []string
	for i := range 120 {
		k := registry.Key{Host: fmt.Sprint("old-", i)}
		idle[k] = time.Unix(1, 0)
		s.kept[k] = registry.Allocation{Key: k, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{240, 240, 0, byte(i)}), netip.AddrFrom16([16]byte{0x20, 15: byte(i)})}, Idle: time.Unix(1, 0)}
		hosts = append(hosts, fmt.Sprint("new-", i))
	}
	var told []audit.Event
	h := NewBook(BookConfig{Ledger: s, Audit: func(e audit.Event) { told = append(told, e) }}).Holder()
	h.book.see(idle, time.Now().Add(-time.Hour))
	if _, err := h.Allocate(t.Context(), keysOf(hosts...)); err != nil {
		t.Fatal(err)
	}
	if len(told) != 51 || told[50].Reason != "70 more at once" {
		t.Errorf("%d events, the last %+v", len(told), told[len(told)-1])
	}
}
