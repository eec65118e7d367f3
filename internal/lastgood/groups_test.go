package lastgood

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// partly is what a source says that has lost touch with a datacenter of two since a time, and with one service of the other since
// another; zero: it has not.
func partly(dc2, one time.Time) []feed.Update[string] {
	problem := func(text string, since time.Time) []feed.Problem {
		if since.IsZero() {
			return nil
		}
		return []feed.Problem{{Severity: feed.Warning, Text: text, Stale: true, Since: since}}
	}
	return []feed.Update[string]{
		{Group: "a", Items: []string{"a"}, Within: "/"},
		{Group: "b", Items: []string{"b"}, Within: "/", Problems: problem("b cannot be read", one), Away: one},
		{Group: "dc2/a", Items: []string{"dc2/a"}, Within: "dc2/"},
		{Group: "dc2/", Problems: problem("no path to dc2", dc2), Away: dc2},
	}
}

// What a source cannot read of its origin has an age of its own: when that is too much it is gone alone, or stays and is told of,
// as the settings say, and is back with its part; also over a restart.
func TestGroupTooOld(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, cfg := &memory{all: map[string][]byte{}}, Config[string]{MaxAge: time.Hour, Drop: drop}
			l := begin(t, m, cfg)
			all := []string{"a", "b", "dc2/a"}
			left := func(names ...string) []string {
				if drop {
					return names
				}
				return all
			}
			problems := func() []feed.Problem {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.merged.Problems(nil)
			}
			old := func(text string) (n int) {
				for _, p := range problems() {
					if strings.Contains(p.Text, text) && strings.Contains(p.Text, "older than the setting maxAge (1h0m0s)") {
						n++
					}
				}
				return n
			}
			began := time.Now()
			l.says(feed.Batch[string]{Full: true, Updates: partly(time.Time{}, time.Time{})})
			time.Sleep(3 * time.Hour)
			l.has(true, all...)
			dc2, one := time.Now(), time.Now().Add(30*time.Minute)
			l.says(feed.Batch[string]{Updates: partly(dc2, time.Time{})[3:]})
			time.Sleep(30 * time.Minute)
			l.says(feed.Batch[string]{Updates: partly(dc2, one)[1:2]})
			time.Sleep(29 * time.Minute)
			if s := l.has(true, all...); s.Error != "" || s.Stale != 2 || !s.StaleSince().Equal(dc2) {
				t.Errorf("parts are away: %+v", s)
			}
			time.Sleep(2 * time.Minute)
			if s := l.has(true, left("a", "b")...); s.Error != "" || old("dc2") != 1 || old("b cannot") != 0 {
				t.Errorf("drop %v: one part is too old: %+v, %v", drop, s, problems())
			}
			time.Sleep(30 * time.Minute)
			if s := l.has(true, left("a")...); s.Error != "" || old("dc2") != 1 || old("b cannot") != 1 {
				t.Errorf("drop %v: both parts are too old: %+v, %v", drop, s, problems())
			}
			l.says(feed.Batch[string]{Updates: partly(dc2, time.Time{})[1:2]})
			l.has(true, left("a", "b")...)
			l.end()

			l = begin(t, m, cfg)
			l.says(feed.Batch[string]{Standing: away})
			if l.has(true, left("a", "b")...); old("dc2") != 1 {
				t.Errorf("drop %v: after a start: %v", drop, problems())
			}
			l.says(feed.Batch[string]{Full: true, Updates: partly(dc2, time.Time{})})
			l.has(true, left("a", "b")...)
			l.says(feed.Batch[string]{Updates: partly(time.Time{}, time.Time{})[3:]})
			if s := l.has(true, all...); s.Error != "" || s.Stale != 0 || len(problems()) != 0 {
				t.Errorf("drop %v: back in touch, %v after the first start: %+v", drop, time.Since(began), s)
			}
			l.end()
		})
	}
}

// Who wants to know what it said is told of each group when that was last known to be right, and how it marked it.
func TestRememberAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{all: map[string][]byte{}}
		l := begin(t, m, Config[string]{})
		dc2, one := time.Now(), time.Now().Add(time.Second)
		time.Sleep(time.Hour)
		updates := partly(dc2, one)
		updates[0].Mark = "where it stood"
		l.says(feed.Batch[string]{Full: true, Updates: updates})
		time.Sleep(time.Hour)
		l.end()
		k := &keeping[string]{cfg: Config[string]{Source: l.script, Store: m, Decode: func(b []byte) (items []string, err error) { return items, json.Unmarshal(b, &items) }},
			away: map[string]time.Time{}, groups: map[string]feed.Update[string]{}}
		k.load(t.Context())
		want := map[string]time.Time{"dc2/a": dc2, "dc2/": dc2, "b": one}
		for _, u := range k.remembered() {
			if at, is := want[u.Group]; is && !u.Away.Equal(at) || !is && time.Since(u.Away) > touchPace {
				t.Errorf("%s was right %v ago, want %v", u.Group, time.Since(u.Away), time.Since(at))
			}
			if want := map[string]string{updates[0].Group: updates[0].Mark}[u.Group]; u.Mark != want {
				t.Errorf("%s is marked %q, want %q", u.Group, u.Mark, want)
			}
		}
	})
}

// A source of which nothing complete was kept is told nothing.
func TestRememberNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rememberer{script{make(chan feed.Batch[string])}, make(chan []feed.Update[string], 1)}
		done := make(chan error, 1)
		go func() {
			done <- New(Config[string]{Source: r, Store: &memory{all: map[string][]byte{}}}).Run(t.Context(), nil)
		}()
		synctest.Wait()
		if len(r.kept) != 0 {
			t.Error("it is told of nothing")
		}
		time.Sleep(time.Second)
	})
}

// A group that has nothing of its own may be away for those within it, also over a start.
func TestGroupAwayForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, cfg := &memory{all: map[string][]byte{}}, Config[string]{MaxAge: time.Hour, Drop: true}
		l := begin(t, m, cfg)
		l.says(feed.Batch[string]{Full: true, Updates: partly(time.Time{}, time.Time{})})
		silent := feed.Update[string]{Group: "dc2/", Away: time.Now()}
		l.says(feed.Batch[string]{Updates: []feed.Update[string]{silent}})
		time.Sleep(59 * time.Minute)
		l.has(true, "a", "b", "dc2/a")
		l.end()
		l = begin(t, m, cfg)
		l.says(feed.Batch[string]{Standing: away})
		l.has(true, "a", "b", "dc2/a")
		time.Sleep(2 * time.Minute)
		l.has(true, "a", "b")
		l.says(feed.Batch[string]{Full: true, Updates: partly(time.Time{}, time.Time{})})
		l.has(true, "a", "b", "dc2/a")
		l.end()
	})
}
