package consul

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// A replica that starts while Consul is away knows what it knew before, and says nothing as a
// source: what is in use is what was kept around it. It is whole once Consul is back.
func TestColdStart(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := newSite(agent)
	kept := newShelf()
	a, end := s.start(t, kept)
	put(t, a, "revoked", "mallory")
	put(t, a, "gone", "x")
	if err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "gone"},
		Version: record.Any}); err != nil {
		t.Fatal(err)
	}
	if _, err := configtest.Put(t.Context(), a, configtest.Object("o", "one.test"), "test"); err != nil {
		t.Fatal(err)
	}
	end()
	agent.Kill()

	empty := s.config(t, newShelf())
	empty.Patience = time.Second
	if _, err := Open(t.Context(), empty); err == nil || !strings.Contains(err.Error(),
		"store.address") || !strings.Contains(err.Error(), "no copy") {
		t.Errorf("a start without a copy: got %v", err)
	}
	b, _ := s.start(t, kept)
	if got := valueOf(t, b, "revoked"); got != "mallory" {
		t.Errorf("read %q from the copy", got)
	}
	if got := valueOf(t, b, "gone"); got != "" {
		t.Errorf("what was deleted is %q in the copy", got)
	}
	if o, err := b.Get(t.Context(), configtest.Key("o")); err != nil || o == nil {
		t.Errorf("get: got %v, %v from the copy", o, err)
	}
	out := runFeed(t, b)
	if batch := next(t, out); batch.Full || len(batch.Updates) > 0 || batch.Down == nil {
		t.Errorf("it says %+v of what it does not know", batch)
	}
	agent.Start()
	for {
		if batch := next(t, out); batch.Full {
			if len(batch.Updates) != 1 {
				t.Errorf("it says %+v", batch)
			}
			break
		}
	}
	put(t, b, "after", "1")
}

// While Consul is down, each read and each write is answered at once: Consul is not asked for each.
func TestColdStartAsksOnce(t *testing.T) {
	t.Parallel()
	s, kept, link := written(t)
	var asked atomic.Int64
	link.losing(func(string, []byte) fate { asked.Add(1); return unheard })
	b, err := Open(t.Context(), s.config(t, kept))
	if err != nil {
		t.Fatal(err)
	}
	before := asked.Load()
	for range 20 {
		if got := valueOf(t, b, "revoked"); got != "mallory" {
			t.Fatalf("read %q from the copy", got)
		}
		err := b.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "x"}, Value: []byte("y")})
		if !errors.Is(err, ErrAway) {
			t.Fatalf("a write: got %v, want ErrAway", err)
		}
	}
	if n := asked.Load() - before; n > 0 {
		t.Errorf("Consul was asked %d times", n)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A copy that cannot be kept is told of while that lasts, as a start would go by an older one,
// which lacks the latest revocations: once when it begins, and once when it is over.
func TestCopyTrouble(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	var said bytes.Buffer
	s.log = hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Info})
	kept := newShelf()
	a, end := s.start(t, kept)
	put(t, a, "x", "1")
	for range 2 {
		before := time.Now()
		kept.fill(true)
		put(t, a, "x", "2")
		eventually(t, "it is told", func() bool { _, err := a.identity.copy.Err(); return err != nil })
		if now := a.CopyTrouble(); now.Since.Before(before) || !strings.Contains(now.Error, "no space left") {
			t.Errorf("got %+v, want one that began after %v", now, before)
		}
		kept.fill(false)
		eventually(t, "it is well again", func() bool { return a.CopyTrouble() == config.Outage{} })
	}
	end()
	const what = "what=\"copy of the store in Consul: identity\""
	for _, text := range []string{"cannot save: a restart would use older content: " + what, "saved again: " + what} {
		if n := strings.Count(said.String(), text); n != 2 {
			t.Errorf("%q is logged %d times, want 2:\n%s", text, n, said.String())
		}
	}
}

// Who began with a copy, as Consul was away, runs: it does not take another log, which somebody
// began meanwhile, for its own. The next start does.
func TestColdStartBesideAnother(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	kept := newShelf()
	way := newBetween(t, s.address)
	b := s
	b.address = way.URL
	a, end := b.start(t, kept)
	put(t, a, "x", "mine")
	end()
	way.losing(func(string, []byte) fate { return unheard })
	r, end := b.start(t, kept)
	s.kv(t, "DELETE", "?recurse", "")
	put(t, s.open(t), "x", "another's")
	way.losing(nil)
	eventually(t, "it is in touch again", func() bool {
		return strings.Contains(r.Standing().Error,
			"restart ashored")
	})
	if got := valueOf(t, r, "x"); got != "mine" {
		t.Errorf("read %q", got)
	}
	end()
	r, _ = b.start(t, kept)
	if got := valueOf(t, r, "x"); got != "another's" {
		t.Errorf("after the next start: read %q", got)
	}
}

// Who goes by other settings to another Consul, which is away, does not begin with what the first
// one had; that is another mesh's, say.
func TestCopyOfAnother(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	kept := newShelf()
	a, end := s.start(t, kept)
	put(t, a, "revoked", "mallory")
	end()
	away := newBetween(t, s.address)
	away.losing(func(string, []byte) fate { return unheard })
	s.address = away.URL
	c := s.config(t, kept)
	c.Patience = time.Second
	if b, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no copy") {
		t.Errorf("got %v, want that nothing stands in", err)
		if err == nil {
			t.Errorf("it reads %q", valueOf(t, b, "revoked"))
		}
	}
}

// Stores at different places have different names, and copies.
func TestPlaces(t *testing.T) {
	t.Parallel()
	names := map[string]Options{}
	for _, o := range []Options{
		{Prefix: "a"},
		{Prefix: "a", Address: "https://127.0.0.1:8500"},
		{Prefix: "a", Address: "http://consul.example:8500"},
		{Prefix: "a", Address: "unix:///run/consul.sock"},
		{Prefix: "b"},
	} {
		if other, twice := names[copySet(o, "config")]; twice {
			t.Errorf("%+v and %+v have one copy, %s", other, o, copySet(o, "config"))
		}
		names[copySet(o, "config")] = o
	}
	s := &Store{cfg: Config{Options: Options{Prefix: "ashore/cluster.local", Address: "https://a.test"}}}
	if got := s.Place(); got != "ashore/cluster.local@https://a.test" {
		t.Errorf("it is called %q", got)
	}
}

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
		if _, err := configtest.Put(t.Context(), a, configtest.Object(name, "one.test"), "ann"); err != nil {
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

// operated is what operators see of a store.
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
		"an object":  {{Key: configtest.Key("c"), Object: configtest.Object("c", "c.test")}},
		"a deletion": {{Key: configtest.Key("a")}},
		"nothing":    nil,
	} {
		if _, err := b.Apply(t.Context(), change, "ann"); !errors.Is(err, ErrAway) {
			t.Errorf("apply %s: got %v, want ErrAway", name, err)
		}
	}
	link.losing(nil)
	eventually(t, "it is in touch again", func() bool { return b.Standing().Error == "" })
	if _, err := configtest.Put(t.Context(), b, configtest.Object("a", "three.test"), "ann"); err != nil {
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
	if now := b.Standing(); !strings.Contains(now.Error, "the key "+s.prefix+"/config/head is gone") {
		t.Errorf("it says %+v", now)
	}
	if _, err := configtest.Put(t.Context(), b, configtest.Object("c", "c.test"), "ann"); err == nil {
		t.Error("something is written")
	}
}

// The copy is said to be up to date at least every minute, so that its age is that of the outage
// and not of the last change. One that is damaged is not used.
func TestCopyAge(t *testing.T) {
	t.Parallel()
	s, kept, link := written(t)
	set := copySet(s.config(t, kept).Options, "config")
	var about aboutCopy
	if err := json.Unmarshal(kept.contents[set][copyAbout], &about); err != nil {
		t.Fatal(err)
	}
	about.AsOf = about.AsOf.Add(-time.Hour)
	old, err := json.Marshal(about)
	if err != nil {
		t.Fatal(err)
	}
	kept.contents[set][copyAbout] = old
	link.losing(func(string, []byte) fate { return unheard })
	b, end := s.start(t, kept)
	if since := b.Standing().Since; !since.Equal(about.AsOf) {
		t.Errorf("the outage began at %s, want the age of the copy, %s", since, about.AsOf)
	}
	end()
	link.losing(nil)
	_, end = s.start(t, kept)
	end()
	if err := json.Unmarshal(kept.contents[set][copyAbout], &about); err != nil {
		t.Fatal(err)
	}
	if age := time.Since(about.AsOf); age > time.Minute {
		t.Errorf("after a start with Consul the copy is %s old", age)
	}
	for name := range kept.contents[set] {
		if name != copyAbout {
			kept.contents[set][name] = []byte("{")
		}
	}
	link.losing(func(string, []byte) fate { return unheard })
	c := s.config(t, kept)
	c.Patience = time.Second
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no copy") {
		t.Errorf("with a damaged copy: got %v", err)
	}
}
