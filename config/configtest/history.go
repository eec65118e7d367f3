package configtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/config"
)

func history(t *testing.T, s config.Store, q config.Query) config.Past {
	t.Helper()
	past, err := s.History(t.Context(), q)
	if err != nil {
		t.Fatalf("history: %v", err)
	}
	return past
}

// summary describes each revision of a history: "user: a one.test>two.test".
func summary(past config.Past) []string {
	host := func(o *config.Object) string {
		if o == nil {
			return ""
		}
		return hostOf(o)
	}
	var out []string
	for _, r := range past.Revisions {
		line := r.Who + ":"
		for _, w := range r.Writes {
			line += fmt.Sprintf(" %s %s>%s", w.Key.Name, host(w.Before), host(w.After))
		}
		out = append(out, line)
	}
	return out
}

func testHistory(t *testing.T, s config.Store) {
	if past := history(t, s, config.Query{}); past.Latest != "0" || past.Since != "0" || len(past.Revisions) > 0 {
		t.Errorf("the history of an empty store is %+v", past)
	}
	one := put(t, s, Object("a", "one.test"))
	revision, err := s.Apply(t.Context(), []config.Change{{Key: Key("c"), Object: Object("c", "c.test")},
		{Key: Key("b"), Object: Object("b", "b.test")}, {Key: Key("a"), Object: Object("a", "two.test")}}, "many")
	if err != nil {
		t.Fatal(err)
	}
	if same, err := s.Apply(t.Context(), nil, "nobody"); err != nil || same != revision {
		t.Errorf("nothing applied: got %s, %v, want the revision %s", same, err, revision)
	}
	if err := Delete(t.Context(), s, Key("a"), "", "remover"); err != nil {
		t.Fatal(err)
	}
	all := history(t, s, config.Query{})
	want := []string{"remover: a two.test>", "many: a one.test>two.test b >b.test c >c.test", "test: a >one.test"}
	if d := cmp.Diff(want, summary(all)); d != "" {
		t.Errorf("all (-want +got):\n%s", d)
	}
	for i, r := range all.Revisions {
		if r.When.IsZero() || i == 0 && r.Number != all.Latest || i == 1 && r.Number != revision || i == 2 &&
			r.Number != one.Revision {
			t.Errorf("revision %+v", r)
		}
	}
	for what, c := range map[string]struct {
		q    config.Query
		want []string
	}{
		"one object":    {config.Query{Key: Key("b")}, []string{"many: b >b.test"}},
		"none":          {config.Query{Limit: -1}, nil},
		"a limit":       {config.Query{Limit: 2}, want[:2]},
		"one byte":      {config.Query{Bytes: 1}, want[:1]},
		"of one object": {config.Query{Key: Key("a"), Limit: 1}, []string{"remover: a two.test>"}},
		"after":         {config.Query{After: revision}, want[:1]},
		"after the end": {config.Query{After: all.Latest}, nil},
		"nothing there": {config.Query{Key: Key("none")}, nil},
	} {
		if d := cmp.Diff(c.want, summary(history(t, s, c.q))); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	bare := history(t, s, config.Query{Key: Key("a"), Bare: true}).Revisions
	if len(bare) != 3 || bare[0].Writes[0].Before.Revision != revision || bare[0].Writes[0].After != nil ||
		bare[1].Writes[0].After.Key != Key("a") || bare[2].Writes[0].Before != nil {
		t.Errorf("bare: got %+v", bare)
	}
	_, err = s.History(t.Context(), config.Query{After: "x"})
	wantError(t, "after no number", err, config.ErrNoRevision)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.History(ctx, config.Query{})
	wantError(t, "history with an ended context", err, context.Canceled)
}

// A store can be rolled back to each revision in its history, and the rollback can be undone.
func testBack(t *testing.T, s config.Store) {
	random := rand.New(rand.NewPCG(1, 2))
	states := map[string][]string{"0": nil}
	var order []string
	apply := func(changes []config.Change) {
		t.Helper()
		revision, err := s.Apply(t.Context(), changes, "test")
		if err != nil {
			t.Fatal(err)
		}
		states[revision], order = contents(t, s), append(order, revision)
	}
	for range 25 {
		apply(randomChanges(t, s, random))
	}
	for _, to := range append([]string{"0"}, order...) {
		changes, err := config.Back(history(t, s, config.Query{After: to}), to)
		if err != nil {
			t.Fatalf("back to %s: %v", to, err)
		}
		if revision, err := s.Apply(t.Context(), changes, "test"); err != nil {
			t.Fatalf("back to %s: %v", to, err)
		} else if d := cmp.Diff(states[to], contents(t, s)); d != "" {
			t.Errorf("back to %s, at %s (-want +got):\n%s", to, revision, d)
		}
		apply(randomChanges(t, s, random))
	}
	changes, err := config.Back(history(t, s, config.Query{}), order[0])
	if err != nil || len(changes) == 0 {
		t.Fatalf("got %v, %v", changes, err)
	}
	stale := changes[0].Key
	if _, err := s.Apply(t.Context(), []config.Change{{Key: stale, Object: Object(stale.Name, "meanwhile.test")}},
		"other"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Apply(t.Context(), changes, "test")
	wantError(t, "rollback of a newer write", err, config.ErrConflict)
	_, err = config.Back(history(t, s, config.Query{}), "1000000")
	wantError(t, "rollback to a future revision", err, config.ErrNoRevision)
}

// randomChanges returns at least one valid change.
func randomChanges(t *testing.T, s config.Store, random *rand.Rand) []config.Change {
	t.Helper()
	var out []config.Change
	for _, n := range random.Perm(6)[:1+random.IntN(3)] {
		name := fmt.Sprintf("o%d", n)
		c := config.Change{Key: Key(name), Object: Object(name, fmt.Sprintf("h%d.test", random.IntN(4)))}
		if _, err := s.Get(t.Context(), c.Key); err == nil && random.IntN(3) == 0 {
			c.Object = nil
		}
		out = append(out, c)
	}
	return out
}

// contents describes each object of a store: "a one.test".
func contents(t *testing.T, s config.Store) []string {
	t.Helper()
	list, err := s.List(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, o := range list {
		out = append(out, o.Name+" "+hostOf(o))
	}
	return out
}
