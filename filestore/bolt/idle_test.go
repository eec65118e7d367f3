package bolt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ashore-mesh/ashore/internal/virtualip"
	"github.com/ashore-mesh/ashore/registry"
)

// allocationsOf are all by key.
func allocationsOf(s *Store) map[registry.Key]registry.Allocation {
	out := map[registry.Key]registry.Allocation{}
	for a := range s.Allocations() {
		out[a.Key] = a
	}
	return out
}

// Addresses of hosts that have been gone for long go to new ones where there are no free ones, those first that have been for longest;
// who is back before that has its own. All of it survives.
func TestReuse(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	s := open(t, Config{Dir: dir})
	keys := make([]registry.Key, 1<<16-2)
	for i := range keys {
		keys[i] = registry.Key{Host: fmt.Sprintf("h%d.test", i), Namespace: "shop"}
	}
	all, err := s.Allocate(ctx, keys)
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)
	for i, list := range [][]registry.Key{{keys[2]}, {keys[1], keys[3]}, {keys[4], keys[1]}} {
		if err := s.Retire(ctx, list, day.AddDate(0, 0, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Retire(ctx, []registry.Key{{Host: "never.test"}}, day); err != nil {
		t.Errorf("what has none is idle: %v", err)
	}
	more := []registry.Key{{Host: "x.test"}, {Host: "y.test"}, {Host: "z.test"}, {Host: "zz.test"}}
	got, err := s.Allocate(ctx, append([]registry.Key{keys[3], more[0]}, more...))
	if !errors.Is(err, virtualip.ErrExhausted) || len(got) != 1 || !slices.Equal(got[keys[3]], all[keys[3]]) {
		t.Errorf("got %v, %v; want the one that is back, and ErrExhausted", got, err)
	}
	idle := map[registry.Key]time.Time{keys[1]: day.AddDate(0, 0, 1).Truncate(time.Second), keys[2]: day.Truncate(time.Second), keys[3]: day.AddDate(0, 0, 1).Truncate(time.Second), keys[4]: day}
	given, err := s.Reuse(ctx, append([]registry.Key{keys[0], more[0]}, more...), idle)
	if err != nil {
		t.Fatal(err)
	}
	want := map[registry.Key]registry.Key{more[0]: keys[2], more[1]: keys[1]} // keys[3] is not idle any more, keys[4] not since that time
	if len(given) != len(want) {
		t.Fatalf("%d were given: %v", len(given), given)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, checked(t, dir))
	kept := allocationsOf(s)
	if len(kept) != len(keys) {
		t.Errorf("%d are kept, want %d", len(kept), len(keys))
	}
	byKey := map[registry.Key][]netip.Addr{}
	for k, a := range kept {
		byKey[k] = a.Addresses
	}
	checkAddresses(t, byKey)
	for to, from := range want {
		if a := kept[to]; !slices.Equal(a.Addresses, all[from]) || !a.Idle.IsZero() || kept[from].Addresses != nil {
			t.Errorf("%v has %v, want that of %v, which has %v", to, a, from, kept[from])
		}
	}
	if a := kept[keys[4]]; !a.Idle.Equal(day.AddDate(0, 0, 2).Truncate(time.Second)) || !kept[keys[3]].Idle.IsZero() {
		t.Errorf("idle since %v and %v", a.Idle, kept[keys[3]].Idle)
	}
	if given, err := s.Reuse(ctx, more[2:], idle); err != nil || given != nil {
		t.Errorf("nothing is left: got %v, %v", given, err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Reuse(gone, more, idle)
	if e := s.Retire(gone, keys, time.Now()); !errors.Is(e, context.Canceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v, %v", e, err)
	}
}

// A file of a release that knew no idle hosts is brought to this layout, with its addresses.
func TestIdleOfOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	keys := []registry.Key{{Host: "a.test"}}
	had, err := s.Allocate(t.Context(), keys)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(s.path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.DeleteBucket([]byte(bucketIdle)), tx.Bucket([]byte(bucketMeta)).Put([]byte(metaSchema), []byte("2")))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, checked(t, dir))
	if err := s.Retire(t.Context(), keys, time.Unix(9, 0)); err != nil {
		t.Fatal(err)
	}
	if a := allocationsOf(s)[keys[0]]; a.Idle.Unix() != 9 || !maps.EqualFunc(had, map[registry.Key][]netip.Addr{keys[0]: a.Addresses}, slices.Equal) {
		t.Errorf("got %+v, want %v", a, had)
	}
}
