package vip

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unreliable is a store that can refuse writes.
type unreliable struct {
	*record.Memory
	refuse atomic.Bool
}

var errDiskFull = errors.New("disk full")

func (u *unreliable) Commit(ctx context.Context, writes ...record.Write) error {
	if u.refuse.Load() {
		return errDiskFull
	}
	return u.Memory.Commit(ctx, writes...)
}

// replica is an allocator that runs, and what it sent last.
type replica struct {
	*Allocator
	vips *registry.VIPs // nil: nothing
}

// run starts an allocator in a bubble of synctest.
func run(t *testing.T, records record.Store) *replica {
	r := &replica{Allocator: New(Config{Records: records, Log: testlog.New(t)})}
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan registry.VIPs)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(ctx, out); err != nil {
			t.Error(err)
		}
	}()
	go func() {
		for {
			select {
			case v := <-out:
				r.vips = &v
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

func (r *replica) of(host string) registry.VIP { return r.vips.At(pmap.String(host)) }

// Hosts get addresses, keep them, and have the same on every replica, and again from an empty
// store.
func TestAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := record.NewMemory()
		one, two := run(t, store), run(t, store)
		synctest.Wait()
		if one.vips == nil || one.vips.Len() != 0 {
			t.Fatalf("at first: got %v, want an empty map", one.vips)
		}
		one.Want([]string{"api.shop", "web.shop"})
		synctest.Wait()
		web := one.of("web.shop")
		inRange := strings.HasPrefix(web.IPv4.String(), "240.240.") && strings.HasPrefix(web.IPv6.String(), "2001:2::")
		if !inRange || web == one.of("api.shop") {
			t.Errorf("web.shop has %v, api.shop has %v", web, one.of("api.shop"))
		}
		if two.of("web.shop") != web {
			t.Errorf("on the other replica web.shop has %v, want %v", two.of("web.shop"), web)
		}
		two.Want([]string{"more.shop", "web.shop"})
		one.Want(nil)
		synctest.Wait()
		if one.of("web.shop") != web || one.of("more.shop") != two.of("more.shop") || one.vips.Len() != 3 {
			t.Errorf("later: got %d addresses, web.shop has %v, want %v", one.vips.Len(), one.of("web.shop"), web)
		}
		fresh := run(t, record.NewMemory())
		fresh.Want([]string{"web.shop"})
		synctest.Wait()
		if fresh.of("web.shop") != web {
			t.Errorf("from an empty store web.shop has %v, want %v", fresh.of("web.shop"), web)
		}
	})
}

// Many hosts get different addresses, also when two replicas allocate at once.
func TestAllocateMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := record.NewMemory()
		one, two := run(t, store), run(t, store)
		var hosts []string
		for i := range 3000 {
			hosts = append(hosts, fmt.Sprintf("h%04d", i))
		}
		one.Want(hosts[:2000])
		two.Want(hosts[1000:])
		synctest.Wait()
		seen := map[registry.VIP]bool{}
		for _, v := range one.vips.All() {
			seen[v] = true
		}
		if len(seen) != len(hosts) || differs(*one.vips, *two.vips) {
			t.Errorf("%d hosts have %d addresses on one replica, %d on the other", len(hosts), len(seen),
				two.vips.Len())
		}
	})
}

// While the store refuses writes a problem says so, and the hosts get their addresses when it does
// not.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unreliable{Memory: record.NewMemory()}
		store.refuse.Store(true)
		one := run(t, store)
		one.Want([]string{"web.shop"})
		synctest.Wait()
		if p := one.Problems(); len(p) != 1 || !strings.Contains(p[0].Text, "disk full") {
			t.Errorf("problems are %v", p)
		}
		store.refuse.Store(false)
		time.Sleep(retryGap)
		synctest.Wait()
		if p := one.Problems(); len(p) != 0 || one.vips.Len() != 1 {
			t.Errorf("afterwards: %d addresses, problems %v", one.vips.Len(), p)
		}
	})
}

// Release frees what was not used for a week, and nothing else. A host in use is marked once a day.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := record.NewMemory()
		one := run(t, store)
		one.Want([]string{"old", "used"})
		synctest.Wait()
		one.Want([]string{"used"})
		time.Sleep(6 * 24 * time.Hour)
		if got, err := Release(t.Context(), store, time.Now()); err != nil || got == nil || len(got) != 0 {
			t.Errorf("after 6 days: released %#v, %v; want an empty list, not nil", got, err)
		}
		time.Sleep(2 * 24 * time.Hour)
		got, err := Release(t.Context(), store, time.Now())
		if err != nil || !slices.Equal(got, []string{"old"}) {
			t.Errorf("after 8 days: released %v, %v; want old", got, err)
		}
		synctest.Wait()
		if one.vips.Len() != 1 {
			t.Errorf("%d hosts have addresses, want 1", one.vips.Len())
		}
	})
}

// Records that cannot be read do not keep others from being used.
func TestInvalidRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := record.NewMemory()
		i, err := choose("web", func(int) bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"10.0.0.1", address(i).IPv4.String()} {
			key := record.Key{Table: tableName, Name: name}
			if err := store.Commit(t.Context(), record.Write{Key: key, Value: []byte("{")}); err != nil {
				t.Fatal(err)
			}
		}
		one := run(t, store)
		one.Want([]string{"web"})
		synctest.Wait()
		if one.vips.Len() != 1 || one.vips.At("web") == address(i) {
			t.Errorf("got %d addresses, web has %v", one.vips.Len(), one.vips.At("web"))
		}
	})
}

// A problem says when more than 90 % are allocated.
func TestNearlyExhausted(t *testing.T) {
	t.Parallel()
	a := New(Config{Records: record.NewMemory(), Log: testlog.New(t)})
	for used, want := range map[int]int{capacity * 9 / 10: 0, capacity*9/10 + 1: 1} {
		if a.used = used; len(a.Problems()) != want {
			t.Errorf("with %d of %d: problems %v, want %d", used, capacity, a.Problems(), want)
		}
	}
}

// The addresses of a range are all used before it is exhausted, and its ends are not.
func TestChoose(t *testing.T) {
	t.Parallel()
	first, last := address(0).IPv4.String(), address(capacity-1).IPv4.String()
	if first != "240.240.0.1" || last != "240.240.255.254" {
		t.Errorf("the range is %s to %s", first, last)
	}
	free := 7
	i, err := choose("x", func(i int) bool { return i != free })
	if err != nil || i != free {
		t.Errorf("got %d, %v; want the only free one", i, err)
	}
	if _, err := choose("x", func(int) bool { return true }); !errors.Is(err, ErrExhausted) {
		t.Errorf("got %v, want ErrExhausted", err)
	}
	for _, i := range []int{0, 300, capacity - 1} {
		if got, ok := indexOf(address(i).IPv4); !ok || got != i {
			t.Errorf("the index of %v is %d, %v", address(i), got, ok)
		}
	}
}
