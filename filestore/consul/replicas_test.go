package consul

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
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
	t.Run("a large apply", func(t *testing.T) { testLarge(t, a, b) })
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
	if got := keysOf(t, a, "blob"); len(got) < 2 {
		t.Error("it was not in parts: the test shows nothing")
	}
}

// A log does not grow without end. A replica that starts later has what the others have.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	s.compact, s.historyBytes = 40, 40<<10
	a, b := s.open(t), s.open(t)
	for i := range 200 {
		r := []*Store{a, b}[i%2]
		put(t, r, fmt.Sprint("r", i%7), fmt.Sprint(i))
		o := configtest.Object(fmt.Sprint("o", i%5), fmt.Sprintf("h%d.test", i))
		if i == 50 {
			o.Annotations = map[string]string{"text": randomText(600 << 10)}
		}
		if _, err := configtest.Put(t.Context(), r, o, "test"); err != nil {
			t.Fatal(err)
		}
	}
	late := s.open(t)
	equalStates(t, a, b)
	equalStates(t, a, late)
	if first := keysOf(t, late, "log")[0]; first <= late.config.keyOfEntry(100) {
		t.Errorf("its log begins with %s: nothing of it is from a snapshot", first)
	}
	eventually(t, "old entries, parts and snapshots are deleted", func() bool {
		return len(keysOf(t, a, "log")) <= 2*int(s.compact) && len(keysOf(t, a, "blob")) == 0 &&
			len(keysOf(t, a, "snapshot")) == 1
	})
	past, err := a.History(t.Context(), config.Query{})
	if err != nil || past.Latest != "200" || number(t, past.Since) < 100 || len(past.Revisions) < 20 {
		t.Errorf("the history has %d revisions since %s until %s, %v", len(past.Revisions), past.Since, past.Latest, err)
	}
}

// keysOf returns the keys of the log of configuration in a folder.
func keysOf(t *testing.T, s *Store, folder string) []string {
	t.Helper()
	keys, err := s.client.keys(t.Context(), s.config.key(folder+"/"))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// equalStates fails the test unless two replicas have the same, as of now.
func equalStates(t *testing.T, a, b *Store) {
	t.Helper()
	for i, one := range a.logs() {
		two := b.logs()[i]
		for _, l := range []*replicatedLog{one, two} {
			if err := l.refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.EqualFunc(one.state.Load().items(), two.state.Load().items(), equalItems) {
			d := cmp.Diff(one.state.Load().items(), two.state.Load().items())
			t.Errorf("two replicas have different contents of %s:\n%s", one.name, d)
		}
	}
}

func equalItems(a, b item) bool {
	return a.key() == b.key() && a.Version == b.Version && bytes.Equal(a.Value, b.Value)
}

// A change of one object reaches the feed of another replica as that object alone.
func TestFeedOfReplicas(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a, b := s.open(t), s.open(t)
	for i := range 10 {
		if _, err := configtest.Put(t.Context(), a, configtest.Object(fmt.Sprint("o", i), "one.test"), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.config.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := runFeed(t, b)
	if batch := next(t, out); !batch.Full || len(batch.Updates) != 10 {
		t.Fatalf("first got %+v", batch)
	}
	if _, err := configtest.Put(t.Context(), a, configtest.Object("o3", "two.test"), "test"); err != nil {
		t.Fatal(err)
	}
	batch := next(t, out)
	if len(batch.Updates) != 1 || batch.Full || !batch.Explicit ||
		batch.Updates[0].Items[0].Spec.(*networking.ServiceEntry).Hosts[0] != "two.test" {
		t.Errorf("got %+v, want the changed object alone", batch)
	}
}
