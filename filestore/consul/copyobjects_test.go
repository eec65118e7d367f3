package consul

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// written is a replica that wrote objects, and ended; the copy is what it left. Its Consul is
// behind the returned link.
func written(t *testing.T) (s site, kept *shelf, link *between) {
	t.Helper()
	s = newSite(testconsul.Start(t, nil))
	link = newBetween(t, s.address)
	s.address = link.URL
	kept = newShelf()
	a, end := s.start(t, kept)
	for _, name := range []string{"a", "b", "gone"} {
		if _, err := a.Put(t.Context(), configtest.Object(name, "one.test"), "ann"); err != nil {
			t.Fatal(err)
		}
	}
	changed := configtest.Object("b", "two.test")
	if _, err := a.Apply(t.Context(), []config.Change{{Key: changed.Key, Object: changed},
		{Key: configtest.Key("gone")}}, "bob"); err != nil {
		t.Fatal(err)
	}
	put(t, a, "revoked", "mallory")
	end()
	return s, kept, link
}

// operated is what operators are told of a store.
type operated struct {
	Objects []*config.Object
	Past    config.Past
}

func operate(t *testing.T, s *Store) (out operated) {
	t.Helper()
	var err error
	if out.Objects, err = s.List(t.Context(), "", ""); err != nil {
		t.Errorf("list: %v", err)
	}
	if out.Past, err = s.History(t.Context(), config.Query{}); err != nil {
		t.Errorf("history: %v", err)
	}
	return out
}

// After a start while Consul is away operators are told of objects and their history what they were
// told before it. Nothing is written. When Consul is back it goes on as if it had been there.
func TestColdObjects(t *testing.T) {
	t.Parallel()
	s, kept, link := written(t)
	want := operate(t, s.open(t))
	if len(want.Objects) != 2 || len(want.Past.Revisions) != 4 {
		t.Fatalf("there are %d objects and %d revisions", len(want.Objects), len(want.Past.Revisions))
	}
	link.losing(func(string, []byte) fate { return unheard })
	b, _ := s.start(t, kept)
	if d := cmp.Diff(want, operate(t, b), protocmp.Transform()); d != "" {
		t.Errorf("from the copy (-want +got):\n%s", d)
	}
	for name, change := range map[string][]config.Change{
		"an object": {{Key: configtest.Key("c"), Object: configtest.Object("c", "c.test")}}, "a deletion": {{Key: configtest.Key("a")}}, "nothing": nil,
	} {
		if _, err := b.Apply(t.Context(), change, "ann"); !errors.Is(err, ErrAway) {
			t.Errorf("apply %s: got %v, want ErrAway", name, err)
		}
	}
	link.losing(nil)
	eventually(t, "it is in touch again", func() bool { return b.Standing().Error == "" })
	if _, err := b.Put(t.Context(), configtest.Object("a", "three.test"), "ann"); err != nil {
		t.Fatal(err)
	}
	if got, all := operate(t, b), operate(t, s.open(t)); !cmp.Equal(got, all, protocmp.Transform()) ||
		len(got.Past.Revisions) != 5 {
		t.Errorf("after the outage (-another +got):\n%s", cmp.Diff(all, got, protocmp.Transform()))
	}
}

// Where Consul's state is lost an ashored that is started then has what is to be saved of it,
// objects with the rest.
func TestColdObjectsOfLost(t *testing.T) {
	t.Parallel()
	s, kept, _ := written(t)
	want := operate(t, s.open(t))
	s.kv(t, "DELETE", "?recurse", "")
	b, _ := s.start(t, kept)
	if got := operate(t, b); !cmp.Equal(want, got, protocmp.Transform()) {
		t.Errorf("from the copy (-want +got):\n%s", cmp.Diff(want, got, protocmp.Transform()))
	}
	if now := b.Standing(); !strings.Contains(now.Error, "the key "+s.prefix+"/head is gone") {
		t.Errorf("it says %+v", now)
	}
	if _, err := b.Put(t.Context(), configtest.Object("c", "c.test"), "ann"); err == nil {
		t.Error("something is written")
	}
}

// The copy follows over starts: what is written by others meanwhile, and what the history forgets,
// comes into it and goes from it.
func TestColdObjectsOfLater(t *testing.T) {
	t.Parallel()
	s, kept, link := written(t)
	s.history = 3
	c := s.open(t)
	for _, name := range []string{"d", "e"} {
		if _, err := c.Put(t.Context(), configtest.Object(name, "one.test"), "cy"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(t.Context(), configtest.Key("a"), "", "cy"); err != nil {
		t.Fatal(err)
	}
	_, end := s.start(t, kept)
	end()
	want := operate(t, c)
	link.losing(func(string, []byte) fate { return unheard })
	b, _ := s.start(t, kept)
	if got := operate(t, b); !cmp.Equal(want, got, protocmp.Transform()) {
		t.Errorf("from the copy (-want +got):\n%s", cmp.Diff(want, got, protocmp.Transform()))
	}
}

// A copy without objects, as an earlier release kept it, or with those of another place in the log
// or damaged ones, tells of records alone: which object there is it does not make up. It says so,
// is removed, and is whole after the next start with Consul.
func TestColdWithoutObjects(t *testing.T) {
	t.Parallel()
	_, whole, _ := written(t)
	var at string // the name of the one copy
	for at = range whole.contents {
	}
	for name, spoil := range map[string]func(map[string][]byte){
		"of an earlier release": func(c map[string][]byte) {
			maps.DeleteFunc(c, func(n string, _ []byte) bool {
				return n == copyWhole || strings.HasPrefix(n, copyObject) || strings.HasPrefix(n, copyPast)
			})
		},
		"written on by one": func(c map[string][]byte) {
			c[copyAbout] = bytes.Replace(c[copyAbout], []byte(`"sequence":5`), []byte(`"sequence":6`), 1)
		},
		"damaged": func(c map[string][]byte) {
			for n := range c {
				if strings.HasPrefix(n, copyObject) {
					c[n] = []byte("{")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(testconsul.Start(t, nil))
			link := newBetween(t, s.address)
			link.losing(func(string, []byte) fate { return unheard })
			s.address = link.URL
			kept := newShelf()
			c := maps.Clone(whole.contents[at])
			if spoil(c); len(c) == len(whole.contents[at]) && cmp.Equal(c, whole.contents[at]) {
				t.Fatalf("it is not spoiled: %q", c[copyAbout])
			}
			kept.contents[copyName(s.config(t, kept).Options)] = c
			b, err := Open(context.Background(), s.config(t, kept))
			if err != nil {
				t.Fatal(err)
			}
			if got := valueOf(t, b, "revoked"); got != "mallory" {
				t.Errorf("read %q from the copy", got)
			}
			_, lists := b.List(t.Context(), "", "")
			_, past := b.History(t.Context(), config.Query{})
			for _, err := range []error{lists, past} {
				if !errors.Is(err, ErrUnread) || !strings.Contains(err.Error(),
					"copy") || !strings.Contains(err.Error(), "store.address") {
					t.Errorf("got %v, want that the copy has none", err)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
