package consul

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/config/configtest"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testconsul"
)

// What somebody does to the keys by hand is told with the key, and changes nothing of what is
// known; once it is mended everything goes on.
func TestDamage(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a := s.open(t)
	put(t, a, "x", "1")
	head := s.kv(t, "GET", "identity/head", "")
	edit := func(from, to string) string { return strings.Replace(head, from, to, 1) }
	for what, c := range map[string]struct {
		method, value string
		want          []string
	}{
		"nonsense":         {"PUT", "nonsense", []string{"/identity/head"}},
		"nothing":          {"PUT", "", []string{"/identity/head"}},
		"an older format":  {"PUT", edit(`"format":5`, `"format":4`), []string{"/identity/head", "another release"}},
		"a newer format":   {"PUT", edit(`"format":5`, `"format":6`), []string{"/identity/head", "another release"}},
		"gone":             {"DELETE", "", []string{"/identity/head", "store.prefix"}},
		"an entry to come": {"PUT", edit(`"revision":1`, `"revision":9`), []string{"/identity/log/0000000000000002"}},
		"another log":      {"PUT", edit(`"log":"`, `"log":"other`), []string{"another store"}},
	} {
		s.kv(t, c.method, "identity/head", c.value)
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
		s.kv(t, "PUT", "identity/head", head)
		eventually(t, what+", and mended", func() bool { return a.Standing().Error == "" })
	}
}

// Whatever happens to one of the keys, a replica that starts then knows all of it as it was, or
// refuses to know anything and says which key it is; nothing in between.
func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a := s.open(t)
	for i := range 10 {
		o := configtest.Object(fmt.Sprint("o", i), "one.test")
		if i%4 == 0 {
			o.Annotations = map[string]string{"text": randomText(500 << 10)}
		}
		if _, err := configtest.Put(t.Context(), a, o, "test"); err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			if err := a.config.snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := a.config.state.Load().items()
	var keys []string
	if err := json.Unmarshal([]byte(s.kv(t, http.MethodGet, "?keys", "")), &keys); err != nil {
		t.Fatal(err)
	}
	const tries = 30
	// without the head a new replica begins an empty store, and cannot write to it
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, "/head") })
	random := rand.New(rand.NewPCG(3, 4))
	refused := 0
	for range tries {
		key := strings.TrimPrefix(keys[random.IntN(len(keys))], s.prefix+"/")
		value := s.kv(t, http.MethodGet, key, "")
		how := damage(t, s, random, key, value)
		other, err := Open(t.Context(), s.config(t, newShelf()))
		switch {
		case err == nil:
			if !slices.EqualFunc(other.config.state.Load().items(), want, equalItems) {
				t.Errorf("%s of %s: it knows something else", how, key)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, ErrDamaged) && !errors.Is(err, errFormat) || !strings.Contains(err.Error(), s.prefix+"/"):
			t.Errorf("%s of %s: got %v, want an error that names a key", how, key, err)
		default:
			refused++
		}
		s.kv(t, http.MethodPut, key, value)
	}
	if refused < tries/3 {
		t.Errorf("only %d of %d were noticed: the test shows little", refused, tries)
	}
}

// damage does something to a key, and says what.
func damage(t *testing.T, s site, random *rand.Rand, key, value string) string {
	t.Helper()
	b := []byte(value)
	switch random.IntN(4) {
	case 0:
		s.kv(t, http.MethodDelete, key, "")
		return "the loss"
	case 1:
		s.kv(t, http.MethodPut, key, value[:random.IntN(len(value))])
		return "a part"
	case 2:
		b[random.IntN(len(b))] ^= byte(1 + random.IntN(255))
	case 3:
		at := random.IntN(len(b))
		b = append(b[:at:at], append([]byte("0x\"}"), b[at:]...)...)
	}
	s.kv(t, http.MethodPut, key, string(b))
	return "a change"
}

// After Consul was restored from a snapshot, every replica has what Consul has, and writes go on.
// Versions of the lost time do not come back, and what did not change keeps its pointer.
func TestRestored(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a, b := s.open(t), s.open(t)
	put(t, a, "x", "1")
	if _, err := configtest.Put(t.Context(), a, configtest.Object("o", "one.test"), "test"); err != nil {
		t.Fatal(err)
	}
	snapshot := s.snapshot(t)
	kept, err := b.Get(t.Context(), configtest.Key("o"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, a, "x", "2")
	put(t, a, "y", "2")
	if _, err := configtest.Put(t.Context(), a, configtest.Object("lost", "lost.test"), "test"); err != nil {
		t.Fatal(err)
	}
	lost, err := a.Records().Get(t.Context(), record.Key{Table: "t", Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if got := valueOf(t, b, "y"); got != "2" {
		t.Fatalf("read %q", got)
	}
	asleep, err := Open(t.Context(), s.config(t, newShelf()))
	if err != nil {
		t.Fatal(err)
	}
	defer asleep.Close() //nolint:errcheck // it returns none
	s.restore(t, snapshot)
	// a learns of it by writing, b by waiting or reading, and asleep when there is more than it knew
	put(t, a, "x", "3")
	if err := a.Records().Commit(t.Context(), record.Write{Key: lost.Key, Value: []byte("4"),
		Version: lost.Version}); !errors.Is(err, record.ErrConflict) {
		t.Errorf("a write over a version of the lost time: got %v, want ErrConflict", err)
	}
	for range 6 {
		put(t, a, "z", "3")
	}
	for name, want := range map[string]string{"x": "3", "y": "", "z": "3"} {
		for _, r := range []*Store{a, b} {
			if got := valueOf(t, r, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
	if got, err := b.Get(t.Context(), configtest.Key("o")); err != nil || got != kept {
		t.Errorf("an object that did not change has another pointer: %v", err)
	}
	if _, err := b.Get(t.Context(), configtest.Key("lost")); !errors.Is(err, config.ErrNotFound) {
		t.Errorf("the lost object: got %v, want ErrNotFound", err)
	}
	equalStates(t, a, b)
	equalStates(t, a, asleep)
}

// Objects that are lost with the state of Consul are not deletions that somebody asked for.
func TestRestoredFeed(t *testing.T) {
	t.Parallel()
	s := newSite(testconsul.Start(t, nil))
	a := s.open(t)
	put(t, a, "x", "1")
	if _, err := configtest.Put(t.Context(), a, configtest.Object("o", "one.test"), "test"); err != nil {
		t.Fatal(err)
	}
	snapshot := s.snapshot(t)
	if _, err := configtest.Put(t.Context(), a, configtest.Object("lost", "lost.test"), "test"); err != nil {
		t.Fatal(err)
	}
	out := runFeed(t, a)
	next(t, out)
	s.restore(t, snapshot)
	for {
		b := next(t, out)
		if b.Explicit {
			t.Errorf("a batch is explicit: %+v", b)
		}
		if len(b.Updates) > 0 {
			if len(b.Updates) > 1 || len(b.Updates[0].Items) > 0 {
				t.Errorf("got %+v, want the lost object alone", b)
			}
			return
		}
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
