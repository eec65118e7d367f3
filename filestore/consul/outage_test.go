package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// A write whose answer is lost is done once, and is not said to have failed.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	other := s.open(t)
	way := newBetween(t, s.address)
	s.address = way.URL
	a := s.open(t)
	var n, lost atomic.Int64
	way.losing(func(path string, body []byte) fate {
		if path != "/v1/txn" || !bytes.Contains(body, []byte(`"set"`)) && !bytes.Contains(body, []byte(`"cas"`)) {
			return passes
		}
		switch n.Add(1) % 4 {
		case 0:
			lost.Add(1)
			return unanswered
		case 2:
			return unheard
		}
		return passes
	})
	const writers, turns = 3, 12
	var wg sync.WaitGroup
	for i := range writers {
		r := a
		if i == 0 {
			r = other
		}
		wg.Go(func() {
			for range turns {
				if err := addOne(t.Context(), r.Records()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	way.losing(nil)
	if got := valueOf(t, a, "count"); got != fmt.Sprint(writers*turns) {
		t.Errorf("%d were added, and the count is %s", writers*turns, got)
	}
	if lost.Load() == 0 {
		t.Error("no answer was lost: the test shows nothing")
	}
	equalStates(t, a.state.Load(), fresh(t, other))
}

func fresh(t *testing.T, s *Store) *state {
	t.Helper()
	if err := s.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.state.Load()
}

// addOne adds one to a count, again after a conflict.
func addOne(ctx context.Context, s record.Store) error {
	for {
		r, err := s.Get(ctx, record.Key{Table: "t", Name: "count"})
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(r.Value))
		err = s.Commit(ctx, record.Write{Key: r.Key, Value: strconv.AppendInt(nil, int64(n+1), 10), Version: r.Version})
		if !errors.Is(err, record.ErrConflict) {
			return err
		}
	}
}

// While Consul is away reads go on from memory, and writes fail and say why; then everything goes
// on.
func TestAway(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := newSite(agent)
	a := s.open(t)
	put(t, a, "x", "1")
	if _, err := a.Put(t.Context(), configtest.Object("o", "one.test"), "test"); err != nil {
		t.Fatal(err)
	}
	agent.Kill()
	err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"}, Value: []byte("2")})
	if err == nil || !strings.Contains(err.Error(), "store.address") || !strings.Contains(err.Error(), "does it run") {
		t.Errorf("write: got %v, want an error that names the setting", err)
	}
	if got := valueOf(t, a, "x"); got != "1" {
		t.Errorf("read %q from memory", got)
	}
	if o, err := a.Get(t.Context(), configtest.Key("o")); err != nil || o == nil {
		t.Errorf("got %v, %v", o, err)
	}
	eventually(t, "the standing tells it", func() bool { return strings.Contains(a.Standing().Error, "store.address") })
	follower := a.Records().(record.Follower)
	if err := follower.Behind(); err == nil || !strings.Contains(err.Error(), "store.address") {
		t.Errorf("its records are behind by %v, want an error that names the setting", err)
	}
	if _, err := a.Put(t.Context(), configtest.Object("p", "one.test"), "test"); !errors.Is(err, ErrAway) {
		t.Errorf("put: got %v, want ErrAway", err)
	}
	agent.Start()
	eventually(t, "it is in touch again", func() bool { return a.Standing().Error == "" })
	if err := follower.Behind(); err != nil {
		t.Errorf("its records are behind still: %v", err)
	}
	put(t, a, "y", "3")
	if got := valueOf(t, s.open(t), "y"); got != "3" {
		t.Errorf("another replica reads %q", got)
	}
}

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
	if _, err := a.Put(t.Context(), configtest.Object("o", "one.test"), "test"); err != nil {
		t.Fatal(err)
	}
	end()
	agent.Kill()

	empty := s.config(t, newShelf())
	empty.Patience = time.Second
	if _, err := Open(t.Context(), empty); err == nil || !strings.Contains(err.Error(),
		"store.address") || !strings.Contains(err.Error(), "nothing stands in") {
		t.Errorf("a start without a copy: got %v", err)
	}
	old := s.config(t, kept)
	old.Options.MaxAge = time.Nanosecond
	if _, err := Open(t.Context(), old); err == nil || !strings.Contains(err.Error(), "store.maxAge") {
		t.Errorf("a start with a copy that is too old: got %v", err)
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
	out := follow(t, b)
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
		eventually(t, "it is told", func() bool { return strings.Contains(a.CopyTrouble().Error, "no space left") })
		if since := a.CopyTrouble().Since; since.Before(before) {
			t.Errorf("it is said to be since %v, and began after %v", since, before)
		}
		kept.fill(false)
		eventually(t, "it is well again", func() bool { return a.CopyTrouble() == config.Outage{} })
	}
	end()
	for _, text := range []string{"cannot save: a restart would use older content: what=\"copy of the store in Consul\"", "saved again: what=\"copy of the store in Consul\""} {
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
			"start ashored again")
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

// follow runs the feed of a store and returns its batches.
func follow(t *testing.T, s *Store) <-chan feed.Batch[*config.Object] {
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

func next(t *testing.T, out <-chan feed.Batch[*config.Object]) feed.Batch[*config.Object] {
	t.Helper()
	select {
	case b := <-out:
		return b
	case <-time.After(40 * time.Second):
		t.Fatal("the feed says nothing")
	}
	panic("not reached")
}

// When Consul's state is brought back to an earlier one, every replica goes by that: there are no
// two pasts, versions and revisions of the lost time do not come back, and what was not touched
// stays the same in memory.
func TestRestored(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := newSite(agent)
	a, b := s.open(t), s.open(t)
	put(t, a, "x", "1")
	if _, err := a.Put(t.Context(), configtest.Object("o", "one.test"), "test"); err != nil {
		t.Fatal(err)
	}
	snapshot := s.snapshot(t)
	kept := fresh(t, b).objects.At(configtest.Key("o"))
	put(t, a, "x", "2")
	put(t, a, "y", "2")
	lost, err := a.Put(t.Context(), configtest.Object("p", "lost.test"), "test")
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.Records().Get(t.Context(), record.Key{Table: "t", Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, b)
	asleep, err := Open(t.Context(), s.config(t, newShelf()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := asleep.Close(); err != nil {
			t.Error(err)
		}
	}()
	s.restore(t, snapshot)
	// a learns of it by writing, b by waiting or reading, and asleep when there is already more
	// than it knew
	put(t, a, "x", "3")
	if err := a.Records().Commit(t.Context(), record.Write{Key: r.Key, Value: []byte("4"),
		Version: r.Version}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("a write over a version of the lost time: got %v, want ErrConflict", err)
	}
	for range 6 {
		put(t, a, "z", "3")
	}
	equalStates(t, fresh(t, a), fresh(t, asleep))
	for name, want := range map[string]string{"x": "3", "y": "", "z": "3"} {
		eventually(t, "both go by what Consul holds", func() bool {
			return valueOf(t, a, name) == want &&
				valueOf(t, b, name) == want
		})
	}
	equalStates(t, fresh(t, a), fresh(t, b))
	if got := b.state.Load().objects.At(configtest.Key("o")); got != kept {
		t.Error("an object that did not change has another pointer")
	}
	again, err := a.Put(t.Context(), configtest.Object("q", "new.test"), "test")
	if err != nil {
		t.Fatal(err)
	}
	if was, is := number(t, lost.Revision), number(t, again.Revision); is <= was {
		t.Errorf("revision %d comes after %d of the lost time", is, was)
	}
}

// A restoration that happens while a replica is stopped is told when it starts, whether others have
// written since or not; a start by itself tells of none.
func TestRestoredWhileDown(t *testing.T) {
	t.Parallel()
	const told = "as after a restoration"
	for name, c := range map[string]struct {
		lost, since int // writes that are lost, and those after the restoration
		restore     bool
		compact     bool // what was written since is in two snapshots
		want        int
	}{
		"stopped":                {lost: 3},
		"others wrote":           {since: 3},
		"others wrote much":      {since: 3, compact: true},
		"restored":               {lost: 3, restore: true, want: 1},
		"as many written since":  {lost: 3, since: 3, restore: true, want: 1},
		"more written since":     {lost: 3, since: 8, restore: true, want: 1},
		"nothing lost":           {restore: true},
		"nothing lost, and more": {since: 2, restore: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(testconsul.Start(t, nil))
			kept := newShelf()
			a, end := s.start(t, kept)
			put(t, a, "x", "1")
			snapshot := s.snapshot(t)
			for i := range c.lost {
				put(t, a, "x", fmt.Sprint("lost", i))
			}
			end()
			if c.restore {
				s.restore(t, snapshot)
			}
			other := s.open(t)
			for i := range c.since {
				put(t, other, "y", fmt.Sprint(i))
				if c.compact {
					if _, err := other.snapshot(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			var said bytes.Buffer
			s.log = hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Info})
			a, end = s.start(t, kept)
			want := "1"
			if !c.restore && c.lost > 0 {
				want = fmt.Sprint("lost", c.lost-1)
			}
			if got := valueOf(t, a, "x"); got != want {
				t.Errorf("read %q, want %q", got, want)
			}
			equalStates(t, fresh(t, other), fresh(t, a))
			end()
			if got := strings.Count(said.String(), told); got != c.want {
				t.Errorf("it is told %d times, want %d:\n%s", got, c.want, said.String())
			}
		})
	}
}

// snapshot is Consul's whole state, and restore brings one back.
func (s site) snapshot(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address+"/v1/snapshot", nil)
	if err != nil {
		t.Fatal(err)
	}
	return ask(t, req)
}

func (s site) restore(t *testing.T, snapshot string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.address+"/v1/snapshot",
		strings.NewReader(snapshot))
	if err != nil {
		t.Fatal(err)
	}
	if said := ask(t, req); said != "" {
		t.Fatalf("restore: %s", said)
	}
}

func number(t *testing.T, revision string) uint64 {
	t.Helper()
	n, err := config.ParseRevision(revision)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What somebody does to the keys by hand is told with the key, and changes nothing of what is
// known; once it is mended everything goes on.
func TestDamage(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a := s.open(t)
	put(t, a, "x", "1")
	head := s.kv(t, "GET", "head", "")
	for what, c := range map[string]struct {
		method, value string
		want          []string
	}{
		"nonsense":            {"PUT", "nonsense", []string{s.prefix + "/head"}},
		"nothing":             {"PUT", "", []string{s.prefix + "/head"}},
		"an older format":     {"PUT", strings.Replace(head, `"format":3`, `"format":2`, 1), []string{s.prefix + "/head", "another release"}},
		"a newer format":      {"PUT", strings.Replace(head, `"format":3`, `"format":4`, 1), []string{s.prefix + "/head", "another release"}},
		"a field of tomorrow": {"PUT", strings.Replace(head, `"format":3`, `"format":3,"more":1`, 1), []string{s.prefix + "/head", "more"}},
		"gone":                {"DELETE", "", []string{s.prefix + "/head", "store.prefix"}},
		"an entry to come":    {"PUT", strings.Replace(head, `"sequence":1`, `"sequence":9`, 1), []string{s.prefix + "/entry/0000000000000002"}},
		"another log":         {"PUT", strings.Replace(head, `"log":"`, `"log":"other`, 1), []string{"another store"}},
	} {
		s.kv(t, c.method, "head", c.value)
		eventually(t, what, func() bool { return a.Standing().Error != "" })
		for _, want := range c.want {
			if got := a.Standing().Error; !strings.Contains(got, want) {
				t.Errorf("%s: it says %q, want %q in it", what, got, want)
			}
		}
		if got := valueOf(t, a, "x"); got != "1" {
			t.Errorf("%s: it reads %q", what, got)
		}
		if err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"},
			Value: []byte("2")}); err == nil {
			t.Errorf("%s: it writes", what)
		}
		s.kv(t, "PUT", "head", head)
		eventually(t, what+", and mended", func() bool { return a.Standing().Error == "" })
	}
	tip := "tip/" + a.state.Load().Entry
	s.kv(t, "DELETE", tip, "")
	if err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"},
		Value: []byte("2")}); !errors.Is(err, ErrAway) || !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), tip) {
		t.Errorf("a write without the tip: got %v, want an error that names it and says that nothing was written", err)
	}
	if got := a.Standing().Error; !strings.Contains(got, tip) {
		t.Errorf("after a write without the tip it says %q", got)
	}
	s.kv(t, "PUT", tip, "1")
	put(t, a, "y", "3")
	entry := s.kv(t, "GET", "entry/0000000000000002", "")
	s.kv(t, "PUT", "entry/0000000000000002", entry[:len(entry)-5]+"x"+entry[len(entry)-4:])
	if _, err := Open(t.Context(), s.config(t, newShelf())); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "entry/0000000000000002") {
		t.Errorf("a start with a damaged entry: got %v, want an error that names it", err)
	}
}

// Who puts an older value back into the head alone is told of it at once, also by a replica that
// starts: what is known stays, and nothing is written until the key is mended.
func TestHeadPutBack(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	shelf := newShelf()
	a, _ := s.start(t, shelf)
	put(t, a, "x", "1")
	old, tip := s.kv(t, "GET", "head", ""), s.prefix+"/tip/"+a.state.Load().Entry
	put(t, a, "x", "2")
	copied := newShelf()
	_, end := s.start(t, copied)
	end()
	newest := s.kv(t, "GET", "head", "")
	s.kv(t, "PUT", "head", old)
	stale := func(what string, replica *Store, value string) {
		t.Helper()
		eventually(t, what, func() bool { return strings.Contains(replica.Standing().Error, tip) })
		if got := valueOf(t, replica, "x"); got != value {
			t.Errorf("%s: it reads %q, want %q", what, got, value)
		}
		err := replica.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"},
			Value: []byte("2")})
		if !errors.Is(err, ErrAway) || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tip) {
			t.Errorf("%s: a write: got %v, want that nothing was written, and the key", what, err)
		}
	}
	stale("who runs", a, "2")
	b := s.open(t)
	stale("who starts", b, "1")
	c, _ := s.start(t, copied)
	stale("who starts with a copy", c, "2")
	s.kv(t, "PUT", "head", newest)
	for _, replica := range []*Store{a, b, c} {
		eventually(t, "mended", func() bool {
			return replica.Standing().Error == "" &&
				valueOf(t, replica, "x") == "2"
		})
	}
	put(t, b, "y", "3")
}

// A token that may not write is told, with what it needs; another one in its file is used at once.
// All of it over TLS.
func TestToken(t *testing.T) {
	t.Parallel()
	const good, bad = "8c4c4a1e-0000-4000-8000-000000000001", "8c4c4a1e-0000-4000-8000-000000000002"
	agent := testconsul.New(t, map[string]any{"acl": map[string]any{"enabled": true, "default_policy": "deny",
		"tokens": map[string]any{"initial_management": good}}})
	agent.Start()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(agent)
	s.address, s.token, s.ca = "https://"+agent.Secure, file, agent.CAFile
	write(bad)
	c := s.config(t, newShelf())
	c.Patience = time.Second
	_, err := Open(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("an unknown token: got %v", err)
	}
	c.Options.TokenFile = ""
	if _, err = Open(t.Context(), c); err == nil || !strings.Contains(err.Error(),
		"key_prefix") || !strings.Contains(err.Error(), "store.tokenFile") {
		t.Errorf("no token: got %v, want what it needs", err)
	}
	write(good)
	a := s.open(t)
	put(t, a, "x", "1")
	write(bad)
	if err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"},
		Value: []byte("2")}); !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "store.tokenFile") {
		t.Errorf("with a token that is not known any more: got %v", err)
	}
	write(good)
	eventually(t, "the new token is used", func() bool { return a.Standing().Error == "" })
	put(t, a, "y", "3")

	// a token that may only read
	const reader = "8c4c4a1e-0000-4000-8000-000000000003"
	for _, made := range [][2]string{
		{"/v1/acl/policy", `{"Name":"reader","Rules":"key_prefix \"\" { policy = \"read\" }"}`},
		{"/v1/acl/token", `{"SecretID":"` + reader + `","Policies":[{"Name":"reader"}]}`},
	} {
		path, body := made[0], made[1]
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+agent.Address+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Consul-Token", good)
		if said := ask(t, req); !strings.Contains(said, `"Name"`) && !strings.Contains(said, reader) {
			t.Fatal(said)
		}
	}
	write(reader)
	if err := a.Records().Commit(t.Context(), record.Write{Key: record.Key{Table: "t", Name: "y"}, Value: []byte("4"),
		Version: record.Any}); !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "store.tokenFile") {
		t.Errorf("with a token that may only read: got %v", err)
	}
	if _, err := a.Put(t.Context(), largeObject(), "test"); !errors.Is(err, ErrAway) ||
		!strings.Contains(err.Error(), "store.tokenFile") {
		t.Errorf("a large object with a token that may only read: got %v", err)
	}
	if why := a.Refused(); a.Standing().Error != "" || !strings.Contains(why.Error, "403") {
		t.Errorf("with a token that may only read it is out of touch: %q, and is not refused: %q", a.Standing().Error,
			why.Error)
	}
}

// A token that may only read is one lasting trouble: what Consul holds is known all the time, and
// it is logged once when nothing can be written and once when that is over.
func TestTokenThatReads(t *testing.T) {
	t.Parallel()
	agent := testconsul.Start(t, nil)
	s := newSite(agent)
	other := s.open(t)
	way := newBetween(t, s.address)
	var said bytes.Buffer
	s.address, s.log = way.URL, hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Info})
	a, end := s.start(t, newShelf())
	put(t, a, "x", "1")
	way.losing(func(path string, body []byte) fate {
		if path == "/v1/txn" && bytes.Contains(body, []byte(`"cas"`)) {
			return forbidden
		}
		return passes
	})
	for i := range 4 {
		key := record.Key{Table: "t", Name: fmt.Sprint("y", i)}
		if err := a.Records().Commit(t.Context(), record.Write{Key: key, Value: []byte("2")}); !errors.Is(err,
			ErrAway) || !strings.Contains(err.Error(), "store.tokenFile") {
			t.Errorf("got %v", err)
		}
		if now := a.Standing(); now.Error != "" {
			t.Errorf("it is out of touch: %s", now.Error)
		}
		if why := a.Refused(); !strings.Contains(why.Error, "store.tokenFile") || why.Since.IsZero() {
			t.Errorf("it takes nothing: %+v", why)
		}
		put(t, other, "z", fmt.Sprint(i)) // has it read
		eventually(t, "what another replica wrote is known", func() bool { return valueOf(t, a, "z") == fmt.Sprint(i) })
	}
	way.losing(nil)
	put(t, a, "y", "3")
	if why := a.Refused(); why.Error != "" {
		t.Errorf("it takes what is written, and says %+v", why)
	}
	end()
	for text, want := range map[string]int{"takes nothing": 1, "takes what is written again": 1, "out of touch": 0,
		"in touch": 0} {
		if got := strings.Count(said.String(), text); got != want {
			t.Errorf("%q is logged %d times, want %d", text, got, want)
		}
	}
}

// largeObject is one that stands in chunks.
func largeObject() *config.Object {
	o := configtest.Object("large", "one.test")
	o.Annotations = map[string]string{"text": randomText(600 << 10)}
	return o
}
