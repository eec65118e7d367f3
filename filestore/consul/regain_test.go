package consul

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/registry"
)

// hosts are n of them.
func hosts(name string, n int) []registry.Key {
	var out []registry.Key
	for i := range n {
		out = append(out, registry.Key{Host: fmt.Sprintf("%s-%d.example", name, i), Namespace: "shop"})
	}
	return out
}

// unlike wants no two hosts to have one address.
func unlike(t *testing.T, lists ...map[registry.Key][]netip.Addr) {
	t.Helper()
	of := map[netip.Addr]registry.Key{}
	for _, list := range lists {
		for k, have := range list {
			if o, twice := of[have[0]]; twice && o != k {
				t.Fatalf("%s and %s have %s", o.Host, k.Host, have[0])
			}
			of[have[0]] = k
		}
	}
}

// After Consul's state was restored hosts keep the virtual addresses that they were given since, on all replicas, and nobody who asks
// before they have them back is given one.
func TestAddressesRestored(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := newSite(agent)
	a, b := s.open(t), s.open(t)
	early := hosts("early", 3)
	if _, err := a.Allocate(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	fresh(t, b)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address+"/v1/snapshot", nil)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := ask(t, req)
	old := hosts("old", 2000)
	before, err := a.Allocate(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, b)
	if req, err = http.NewRequestWithContext(t.Context(), http.MethodPut, s.address+"/v1/snapshot", strings.NewReader(snapshot)); err != nil {
		t.Fatal(err)
	}
	if said := ask(t, req); said != "" {
		t.Fatalf("restore: %s", said)
	}
	// b finds out by asking for new ones, and among them for one that it had
	after, err := b.Allocate(t.Context(), append(hosts("new", 500), old[7]))
	if err != nil {
		t.Fatal(err)
	}
	unlike(t, before, after)
	if !slices.Equal(after[old[7]], before[old[7]]) {
		t.Errorf("a host that asks again has %s, want %s", after[old[7]], before[old[7]])
	}
	eventually(t, "who uses addresses is told", func() bool { return len(a.Moved())+len(b.Moved()) > 0 }) // whoever was first gave them back
	for name, store := range map[string]*Store{"a": a, "b": b} {
		eventually(t, "replica "+name+" has all", func() bool { return fresh(t, store).addresses.Len() == len(early)+len(old)+500 })
		now := maps.Collect(func(yield func(registry.Key, []netip.Addr) bool) {
			for x := range store.Allocations() {
				if !yield(x.Key, x.Addresses) {
					return
				}
			}
		})
		unlike(t, now)
		for k, had := range before {
			if !slices.Equal(now[k], had) {
				t.Fatalf("replica %s: %s has %s, want %s", name, k.Host, now[k], had)
			}
		}
	}
}

// What another host has meanwhile stays that one's, and what is of another log is nobody's here.
func TestLostAddresses(t *testing.T) {
	t.Parallel()
	x, y, z := hosts("x", 1)[0], hosts("y", 1)[0], hosts("z", 1)[0]
	at := func(n byte) pair {
		return pair{v4: netip.AddrFrom4([4]byte{240, 240, 0, n}), v6: netip.AddrFrom16([16]byte{0x20, 1, 15: n})}
	}
	made := func(log string, generation int, has map[registry.Key]pair) *state {
		s := &state{generation: generation}
		s.Log = log
		for k, p := range has {
			s.takeAddress(k, p)
		}
		return s
	}
	for name, c := range map[string]struct {
		old, next *state
		lost      []registry.Key
		told      bool // that there may be something to give back
		moved     bool // at once
	}{
		"all there":      {old: made("l", 1, map[registry.Key]pair{x: at(1)}), next: made("l", 2, map[registry.Key]pair{x: at(1), y: at(2)})},
		"lost":           {old: made("l", 1, map[registry.Key]pair{x: at(1), y: at(2)}), next: made("l", 2, map[registry.Key]pair{x: at(1)}), lost: []registry.Key{y}, told: true},
		"another has it": {old: made("l", 1, map[registry.Key]pair{x: at(1), y: at(2)}), next: made("l", 2, map[registry.Key]pair{z: at(1)}), lost: []registry.Key{y}, told: true},
		"has another":    {old: made("l", 1, map[registry.Key]pair{x: at(1)}), next: made("l", 2, map[registry.Key]pair{x: at(2)}), told: true},
		"another log":    {old: made("l", 1, map[registry.Key]pair{x: at(1)}), next: made("m", 2, nil), told: true},
		"begun":          {old: made("", 1, nil), next: made("m", 2, map[registry.Key]pair{x: at(1)})},
		"went on":        {old: made("l", 1, map[registry.Key]pair{x: at(1)}), next: made("l", 1, map[registry.Key]pair{y: at(1)}), moved: true},
		"more":           {old: made("l", 1, map[registry.Key]pair{x: at(1)}), next: made("l", 1, map[registry.Key]pair{x: at(1), y: at(2)})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Store{regain: make(chan struct{}, 1), movedAddresses: make(chan struct{}, 1)}
			s.lose(c.old, c.next)
			var got []registry.Key
			if back := s.lost.commit(c.next); back != nil {
				for _, w := range back.Addresses {
					got = append(got, w.key())
				}
			}
			if !slices.Equal(got, c.lost) {
				t.Errorf("given back are %v, want %v", got, c.lost)
			}
			if told := len(s.regain) > 0; told != c.told {
				t.Errorf("told: %v, want %v", told, c.told)
			}
			if moved := len(s.Moved()) > 0; moved != c.moved {
				t.Errorf("moved: %v, want %v", moved, c.moved)
			}
			given, err := c.next.allocate(hosts("new", 50), s.lost)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range given.Addresses {
				if s.lost.has(w.IPv4) {
					t.Errorf("%s was given %s, which another has lost", w.Host, w.IPv4)
				}
			}
		})
	}
}
