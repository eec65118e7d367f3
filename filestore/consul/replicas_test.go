package consul

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// What one replica has written, every other one reads from then on, and is told of.
func TestReplicas(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a, b := s.open(t), s.open(t)
	told := b.Records().Watch(t.Context(), "t")
	for i := range 50 {
		want := fmt.Sprint(i)
		put(t, a, "x", want)
		if got := valueOf(t, b, "x"); got != want {
			t.Fatalf("read %s after %s was written", got, want)
		}
	}
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Error("the other replica was not told")
	}
	t.Run("a busy writer", func(t *testing.T) { testBusy(t, a, b) })
	t.Run("a large apply", func(t *testing.T) { testLarge(t, a, b) })
}

// testBusy: a read that has to wait for long, because this replica is busy, is not answered by what
// was known before.
func testBusy(t *testing.T, a, b *Store) {
	if err := b.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(freshTime+time.Second, func() { <-b.turn })
	put(t, a, "busy", "1")
	if got := valueOf(t, b, "busy"); got != "1" {
		t.Errorf("read %q after 1 was written", got)
	}
}

// randomText cannot be compressed well.
func randomText(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rand.IntN(26))
	}
	return string(b)
}

// bigChange sets objects to a text that is not compressed well.
func bigChange(n int) []config.Change {
	out := make([]config.Change, n)
	for i := range out {
		o := configtest.Object(fmt.Sprintf("o%d", i), "big.test")
		o.Annotations = map[string]string{"text": randomText(1000)}
		out[i] = config.Change{Key: o.Key, Object: o}
	}
	return out
}

// testLarge: an apply that does not fit into one key is seen whole or not at all, while others
// write.
func testLarge(t *testing.T, a, b *Store) {
	const many = 1500
	done := make(chan error, 1)
	go func() {
		_, err := a.Apply(t.Context(), bigChange(many), "test")
		done <- err
	}()
	for ended := false; !ended; {
		select {
		case err := <-done:
			if ended = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
		list, err := b.List(t.Context(), "", "")
		if err != nil || len(list) != 0 && len(list) != many || ended && len(list) != many {
			t.Fatalf("listed %d, %v", len(list), err)
		}
		put(t, b, "meanwhile", "x")
	}
	a.await(t.Context())
	defer func() { <-a.turn }()
	if len(a.chunked) == 0 {
		t.Error("it was not in chunks: the test shows nothing")
	}
}

// A log does not grow without end; who starts later has what the others have, and what nobody needs
// is gone.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	s.compact, s.history = 40, 60
	a, b := s.open(t), s.open(t)
	for i := range 200 {
		r := []*Store{a, b}[i%2]
		put(t, r, fmt.Sprint("r", i%7), fmt.Sprint(i))
		o := configtest.Object(fmt.Sprint("o", i%5), fmt.Sprintf("h%d.test", i))
		if i == 50 {
			o.Annotations = map[string]string{"text": randomText(600 << 10)}
		}
		if _, err := r.Put(t.Context(), o, "test"); err != nil {
			t.Fatal(err)
		}
	}
	keys := func() (entries, chunks int) {
		var all []string
		if err := json.Unmarshal([]byte(s.kv(t, "GET", "?keys", "")), &all); err != nil {
			t.Fatal(err)
		}
		for _, k := range all {
			entries += strings.Count(k, "/entry/")
			chunks += strings.Count(k, "/chunk/")
		}
		return entries, chunks
	}
	eventually(t, "old entries and chunks go", func() bool { e, c := keys(); return e <= 3*s.compact && c <= 4 })
	late := s.open(t)
	if err := a.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, got := a.state.Load(), late.state.Load()
	if got.Sequence < 400 || got.generation == 0 {
		t.Fatalf("it began at %+v: nothing of it is from a snapshot", got.position)
	}
	equalStates(t, want, got)
	if n := got.history.Len(); n > s.history {
		t.Errorf("%d writes are remembered, more than %d", n, s.history)
	}
}

// equalStates fails the test when states differ.
func equalStates(t *testing.T, a, b *state) {
	t.Helper()
	one, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) {
		t.Errorf("two replicas know different things:\n%s",
			cmp.Diff(strings.Split(string(one), "\n"), strings.Split(string(two), "\n")))
	}
	if a.remembered != b.remembered {
		t.Errorf("the history has %d bytes, and %d", a.remembered, b.remembered)
	}
}

// A change of one object reaches the feed of another replica as that object alone; the others keep
// their pointers, also over a restoration of Consul's state.
func TestFeedOfReplicas(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a, b := s.open(t), s.open(t)
	for i := range 10 {
		if _, err := a.Put(t.Context(), configtest.Object(fmt.Sprint("o", i), "one.test"), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := b.state.Load()
	if _, err := a.Put(t.Context(), configtest.Object("o3", "two.test"), "test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other replica hears of it", func() bool {
		o, ok := b.state.Load().objects.Get(configtest.Key("o3"))
		return ok && o.decoded.Spec.(*networking.ServiceEntry).Hosts[0] == "two.test"
	})
	var changed []string
	for c := range b.state.Load().objects.Diff(before.objects) {
		changed = append(changed, c.Key.Name)
	}
	if d := cmp.Diff([]string{"o3"}, changed); d != "" {
		t.Errorf("changed (-want +got):\n%s", d)
	}
}

// Writes of one replica that wait at the same time share entries.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a := s.open(t)
	put(t, a, "first", "1")
	from := a.state.Load().Sequence
	if err := a.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	const many = 100
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			if err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: fmt.Sprint(i)},
				Value: []byte("x")}); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all wait", func() bool {
		a.queue.mu.Lock()
		defer a.queue.mu.Unlock()
		return len(a.queue.list) == many
	})
	<-a.turn
	wg.Wait()
	if n := a.state.Load().Sequence - from; n != 1 {
		t.Errorf("%d writes that waited together took %d entries", many, n)
	}
	if n := a.state.Load().records.Len(); n != many+1 {
		t.Errorf("%d records are there", n)
	}
}

// What comes of a write that shares an entry with another one does not hang on that when it is not
// written.
func TestGroupUnwritten(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	b := s.open(t)
	put(t, b, "first", "1")
	way := newBetween(t, s.address)
	s.address = way.URL
	a := s.open(t)
	two := func(fresh func() error) (errs [2]error) {
		if err := a.await(t.Context()); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = fresh() })
			eventually(t, "it waits", func() bool {
				a.queue.mu.Lock()
				defer a.queue.mu.Unlock()
				return len(a.queue.list) == i+1
			})
		}
		<-a.turn
		wg.Wait()
		return errs
	}
	commit := func(s *Store, name, value string) error {
		key := record.Key{Table: "t", Name: name}
		return s.Records().Commit(t.Context(), record.Write{Key: key, Value: []byte(value)})
	}
	// another replica creates the record that both want to create, at the last moment
	var once sync.Once
	way.losing(func(path string, body []byte) fate {
		if path == "/v1/txn" && bytes.Contains(body, []byte(`"cas"`)) {
			once.Do(func() {
				if err := commit(b, "x", "rival"); err != nil {
					t.Error(err)
				}
			})
		}
		return passes
	})
	for _, err := range two(func() error { return commit(a, "x", "mine") }) {
		if !errors.Is(err, record.ErrConflict) {
			t.Errorf("the other replica was faster: got %v, want ErrConflict", err)
		}
	}
	if got := valueOf(t, a, "x"); got != "rival" {
		t.Errorf("read %q, want that of the other replica", got)
	}
	// the entry cannot be written: then nobody has written the record before the second one
	way.losing(func(path string, _ []byte) fate {
		if path == "/v1/txn" {
			return unheard
		}
		return passes
	})
	for _, err := range two(func() error { return commit(a, "new", "x") }) {
		if errors.Is(err, record.ErrConflict) || err == nil {
			t.Errorf("got %v", err)
		}
	}
	way.losing(nil)
}
