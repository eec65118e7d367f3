package consul

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/virtualip"
	"github.com/ashore-mesh/ashore/registry"
)

// fill gives every address to a host.
func (s *state) fill() {
	for i := range 1<<16 - 2 {
		k := registry.Key{Host: fmt.Sprintf("h%d.test", i), Namespace: "shop"}
		v4, v6 := netip.AddrFrom4([4]byte{240, 240, byte((i + 1) >> 8), byte(i + 1)}), netip.AddrFrom16([16]byte{0x20, 1, 0, 2, 14: byte((i + 1) >> 8), 15: byte(i + 1)})
		s.takeAddress(k, pair{v4: v4, v6: v6})
	}
}

// In a full range what is idle wakes, and what is new gets the addresses of those that have been idle for longest; who lost theirs
// has none, and no address has two hosts.
func TestReuseInFullRange(t *testing.T) {
	t.Parallel()
	s := &state{}
	s.fill()
	key := func(i int) registry.Key { return registry.Key{Host: fmt.Sprintf("h%d.test", i), Namespace: "shop"} }
	apply := func(c *commit) {
		t.Helper()
		if err := c.check(); err != nil {
			t.Fatal(err)
		}
		s = s.apply(c, keeping{})
	}
	apply(s.retire([]registry.Key{key(2), {Host: "never.test"}}, time.Unix(100, 0)))
	apply(s.retire([]registry.Key{key(1), key(2), key(3)}, time.Unix(200, 0)))
	if c := s.retire([]registry.Key{key(1), key(2)}, time.Unix(300, 0)); c != nil {
		t.Errorf("what is idle becomes so again: %+v", c)
	}
	had := map[int]pair{1: s.addresses.At(key(1)), 2: s.addresses.At(key(2)), 3: s.addresses.At(key(3))}
	fresh := []registry.Key{{Host: "x.test"}, {Host: "y.test"}, {Host: "z.test"}}
	c, err := s.allocate(append([]registry.Key{fresh[0], key(3)}, fresh...), nil)
	if !errors.Is(err, virtualip.ErrExhausted) || len(c.Addresses) != 1 || c.Addresses[0].key() != key(3) {
		t.Fatalf("got %+v, %v; want the one that is back, and ErrExhausted", c, err)
	}
	apply(c)
	idle := map[registry.Key]time.Time{key(1): time.Unix(200, 0), key(2): time.Unix(100, 0), key(3): time.Unix(200, 0), key(4): time.Unix(100, 0)}
	apply(handOver(registry.HandOver(s.allocations(), fresh, idle)))
	if s.addresses.Len() != 1<<16-2 || s.taken.Len() != 2*s.addresses.Len() {
		t.Errorf("%d hosts have %d addresses", s.addresses.Len(), s.taken.Len())
	}
	x, y := s.addresses.At(fresh[0]), s.addresses.At(fresh[1])
	if x != (pair{v4: had[2].v4, v6: had[2].v6}) || y != (pair{v4: had[1].v4, v6: had[1].v6}) || s.addresses.At(key(3)) != (pair{v4: had[3].v4, v6: had[3].v6}) {
		t.Errorf("got %v and %v, and %v for the one that is back; there were %v", x, y, s.addresses.At(key(3)), had)
	}
	for _, k := range []registry.Key{key(1), key(2), fresh[2]} {
		if p, found := s.addresses.Get(k); found {
			t.Errorf("%v has %v", k, p)
		}
	}
	if c := handOver(registry.HandOver(s.allocations(), fresh, idle)); c != nil {
		t.Errorf("more are given: %+v", c)
	}
}

// Replicas that take idle addresses at the same time never give one to two hosts; what one says is idle and another claims is not
// taken. All of them know, and so does one that starts while Consul is away.
func TestReuseAmongReplicas(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	site, shelf := newSite(agent), newShelf()
	a, b := site.open(t), site.open(t)
	c, end := site.start(t, shelf)
	var old []registry.Key
	for i := range 40 {
		old = append(old, registry.Key{Host: fmt.Sprintf("old%d.test", i)})
	}
	had, err := a.Allocate(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Retire(t.Context(), old, time.Unix(100, 0)); err != nil {
		t.Fatal(err)
	}
	fresh(t, c)
	if got, err := c.Allocate(t.Context(), old[:10]); err != nil || !slices.Equal(got[old[3]], had[old[3]]) {
		t.Fatalf("claimed: got %v, %v", got, err)
	}
	idle := map[registry.Key]time.Time{}
	for _, k := range old {
		idle[k] = time.Unix(100, 0)
	}
	var mu sync.Mutex
	given := map[netip.Addr]registry.Key{}
	var wg sync.WaitGroup
	for i, s := range []*Store{a, b, a, b} {
		wg.Go(func() {
			for n := range 10 {
				list, err := s.Reuse(t.Context(), []registry.Key{{Host: fmt.Sprintf("new%d-%d.test", i, n)}}, idle)
				if err != nil {
					t.Error(err)
				}
				for _, h := range list {
					mu.Lock()
					if other, twice := given[h.From.Addresses[0]]; twice {
						t.Errorf("%v goes to %v and to %v", h.From, other, h.To)
					}
					given[h.From.Addresses[0]] = h.To
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(given) != 30 {
		t.Errorf("%d were given, want 30", len(given))
	}
	for _, k := range old[:10] {
		if to, taken := given[had[k][0]]; taken {
			t.Errorf("that of %v, which is in use, went to %v", k, to)
		}
	}
	if err := a.Retire(t.Context(), old[:1], time.Unix(500, 0)); err != nil {
		t.Fatal(err)
	}
	want := fresh(t, a)
	for _, s := range []*Store{b, c} {
		equalStates(t, want, fresh(t, s))
	}
	end()
	agent.Kill()
	d, _ := site.start(t, shelf)
	equalAddresses(t, want, d.state.Load())
	if p := d.state.Load().addresses.At(old[0]); p.idle != 500 {
		t.Errorf("in the copy %v is idle since %d", old[0], p.idle)
	}
}

// equalAddresses checks that two states say the same of addresses.
func equalAddresses(t *testing.T, want, got *state) {
	t.Helper()
	for c := range got.addresses.Diff(want.addresses) {
		t.Errorf("%v has %v, want %v", c.Key, c.New, c.Old)
	}
	if want.taken.Len() != got.taken.Len() {
		t.Errorf("%d addresses are taken, want %d", got.taken.Len(), want.taken.Len())
	}
}
