package configtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// TestStore tests that a store keeps the promises of config.Store. open returns a new, empty store,
// and closes it when the test ends. reopen closes a store and opens it again. It may be nil.
func TestStore(t *testing.T, open func(t *testing.T) config.Store,
	reopen func(t *testing.T, s config.Store) config.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, config.Store){
		"put, get, replace, delete": testRoundTrip,
		"list":                      testList,
		"revisions":                 testRevisions,
		"all or none":               testApply,
		"concurrent writers":        testWriters,
		"the feed":                  testFeed,
		"history":                   testHistory,
		"back to any revision":      testBack,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
	if reopen != nil {
		t.Run("over a restart", func(t *testing.T) {
			t.Parallel()
			testReopen(t, open(t), reopen)
		})
	}
}

// Key returns the key of a ServiceEntry in the namespace shop.
func Key(name string) config.Key {
	return config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: name}
}

// Object returns a valid ServiceEntry in the namespace shop, for a host.
func Object(name, host string) *config.Object {
	o := &config.Object{Key: Key(name), Labels: map[string]string{"app": name},
		Annotations: map[string]string{"note": "a b\nc"},
		Spec: &networking.ServiceEntry{
			Hosts:      []string{host},
			Ports:      []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
			Resolution: networking.ServiceEntry_DNS,
		}}
	o.Hash = config.HashOf(o)
	return o
}

// Put writes one object, and returns it as it is stored.
func Put(ctx context.Context, s config.Store, o *config.Object, who string) (*config.Object, error) {
	if _, err := s.Apply(ctx, []config.Change{{Key: o.Key, Object: o, Revision: o.Revision}}, who); err != nil {
		return nil, err
	}
	return s.Get(ctx, o.Key)
}

// Delete deletes one object.
func Delete(ctx context.Context, s config.Store, key config.Key, revision, who string) error {
	_, err := s.Apply(ctx, []config.Change{{Key: key, Revision: revision}}, who)
	return err
}

func put(t *testing.T, s config.Store, o *config.Object) *config.Object {
	t.Helper()
	written, err := Put(t.Context(), s, o, "test")
	if err != nil {
		t.Fatalf("put %s: %v", o.Key, err)
	}
	return written
}

// wantHost checks the host of a stored object. An empty host means that there is no such object.
func wantHost(t *testing.T, s config.Store, name, host string) {
	t.Helper()
	o, err := s.Get(t.Context(), Key(name))
	switch {
	case host == "" && !errors.Is(err, config.ErrNotFound):
		t.Errorf("get %s: got %v, %v, want ErrNotFound", name, o, err)
	case host != "" && err != nil:
		t.Errorf("get %s: %v", name, err)
	case host != "" && hostOf(o) != host:
		t.Errorf("get %s: got host %s, want %s", name, hostOf(o), host)
	}
}

func hostOf(o *config.Object) string { return o.Spec.(*networking.ServiceEntry).Hosts[0] }

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func testRoundTrip(t *testing.T, s config.Store) {
	o := Object("a", "one.test")
	o.Created = time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)
	o.Hash = config.HashOf(o)
	written := put(t, s, o)
	got, err := s.Get(t.Context(), o.Key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written, got, protocmp.Transform()); diff != "" {
		t.Errorf("get differs from what put returned:\n%s", diff)
	}
	want := *o
	want.Revision, want.Origin = got.Revision, config.Origin{Source: s.Name()}
	if diff := cmp.Diff(&want, got, protocmp.Transform()); diff != "" {
		t.Errorf("get differs from what was put:\n%s", diff)
	}
	if second := put(t, s, Object("a", "two.test")); !second.Created.Equal(o.Created) {
		t.Errorf("created is %v after a replacement, was %v", second.Created, o.Created)
	}
	wantHost(t, s, "a", "two.test")
	if err := Delete(t.Context(), s, o.Key, "", "test"); err != nil {
		t.Fatal(err)
	}
	wantHost(t, s, "a", "")
	if first := put(t, s, Object("a", "one.test")); first.Created.IsZero() {
		t.Error("a new object has no creation time")
	}
}

func testList(t *testing.T, s config.Store) {
	for _, name := range []string{"b", "a", "a-b", "c"} {
		put(t, s, Object(name, name+".test"))
	}
	other := Object("a", "other.test")
	other.Namespace = "other"
	put(t, s, other)
	rule := Object("a", "")
	rule.Kind, rule.Spec = config.DestinationRule, &networking.DestinationRule{Host: "a.test"}
	put(t, s, rule)
	for _, c := range []struct {
		kind      config.Kind
		namespace string
		want      []string
	}{
		{"", "", []string{"DestinationRule shop/a", "ServiceEntry other/a", "ServiceEntry shop/a",
			"ServiceEntry shop/a-b", "ServiceEntry shop/b", "ServiceEntry shop/c"}},
		{config.ServiceEntry, "other", []string{"ServiceEntry other/a"}},
		{config.DestinationRule, "", []string{"DestinationRule shop/a"}},
		{"", "sho", nil},
	} {
		list, err := s.List(t.Context(), c.kind, c.namespace)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range list {
			got = append(got, o.Key.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("list %q %q:\n%s", c.kind, c.namespace, diff)
		}
	}
}

func testRevisions(t *testing.T, s config.Store) {
	first := put(t, s, Object("a", "one.test"))
	second := put(t, s, Object("a", "two.test")) // without a revision: replaces any
	if number(t, second.Revision) <= number(t, first.Revision) {
		t.Errorf("the second revision %q is not after the first, %q", second.Revision, first.Revision)
	}
	stale := Object("a", "stale.test")
	stale.Revision = first.Revision
	_, err := Put(t.Context(), s, stale, "test")
	wantError(t, "put over a newer one", err, config.ErrConflict)
	wantError(t, "delete of a newer one", Delete(t.Context(), s, Key("a"), first.Revision, "test"), config.ErrConflict)
	wantHost(t, s, "a", "two.test")
	stale.Revision = second.Revision
	third := put(t, s, stale)
	if err := Delete(t.Context(), s, Key("a"), third.Revision, "test"); err != nil {
		t.Errorf("delete at its revision: %v", err)
	}
	_, err = Put(t.Context(), s, third, "test")
	wantError(t, "put over a deleted one", err, config.ErrConflict)
	fourth := put(t, s, Object("a", "four.test"))
	if number(t, fourth.Revision) <= number(t, third.Revision) {
		t.Errorf("the revision after a deletion is %q, the one before %q", fourth.Revision, third.Revision)
	}
}

func number(t *testing.T, revision string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		t.Errorf("revision: %v", err)
	}
	return n
}

func testApply(t *testing.T, s config.Store) {
	put(t, s, Object("a", "one.test"))
	b := put(t, s, Object("b", "one.test"))
	change := func(name, host, revision string) config.Change {
		c := config.Change{Key: Key(name), Revision: revision}
		if host != "" {
			c.Object = Object(name, host)
		}
		return c
	}
	for what, c := range map[string]struct {
		changes []config.Change
		want    error
	}{
		"a conflict": {[]config.Change{change("a", "two.test", ""), change("n", "new.test", ""),
			change("b", "two.test", b.Revision+"0")}, config.ErrConflict},
		"nothing there":   {[]config.Change{change("a", "two.test", ""), change("none", "", "")}, config.ErrNotFound},
		"gone since read": {[]config.Change{change("a", "", ""), change("none", "two.test", "1")}, config.ErrConflict},
		"there already": {[]config.Change{change("n", "new.test", config.Absent), change("a", "two.test", config.Absent)},
			config.ErrConflict},
	} {
		_, err := s.Apply(t.Context(), c.changes, "test")
		wantError(t, what, err, c.want)
		wantHost(t, s, "a", "one.test")
		wantHost(t, s, "b", "one.test")
		wantHost(t, s, "n", "")
	}
	if _, err := s.Apply(t.Context(), []config.Change{change("a", "two.test", ""), change("a", "three.test", "")},
		"test"); err == nil {
		t.Error("one key twice in an apply: got no error")
	}
	revision, err := s.Apply(t.Context(), []config.Change{change("a", "two.test", ""), change("b", "", b.Revision),
		change("c", "new.test", config.Absent)}, "test")
	if err != nil {
		t.Fatal(err)
	}
	wantHost(t, s, "a", "two.test")
	wantHost(t, s, "b", "")
	wantHost(t, s, "c", "new.test")
	if o, err := s.Get(t.Context(), Key("a")); err != nil || o.Revision != revision {
		t.Errorf("get: %v, %v, want revision %s", o, err, revision)
	}
}

// No write is lost if several writers increment a number.
func testWriters(t *testing.T, s config.Store) {
	const writers, writes = 8, 10
	o := Object("n", "0.test")
	put(t, s, o)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < writes; {
				have, err := s.Get(t.Context(), o.Key)
				if err != nil {
					t.Errorf("get: %v", err)
					return
				}
				var n int
				if _, err := fmt.Sscanf(hostOf(have), "%d.test", &n); err != nil {
					t.Errorf("host: %v", err)
					return
				}
				next := Object("n", fmt.Sprintf("%d.test", n+1))
				next.Revision = have.Revision
				_, err = Put(t.Context(), s, next, "test")
				switch {
				case err == nil:
					done++
				case !errors.Is(err, config.ErrConflict):
					t.Errorf("put: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantHost(t, s, "n", fmt.Sprintf("%d.test", writers*writes))
}

// follow runs the store's feed and returns its batches.
func follow(t *testing.T, s config.Store) <-chan feed.Batch[*config.Object] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan feed.Batch[*config.Object]), make(chan error, 1)
	go func() { done <- s.Run(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return out
}

// mirror merges the batches of a store.
type mirror struct {
	*feed.Merger[config.Key, *config.Object]
	t   *testing.T
	out <-chan feed.Batch[*config.Object]
}

func newMirror(t *testing.T, s config.Store) mirror {
	m := feed.NewMerger(feed.Config[config.Key,
		*config.Object]{KeyOf: func(o *config.Object) config.Key { return o.Key }},
		[]feed.SourceConfig{{Name: s.Name(), Required: true}})
	return mirror{m, t, follow(t, s)}
}

// object returns the object with a name; nil if there is none.
func (m mirror) object(name string) *config.Object {
	if items := m.Items(Key(name)); len(items) > 0 {
		return items[0].Item
	}
	return nil
}

// until applies batches until an object has a host. An empty host means that it is deleted.
func (m mirror) until(name, host string) {
	m.t.Helper()
	for {
		o := m.object(name)
		if len(m.Waiting()) == 0 && (o == nil && host == "" || o != nil && hostOf(o) == host) {
			return
		}
		select {
		case b := <-m.out:
			if len(m.Waiting()) > 0 && !b.Full {
				m.t.Fatal("the first batch is not full")
			}
			m.Apply(b, time.Now())
		case <-time.After(20 * time.Second):
			m.t.Fatalf("no batch has %s=%q; it is %v", name, host, o)
		}
	}
}

func testFeed(t *testing.T, s config.Store) {
	put(t, s, Object("a", "one.test"))
	m := newMirror(t, s)
	m.until("a", "one.test")
	kept := m.object("a")
	put(t, s, Object("b", "two.test"))
	m.until("b", "two.test")
	if m.object("a") != kept {
		t.Error("an object that did not change has another pointer")
	}
	if err := Delete(t.Context(), s, Key("a"), "", "test"); err != nil {
		t.Fatal(err)
	}
	m.until("a", "")
	if _, err := s.Apply(t.Context(), []config.Change{{Key: Key("a"), Object: Object("a", "again.test")},
		{Key: Key("b")}}, "test"); err != nil {
		t.Fatal(err)
	}
	m.until("a", "again.test")
	if m.object("b") != nil {
		t.Error("the feed has only a part of an apply")
	}
	newMirror(t, s).until("a", "again.test") // a second follower
	for i := range 20 {                      // a reader that is slow does not block writers, and receives the latest state
		put(t, s, Object("a", fmt.Sprintf("%d.test", i)))
	}
	m.until("a", "19.test")
}

func testReopen(t *testing.T, s config.Store, reopen func(*testing.T, config.Store) config.Store) {
	put(t, s, Object("gone", "one.test"))
	a := put(t, s, Object("a", "one.test"))
	if err := Delete(t.Context(), s, Key("gone"), "", "test"); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	got, err := s.Get(t.Context(), Key("a"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, got, protocmp.Transform()); diff != "" {
		t.Errorf("after a restart:\n%s", diff)
	}
	wantHost(t, s, "gone", "")
	if past := history(t, s, config.Query{}); number(t, past.Latest) <= number(t, a.Revision) ||
		len(past.Revisions) != 3 {
		t.Errorf("the history after a restart is %+v, want three revisions", past)
	}
	if next := put(t, s, Object("b", "two.test")); number(t, next.Revision) <= number(t, a.Revision) {
		t.Errorf("the revision after a restart is %q, the one before %q", next.Revision, a.Revision)
	}
}
