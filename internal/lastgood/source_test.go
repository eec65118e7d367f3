package lastgood

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// memory is a Store in memory; it fails while full is set.
type memory struct {
	mu     sync.Mutex
	all    map[string][]byte
	full   bool
	room   int // for one content, in bytes; 0: any
	writes int
}

func (m *memory) LoadLastGood(context.Context, string) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.all), nil
}

func (m *memory) SaveLastGood(_ context.Context, _ string, contents map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range contents {
		if m.full || m.room > 0 && len(b) > m.room {
			return errors.New("no space left on device")
		}
	}
	m.writes++
	for name, b := range contents {
		if b == nil {
			delete(m.all, name)
		} else {
			m.all[name] = b
		}
	}
	return nil
}

func (m *memory) written() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

func (m *memory) set(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

// script is a source that says what it is told to.
type script struct{ says chan feed.Batch[string] }

func (s *script) Name() string { return "test" }

func (s *script) Run(ctx context.Context, out chan<- feed.Batch[string]) error {
	for {
		select {
		case b := <-s.says:
			select {
			case out <- b:
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// life is one run of a Source on a store.
type life struct {
	t      *testing.T
	script *script
	merged *feed.Merger[string, string]
	mu     sync.Mutex
	went   []string // what batches said was there before; guarded by mu
	end    func()
}

func begin(t *testing.T, m *memory, cfg Config[string]) *life {
	t.Helper()
	l := &life{t: t, script: &script{make(chan feed.Batch[string])}, merged: feed.NewMerger([]string{"test"}, func(s string) string { return s })}
	cfg.Source, cfg.Store = l.script, m
	cfg.Encode = func(items []string) ([]byte, error) { return json.Marshal(items) }
	cfg.Decode = func(b []byte) (items []string, err error) { return items, json.Unmarshal(b, &items) }
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan feed.Batch[string]), make(chan error, 2)
	go func() { done <- New(cfg).Run(ctx, out) }()
	go func() {
		for {
			select {
			case b := <-out:
				l.mu.Lock()
				l.merged.Apply(b, time.Now())
				for _, u := range b.Updates {
					l.went = append(l.went, u.Was...)
				}
				l.mu.Unlock()
			case <-ctx.Done():
				done <- nil
				return
			}
		}
	}()
	l.end = func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	return l
}

func (l *life) says(b feed.Batch[string]) {
	b.Source = "test"
	l.script.says <- b
	synctest.Wait()
}

// has compares what the merger has with wanted items, and returns how the source stands.
func (l *life) has(synced bool, want ...string) feed.SourceStatus {
	l.t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.merged.Sources()[0]
	if got.Synced != synced || got.Items != len(want) {
		l.t.Errorf("synced %v with %d items, want %v with %v", got.Synced, got.Items, synced, want)
	}
	for _, w := range want {
		if !cmp.Equal(l.merged.Items(w), []string{w}) {
			l.t.Errorf("%s is not there", w)
		}
	}
	return got
}

// seen checks whether what is wrong with groups counts as known.
func (l *life) seen(want bool, names ...string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if got := l.merged.Seen()(feed.GroupID{Source: "test", Group: name}); got != want {
			l.t.Errorf("the group %s was seen: %v, want %v", name, got, want)
		}
	}
}

func groups(names ...string) []feed.Update[string] {
	var out []feed.Update[string]
	for _, n := range names {
		out = append(out, feed.Update[string]{Group: n, Items: []string{n}})
	}
	return out
}

var away = &feed.Standing{Error: "cannot connect"}

// What a source said stands in after a restart while it is away, at once when it says so, and is replaced when it is back.
func TestStandsIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}}
		l := begin(t, m, Config[string]{})
		l.has(false)
		l.says(feed.Batch[string]{Updates: groups("early")})
		l.says(feed.Batch[string]{Full: true, Updates: groups("a", "b", "c")})
		l.says(feed.Batch[string]{Updates: []feed.Update[string]{{Group: "b"}, {Group: "d", Items: []string{"d"}}}})
		if s := l.has(true, "a", "c", "d"); s.Error != "" {
			t.Errorf("a source in touch has the error %q", s.Error)
		}
		time.Sleep(90 * time.Second)
		l.end()
		stopped := time.Now()

		time.Sleep(time.Hour)
		l = begin(t, m, Config[string]{})
		time.Sleep(1900 * time.Millisecond)
		l.has(false)
		time.Sleep(200 * time.Millisecond)
		s := l.has(true, "a", "c", "d")
		if !strings.Contains(s.Error, "has not answered yet") || stopped.Sub(s.Since) > touchPace {
			t.Errorf("standing in: %q since %v before the end", s.Error, stopped.Sub(s.Since))
		}
		l.seen(false, "c", "never kept")
		l.says(feed.Batch[string]{Full: true, Updates: groups("a", "e")})
		if s := l.has(true, "a", "e"); s.Error != "" {
			t.Errorf("back in touch, the error is %q", s.Error)
		}
		l.seen(true, "c", "never kept")
		l.end()

		l = begin(t, m, Config[string]{})
		l.says(feed.Batch[string]{Standing: away})
		if s := l.has(true, "a", "e"); !strings.Contains(s.Error, "cannot connect; its content of") {
			t.Errorf("away at the start: %q", s.Error)
		}
		l.says(feed.Batch[string]{Full: true, Standing: &feed.Standing{Since: time.Now()}, Updates: groups("a", "e")})
		if s := l.has(true, "a", "e"); s.Error != "" || s.LastError != "cannot connect" {
			t.Errorf("back in touch, the error is %q, and before it was %q", s.Error, s.LastError)
		}
		l.end()
	})
}

// rememberer is a source that wants to know what it said.
type rememberer struct {
	script
	kept chan []feed.Update[string]
}

func (r *rememberer) Remember(kept []feed.Update[string]) { r.kept <- kept }

// A source that wants to know is told, before it runs, what it said before the start.
func TestRemember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}}
		l := begin(t, m, Config[string]{})
		l.says(feed.Batch[string]{Full: true, Updates: groups("a", "b")})
		l.end()
		r := &rememberer{script{make(chan feed.Batch[string])}, make(chan []feed.Update[string])}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- New(Config[string]{Source: r, Store: m, Decode: func(b []byte) (items []string, err error) { return items, json.Unmarshal(b, &items) }}).Run(ctx, nil)
		}()
		select {
		case r.says <- feed.Batch[string]{}:
			t.Error("it runs before it knows")
		case kept := <-r.kept:
			if len(kept) != 2 || kept[0].Group != "a" || kept[1].Items[0] != "b" {
				t.Errorf("it is told %v", kept)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The first complete state is written at once, and so is a change after a quiet spell: who is killed right after it starts from
// it. What follows within a second is one more write.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}}
		l := begin(t, m, Config[string]{})
		for spell := range 2 {
			l.says(feed.Batch[string]{Full: spell == 0, Updates: groups("a", "b")})
			if n := m.written(); n != 2*spell+1 {
				t.Errorf("spell %d: %d writes at once, want one", spell, n-2*spell)
			}
			for range 5 {
				l.says(feed.Batch[string]{Updates: groups("c")})
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if n := m.written(); n != 2*spell+2 {
				t.Errorf("spell %d: %d writes after a second, want two", spell, n-2*spell)
			}
		}
		l.end()
	})
}

// What went while nobody looked is told with the first complete state, once, unless it stood in until then.
func TestWentBeforeStart(t *testing.T) {
	t.Parallel()
	for name, stoodIn := range map[string]bool{"the source answers": false, "what was kept stands in": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &memory{all: map[string][]byte{}}
				l := begin(t, m, Config[string]{})
				l.says(feed.Batch[string]{Full: true, Updates: groups("a", "b", "c")})
				l.end()
				l = begin(t, m, Config[string]{})
				want := []string{"a", "c"}
				if stoodIn {
					l.says(feed.Batch[string]{Standing: away})
					want = nil
				}
				l.says(feed.Batch[string]{Full: true, Standing: &feed.Standing{}, Updates: groups("b", "d")})
				l.says(feed.Batch[string]{Full: true, Updates: groups("b")})
				l.has(true, "b")
				l.end()
				if !slices.Equal(l.went, want) {
					t.Errorf("gone while nobody looked are %q, want %q", l.went, want)
				}
			})
		})
	}
}

// Nothing stands in for a source that never said everything.
func TestNothingComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}}
		l := begin(t, m, Config[string]{})
		l.says(feed.Batch[string]{Updates: groups("a")})
		time.Sleep(time.Minute)
		l.end()
		l = begin(t, m, Config[string]{})
		l.says(feed.Batch[string]{Standing: away})
		time.Sleep(time.Minute)
		if s := l.has(false); s.Error != "cannot connect" {
			t.Errorf("the error is %q", s.Error)
		}
		l.end()
	})
}

// Content that is too old counts as gone, or stays and is told of, as the settings say; it is back with the source.
func TestTooOld(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := begin(t, &memory{all: map[string][]byte{}}, Config[string]{MaxAge: time.Hour, Drop: drop})
			l.says(feed.Batch[string]{Full: true, Updates: groups("a", "b")})
			time.Sleep(5 * time.Hour)
			l.has(true, "a", "b")
			l.says(feed.Batch[string]{Standing: away})
			time.Sleep(58 * time.Minute)
			l.has(true, "a", "b")
			time.Sleep(3 * time.Minute)
			want := []string{"a", "b"}
			if drop {
				want = nil
			}
			if s := l.has(true, want...); !strings.Contains(s.Error, "older than the setting maxAge (1h0m0s)") {
				t.Errorf("too old: %q", s.Error)
			}
			l.says(feed.Batch[string]{Updates: groups("c"), Standing: &feed.Standing{Since: time.Now()}})
			if s := l.has(true, "a", "b", "c"); s.Error != "" {
				t.Errorf("back in touch: %q", s.Error)
			}
			l.end()
		})
	}
}

// The age counts from when the outage began, by what the source says of that, however long it had nothing to say before; a
// start after it counts from the same moment, and one after the outage from when that was over.
func TestAgeOfOutage(t *testing.T) {
	t.Parallel()
	for _, noticed := range []time.Duration{0, 3 * time.Second} { // from the beginning of the outage
		synctest.Test(t, func(t *testing.T) {
			m, cfg := &memory{all: map[string][]byte{}}, Config[string]{MaxAge: 15 * time.Second, Drop: true}
			l := begin(t, m, cfg)
			l.says(feed.Batch[string]{Full: true, Updates: groups("a")})
			time.Sleep(time.Hour + 50*time.Second)
			if s := l.has(true, "a"); !s.StaleSince().IsZero() {
				t.Errorf("in touch, it is of %v", s.StaleSince())
			}
			began := time.Now()
			time.Sleep(noticed)
			out := &feed.Standing{Error: "cannot connect"}
			if noticed > 0 {
				out.Since = began
			}
			l.says(feed.Batch[string]{Standing: out})
			time.Sleep(14*time.Second - noticed)
			if s := l.has(true, "a"); !s.Since.Equal(began) || !s.StaleSince().Equal(began) {
				t.Errorf("the outage of %v began at %v", began, s.Since)
			}
			l.says(feed.Batch[string]{Standing: &feed.Standing{Error: "cannot connect any more", Since: time.Now()}})
			time.Sleep(2 * time.Second)
			if s := l.has(true); !s.Since.Equal(began) || !strings.Contains(s.Error, "counts as gone") {
				t.Errorf("too old: %q since %v, want %v", s.Error, s.Since, began)
			}
			l.end()

			l = begin(t, m, cfg)
			l.says(feed.Batch[string]{Standing: away})
			if s := l.has(true); !s.Since.Equal(began) {
				t.Errorf("after a start the outage of %v began at %v", began, s.Since)
			}
			l.says(feed.Batch[string]{Full: true, Updates: groups("a")})
			l.says(feed.Batch[string]{Standing: away})
			time.Sleep(3 * time.Second)
			over := time.Now()
			l.says(feed.Batch[string]{Standing: &feed.Standing{Since: over}})
			l.end()
			l = begin(t, m, cfg)
			l.says(feed.Batch[string]{Standing: away})
			if s := l.has(true, "a"); !s.Since.Equal(over) {
				t.Errorf("content that was right at %v is said to be of %v", over, s.Since)
			}
			l.end()
		})
	}
}

// Content that is too old when it would have to stand in for a source is gone, or in use and told of, as the settings say;
// before the source has had its time to answer nothing is said for it.
func TestTooOldAtStart(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, cfg := &memory{all: map[string][]byte{}}, Config[string]{MaxAge: time.Hour, Drop: drop}
			l := begin(t, m, cfg)
			l.says(feed.Batch[string]{Full: true, Updates: groups("a", "b")})
			time.Sleep(2 * time.Second)
			l.end()
			want := []string{"a", "b"}
			if drop {
				want = nil
			}
			time.Sleep(2 * time.Hour)
			for _, says := range []*feed.Standing{nil, away} {
				l = begin(t, m, cfg)
				time.Sleep(1900 * time.Millisecond)
				l.has(false)
				if says != nil {
					l.says(feed.Batch[string]{Standing: says})
				} else {
					time.Sleep(200 * time.Millisecond)
				}
				for range 3 {
					if s := l.has(true, want...); !strings.Contains(s.Error, "older than the setting maxAge (1h0m0s)") {
						t.Errorf("drop %v: too old at the start: %q", drop, s.Error)
					}
					time.Sleep(time.Minute)
				}
				l.end()
			}
			l = begin(t, m, cfg)
			time.Sleep(time.Minute)
			l.says(feed.Batch[string]{Full: true, Updates: groups("a", "c")})
			if s := l.has(true, "a", "c"); s.Error != "" {
				t.Errorf("drop %v: back in touch: %q", drop, s.Error)
			}
			l.end()
		})
	}
}

// told is the only thing that is wrong, besides how the source stands: with nothing wrong the zero value.
func (l *life) told() (p feed.Problem) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.merged.Problems(nil)
	if len(all) > 1 || l.merged.Sources()[0].Problems != len(all) {
		l.t.Errorf("it is told: %v; %+v", all, l.merged.Sources()[0])
	}
	if len(all) == 1 {
		p = all[0]
	}
	return p
}

// A full disk takes nothing from what is in use, is told, and is over when there is room. The source is in touch all the while.
func TestUnkept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}, full: true}
		l := begin(t, m, Config[string]{})
		l.says(feed.Batch[string]{Full: true, Updates: groups("a")})
		time.Sleep(3 * time.Second)
		if s, p := l.has(true, "a"), l.told(); s.Error != "" || !s.StaleSince().IsZero() || p.Source != "test" || !strings.Contains(p.Text, "cannot be kept for a restart: no space left") {
			t.Errorf("on a full disk: %v, %+v", p, s)
		}
		l.mu.Lock()
		if unseen := l.merged.Unseen(); len(unseen) > 0 {
			t.Errorf("what is in touch is not seen: %v", unseen)
		}
		l.mu.Unlock()
		m.set(false)
		time.Sleep(3 * time.Second)
		if p := l.told(); p.Text != "" {
			t.Errorf("with room again: %v", p)
		}
		time.Sleep(time.Hour)
		m.set(true)
		l.says(feed.Batch[string]{Updates: groups("a")})
		time.Sleep(3 * time.Second)
		if p := l.told(); p.Text == "" || time.Since(p.Since) > time.Minute {
			t.Errorf("full again: %v since %v ago", p, time.Since(p.Since))
		}
		m.set(false)
		time.Sleep(3 * time.Second)
		l.end()
		l = begin(t, m, Config[string]{})
		time.Sleep(3 * time.Second)
		l.has(true, "a")
		l.end()
	})
}

// A storm of changes is a write a second.
func TestStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}}
		l := begin(t, m, Config[string]{})
		l.says(feed.Batch[string]{Full: true})
		for range 1000 {
			l.says(feed.Batch[string]{Updates: groups("a")})
			time.Sleep(10 * time.Millisecond)
		}
		l.end()
		if m.writes > 15 {
			t.Errorf("%d writes in ten seconds", m.writes)
		}
	})
}

// What was kept and cannot be read does not keep the rest from standing in, is told, and stays until the source has said what
// is true.
func TestDamaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}}
		l := begin(t, m, Config[string]{})
		l.says(feed.Batch[string]{Full: true, Updates: groups("a", "b")})
		time.Sleep(2 * time.Second)
		l.end()
		m.all["group:a"] = []byte("{")
		for range 2 {
			l = begin(t, m, Config[string]{})
			time.Sleep(3 * time.Second)
			l.has(true, "b")
			list := l.merged.Problems(nil)
			if i := slices.IndexFunc(list, func(p feed.Problem) bool { return p.Severity == feed.Error }); i < 0 || !strings.HasPrefix(list[i].Text, "what was kept of a from before the start cannot be used") {
				t.Errorf("problems are %v", list)
			}
			l.end()
		}
		if _, there := m.all["group:a"]; !there {
			t.Error("what cannot be read was forgotten")
		}
		l = begin(t, m, Config[string]{})
		time.Sleep(3 * time.Second)
		l.says(feed.Batch[string]{Full: true, Updates: groups("b"), Standing: &feed.Standing{}})
		if l.has(true, "b"); len(l.merged.Problems(nil)) > 0 {
			t.Errorf("problems are %v", l.merged.Problems(nil))
		}
		l.end()
		if raw, there := m.all["group:a"]; there {
			t.Errorf("what the source does not have any more is kept: %s", raw)
		}
	})
}

// Where nothing that was kept can be read, that is told while it is missed.
func TestAllDamaged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{AboutAll: []byte("{"), "group:a": []byte(`{"items":["a"]}`)}}
		l := begin(t, m, Config[string]{})
		l.says(feed.Batch[string]{Standing: away})
		if s := l.has(false); !strings.HasPrefix(s.Error, "cannot connect; what it said before the start cannot be read, so that nothing stands in: ") {
			t.Errorf("the source stands so: %q", s.Error)
		}
		l.says(feed.Batch[string]{Full: true, Updates: groups("b"), Standing: &feed.Standing{}})
		if s := l.has(true, "b"); s.Error != "" {
			t.Errorf("in touch: %q", s.Error)
		}
		l.end()
	})
}
