package feed

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

type testKey string

func (k testKey) String() string { return "Thing " + string(k) }

// testItem is an item that is written "key=version".
type testItem string

func (i testItem) key() testKey {
	k, _, _ := strings.Cut(string(i), "=")
	return testKey(k)
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	objectConfig  = Config[testKey, testItem]{KeyOf: testItem.key, Settle: 2 * time.Second}
	serviceConfig = Config[testKey, testItem]{KeyOf: testItem.key, Union: true, MassRemoval: 10 * time.Minute}
)

// world is a merger at a point of time, with what was saved of it.
type world struct {
	t       *testing.T
	cfg     Config[testKey, testItem]
	m       *Merger[testKey, testItem]
	now     time.Time
	sources []SourceConfig
	saved   map[groupID]SavedGroup[testItem]
	changed map[testKey]bool
}

func newWorld(t *testing.T, cfg Config[testKey, testItem], sources ...SourceConfig) *world {
	w := &world{t: t, cfg: cfg, now: epoch, saved: map[groupID]SavedGroup[testItem]{}, changed: map[testKey]bool{}}
	w.sources, w.m = sources, NewMerger(cfg, sources)
	return w
}

func (w *world) note(changed []testKey) {
	for _, k := range changed {
		w.changed[k] = true
	}
	for _, g := range w.m.TakeChanged() {
		if w.saved[groupID{g.Source, g.Group}] = g; g.Removed {
			delete(w.saved, groupID{g.Source, g.Group})
		}
	}
}

// setSources restarts with other sources.
func (w *world) setSources(list ...SourceConfig) {
	w.sources = list
	w.restart()
}

func (w *world) apply(b Batch[testItem]) { w.note(w.m.Apply(b, w.now)) }

// wait lets time pass, and calls Expire whenever it is due.
func (w *world) wait(d time.Duration) {
	end := w.now.Add(d)
	for {
		next := w.m.NextExpiry()
		if next.IsZero() || next.After(end) {
			break
		}
		if !next.After(w.now) && w.now != next {
			w.t.Fatalf("at %v Expire is due at %v", w.now, next)
		}
		w.now = next
		w.note(w.m.Expire(w.now))
	}
	w.now = end
}

func (w *world) restart() {
	w.m = NewMerger(w.cfg, w.sources)
	w.note(w.m.Restore(slices.Collect(maps.Values(w.saved)), w.now))
}

// active is all items in use by key, those that are retained with a "~".
func (w *world) active() string {
	var out []string
	for k := range w.m.items {
		var all []string
		for n, s := range w.m.Items(k) {
			text := string(s.Item) + retainedMark(w.m, k, n)
			if all = append(all, text); !w.cfg.Union {
				break
			}
		}
		if len(all) > 0 {
			out = append(out, strings.Join(all, "+"))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// retainedMark is "~" if item n of those that are used for k is retained.
func retainedMark(m *Merger[testKey, testItem], k testKey, n int) string {
	if used := m.items[k]; used[n].lost() || used[n].Stale {
		return "~"
	}
	return ""
}

// step is one event of a case, written as
//
//	wait 2s | restart | accept s1 | down s1 | up s1
//	s1 a: x=1 y=1 !z error unreadable    a batch with group a, in which z is invalid
//	s1 full a: x=1; b: y=1               a Full batch
//	s1 explicit a:                       an Explicit batch, which removes a
//	s1 full lost a: x=1                  a Full batch with DataLost
//	sources s1 s2
//	want x=1 y=2~                        the items in use, y of them retained
type step = string

func (w *world) run(steps ...step) {
	w.t.Helper()
	for n, s := range steps {
		verb, rest, _ := strings.Cut(s, " ")
		switch verb {
		case "wait":
			d, err := time.ParseDuration(rest)
			if err != nil {
				w.t.Fatal(err)
			}
			w.wait(d)
		case "restart":
			w.restart()
		case "accept":
			w.note(w.m.AcceptRemovals(rest, w.now))
		case "down":
			w.apply(Batch[testItem]{Source: rest, Down: errors.New("connection refused")})
		case "up":
			w.apply(Batch[testItem]{Source: rest})
		case "sources":
			w.setSources(named(strings.Fields(rest)...)...)
		case "want":
			if got := w.active(); got != rest {
				w.t.Errorf("step %d (after %q): in use are %q, want %q", n, steps[max(0, n-1)], got, rest)
			}
		default:
			w.apply(batch(verb, rest))
		}
	}
}

// named are required sources of these names.
func named(names ...string) []SourceConfig {
	out := make([]SourceConfig, len(names))
	for n, name := range names {
		out[n] = SourceConfig{Name: name, Required: true}
	}
	return out
}

func batch(source, text string) Batch[testItem] {
	b := Batch[testItem]{Source: source}
	for {
		if rest, ok := strings.CutPrefix(text, "full"); ok {
			b.Full, text = true, strings.TrimSpace(rest)
		} else if rest, ok := strings.CutPrefix(text, "lost"); ok {
			text, b.DataLost = strings.TrimSpace(rest), true
		} else if rest, ok := strings.CutPrefix(text, "explicit"); ok {
			b.Explicit, text = true, strings.TrimSpace(rest)
		} else {
			break
		}
	}
	for part := range strings.SplitSeq(text, ";") {
		name, content, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			continue
		}
		u := Update[testItem]{Group: name}
		for _, word := range strings.Fields(content) {
			key, invalid := strings.CutPrefix(word, "!")
			switch {
			case invalid:
				u.Invalid = append(u.Invalid, testKey(key).String())
				u.Problems = append(u.Problems, Problem{Severity: Error, Object: testKey(key).String(),
					Text: "invalid"})
			case word == "error":
				u.Problems = append(u.Problems, Problem{Severity: Error, Text: "odd"})
			case word == "unreadable":
				u.Unreadable = true
				u.Problems = append(u.Problems, Problem{Severity: Error, Text: "unreadable"})
			default:
				u.Items = append(u.Items, testItem(word))
			}
		}
		b.Updates = append(b.Updates, u)
	}
	return b
}

// many writes n items of version 1 into groups of their own.
func many(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%03d: %s%03d=1; ", prefix, i, prefix, i)
	}
	return b.String()
}

// active1 is the part of active that many has.
func active1(prefix string, n int, mark string) string {
	out := make([]string, n)
	for i := range n {
		out[i] = fmt.Sprintf("%s%03d=1%s", prefix, i, mark)
	}
	return strings.Join(out, " ")
}

type mergerCase struct {
	name  string
	steps []step
}

func runCases(t *testing.T, cfg Config[testKey, testItem], sources []string, cases []mergerCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			newWorld(t, cfg, named(sources...)...).run(c.steps...)
		})
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	runCases(t, objectConfig, []string{"s1", "s2"}, []mergerCase{
		{"the first source", []step{"s2 full a: x=2", "s1 full b: x=1", "want x=1"}},
		{"the first group by name", []step{"s1 full b: x=2", "s1 a: x=1", "want x=1"}},
		{"the first item of a group", []step{"s1 full a: x=1 x=2", "want x=1"}},
		{"the next source once the first has none", []step{
			"s1 full a: x=1 y=1", "s2 full a: x=2", "s1 a: y=1", "want x=2 y=1",
		}},
		{"sources in another order", []step{"s1 full a: x=1", "s2 full a: x=2", "sources s2 s1", "want x=2"}},
		{"a source that is not in the list", []step{"s3 full a: x=1", "want "}},
	})
}

func TestInvalidKeepsOld(t *testing.T) { // R1
	t.Parallel()
	runCases(t, objectConfig, []string{"s1"}, []mergerCase{
		{"an invalid item", []step{"s1 full a: x=1 y=1", "s1 a: !x y=2", "want x=1~ y=2", "wait 24h", "want x=1~ y=2"}},
		{"that is mended", []step{"s1 full a: x=1 y=1", "s1 a: !x y=2", "s1 a: x=3 y=2", "want x=3 y=2"}},
		{"that is taken out", []step{"s1 full a: x=1 y=1", "s1 a: !x y=1", "s1 a: y=1", "wait 2s", "want y=1"}},
		{"an invalid item that was never valid", []step{"s1 full a: y=1", "s1 a: !x y=2", "want y=2"}},
		{"valid and invalid at once", []step{"s1 full a: x=1", "s1 a: !x x=2", "want x=2"}},
		{"an unreadable group", []step{"s1 full a: x=1; b: z=1", "s1 a: y=1 unreadable", "wait 24h", "want x=1~ z=1"}},
		{"that is mended", []step{"s1 full a: x=1; b: z=1", "s1 a: unreadable", "s1 a: x=2", "want x=2 z=1"}},
		{"that is removed", []step{"s1 full a: x=1; b: z=1", "s1 a: unreadable", "s1 a:", "wait 2s", "want z=1"}},
		{"unreadable after invalid", []step{
			"s1 full a: x=1 y=1", "s1 a: !x y=2", "s1 a: unreadable", "s1 a: y=3 !x", "want x=1~ y=3",
		}},
		{"over a restart", []step{
			"s1 full a: x=1 y=1", "s1 a: !x y=2", "restart", "want x=1~ y=2", "s1 full a: !x y=2",
			"want x=1~ y=2",
		}},
	})
}

func TestOutageKeepsOld(t *testing.T) { // R2
	t.Parallel()
	runCases(t, objectConfig, []string{"s1"}, []mergerCase{
		{"down", []step{"s1 full a: x=1", "down s1", "wait 24h", "want x=1"}},
		{"down over a restart", []step{"s1 full a: x=1", "down s1", "restart", "down s1", "wait 24h", "want x=1"}},
	})
}

func TestRemovalSettles(t *testing.T) { // R3
	t.Parallel()
	runCases(t, objectConfig, []string{"s1", "s2"}, []mergerCase{
		{"after 2 s", []step{
			"s1 full a: x=1 y=1", "s1 a: y=1", "wait 1999ms", "want x=1~ y=1", "wait 1ms", "want y=1",
		}},
		{"a move within a batch", []step{"s1 full a: x=1; b: y=1", "s1 a:; b: x=2 y=1", "want x=2 y=1"}},
		{"a move between groups", []step{
			"s1 full a: x=1 z=1", "s1 a: z=1", "wait 1s", "s1 b: x=2", "want x=2 z=1", "wait 1h", "want x=2 z=1",
		}},
		{"a move between sources", []step{
			"s1 full a: x=1 z=1", "s2 full b: y=1", "s1 a: z=1", "wait 1s", "s2 b: x=2 y=1", "want x=2 y=1 z=1",
		}},
		{"removed again after it returned", []step{
			"s1 full a: x=1 z=1", "s1 a: z=1", "wait 1s", "s1 a: x=2 z=1", "wait 500ms", "s1 a: z=1",
			"wait 1999ms", "want x=2~ z=1", "wait 1ms", "want z=1",
		}},
		{"while another group names it as invalid", []step{
			"s1 full a: x=1 z=1", "s2 full", "s1 a: z=1", "s2 b: !x", "wait 24h", "want x=1~ z=1", "s2 b: x=2", "want x=2 z=1",
		}},
		{"until that is over", []step{
			"s1 full a: x=1 z=1", "s1 a: z=1", "s2 full b: !x", "wait 24h", "s2 full", "wait 2s", "want z=1",
		}},
		{"a rename with a mistake", []step{
			"s1 full a: x=1 z=1", "s1 a: !y z=1", "wait 24h", "want x=1~ z=1", "s1 a: y=1 z=1",
			"want x=1~ y=1 z=1", "wait 2s", "want y=1 z=1",
		}},
		{"while its group has an error", []step{
			"s1 full a: x=1 z=1", "s1 a: z=1 error", "wait 24h", "want x=1~ z=1", "s1 a: z=1", "wait 2s",
			"want z=1",
		}},
		{"a move into a group that broke shortly before", []step{
			"s1 full a: x=1 z=1; b: y=1", "s1 b: unreadable", "wait 10m", "s1 a: z=1", "wait 24h", "want x=1~ y=1~ z=1",
			"s1 b: x=2 y=2", "want x=2 y=2 z=1",
		}},
		{"a move into a group that breaks shortly after", []step{
			"s1 full a: x=1 z=1", "s1 a: z=1", "wait 2s", "want z=1",
			"s1 a: x=1 z=1", "s1 a: z=1", "wait 1s", "s2 full b: unreadable", "wait 24h", "want x=1~ z=1",
			"s2 b: y=1", "wait 2s", "want y=1 z=1",
		}},
		{"a group that broke long before", []step{
			"s1 full a: x=1 z=1; b: y=1", "s1 b: unreadable", "wait 11m", "s1 a: z=1", "wait 2s",
			"want y=1~ z=1",
		}},
		{"sending an error again does not restart it", []step{
			"s1 full a: x=1 z=1; b: y=1", "s1 b: unreadable", "wait 11m", "s1 b: unreadable", "down s1", "restart",
			"s1 full a: x=1 z=1; b: unreadable", "s1 a: z=1", "wait 2s", "want y=1~ z=1",
		}},
		{"retained over a restart", []step{
			"s1 full a: x=1 z=1", "s2 full", "s1 a: z=1 error", "wait 24h", "restart", "wait 24h", "want x=1~ z=1",
			"s1 full a: z=1", "wait 2s", "want z=1",
		}},
		{"accepted", []step{
			"s1 full a: x=1 z=1", "s1 a: z=1 error", "wait 1h", "accept s1", "want z=1", "restart", "want z=1",
		}},
		{"explicit", []step{"s1 full a: x=1; b: y=1 error", "s1 explicit a:", "want y=1"}},
	})
}

func TestMassRemoval(t *testing.T) { // R4
	t.Parallel()
	runCases(t, objectConfig, []string{"s1", "s2"}, []mergerCase{
		{"everything", []step{
			"s1 full a: x=1; b: y=1", "s1 full", "wait 24h", "want x=1~ y=1~", "s1 full a: x=2", "want x=2 y=1~",
		}},
		{"everything in several batches", []step{
			"s1 full " + many("a", 9), "s1 full " + many("a", 5), "wait 1s",
			"s1 full " + many("a", 1), "wait 500ms", "s1 full",
			"wait 24h", "want " + active1("a", 9, "~"),
		}},
		{"more than half", []step{
			"s1 full " + many("a", 19), "s1 full " + many("a", 9), "wait 24h",
			"want " + active1("a", 9, "") + strings.TrimPrefix(active1("a", 19, "~"), active1("a", 9, "~")),
		}},
		{"renamed", []step{"s1 full " + many("a", 20), "s1 full " + many("b", 20), "wait 2s", "want " + active1("b", 20, "")}},
		{"half", []step{
			"s1 full " + many("a", 20), "s1 full " + many("a", 10), "wait 2s", "want " + active1("a", 10, ""),
		}},
		{"more than half, but few", []step{
			"s1 full " + many("a", 10), "s1 full " + many("a", 1), "wait 2s", "want " + active1("a", 1, ""),
		}},
		{"moved to another source", []step{
			"s1 full " + many("a", 20), "s1 full", "s2 full " + many("a", 20), "wait 2s",
			"want " + active1("a", 20, ""),
		}},
		{"a single one that is renamed", []step{"s1 full a: x=1", "s1 a: y=1", "wait 2s", "want y=1"}},
		{"over a restart", []step{
			"s1 full a: x=1", "restart", "s1 full", "wait 24h", "want x=1~", "restart", "wait 24h", "want x=1~",
		}},
		{"accepted", []step{"s1 full a: x=1; b: y=1", "s1 full", "wait 1h", "accept s1", "want "}},
		{"explicit", []step{"s1 full a: x=1; b: y=1", "s1 full explicit", "want "}},
	})
	runCases(t, serviceConfig, []string{"s1", "s2"}, []mergerCase{
		{"services stay 10 minutes", []step{
			"s1 full a: x=1; b: y=1", "s1 full", "wait 9m59s", "want x=1~ y=1~", "wait 1s", "want ",
		}},
		{"also over a restart", []step{
			"s1 full a: x=1", "s1 full", "wait 5m", "restart", "want x=1~", "s1 full", "wait 299s", "want x=1~",
			"wait 1s", "want ",
		}},
		{"a service that returns", []step{
			"s1 full a: x=1; b: y=1", "s1 full", "s1 b: y=2", "want x=1~ y=2", "wait 10m", "want y=2",
		}},
		{"a few services go at once", []step{"s1 full a: x=1; b: y=1", "s1 b:", "want x=1"}},
		{"beside what another source supplies", []step{
			"s1 full a: x=1", "s2 full a: x=2", "s1 full", "want x=1~+x=2", "wait 10m", "want x=2",
		}},
		{"of all groups", []step{"s1 full a: x=1; b: x=2", "s1 full", "want x=1~+x=2~"}},
		{"a few by lost data", []step{
			"s1 full a: x=1; b: y=1", "s1 full lost b: y=2", "want x=1~ y=2", "wait 9m59s", "want x=1~ y=2", "wait 1s", "want y=2",
		}},
	})
}

func TestRestart(t *testing.T) { // R5
	t.Parallel()
	runCases(t, objectConfig, []string{"s1", "s2"}, []mergerCase{
		{"used until the source delivers", []step{
			"s1 full a: x=1; b: y=1", "restart", "want x=1 y=1", "s1 full a: x=2", "want x=2 y=1~", "wait 2s",
			"want x=2",
		}},
		{"a source that left the settings", []step{
			"s1 full a: x=1", "s2 full b: y=1", "sources s1", "want x=1 y=1", "s1 full a: x=1", "want x=1 y=1~", "wait 2s",
			"want x=1",
		}},
		{"not before all others delivered", []step{
			"s1 full a: x=1", "s2 full b: y=1", "restart", "sources s1", "wait 24h", "want x=1 y=1",
			"s1 full a: x=1", "wait 2s", "want x=1",
		}},
		{"moved to another source meanwhile", []step{
			"s1 full a: x=1", "s2 full b: y=1", "restart", "sources s1", "s1 full a: x=1 y=2",
			"want x=1 y=2", "wait 1h", "want x=1 y=2",
		}},
		{"a source that returns to the settings", []step{
			"s1 full a: x=1", "s2 full b: y=1", "sources s1 s3", "sources s1 s2", "want x=1 y=1",
			"s2 full b: y=2", "want x=1 y=2",
		}},
	})
}

func problemTexts(m *Merger[testKey, testItem]) string {
	list := m.Problems(func(i testItem) string { return "(" + string(i) + ")" })
	SortProblems(list)
	var b strings.Builder
	for _, p := range list {
		stale := map[bool]string{true: " (stale)"}[p.Stale]
		fmt.Fprintf(&b, "%s %s%s: %s\n", p.Severity, cmp.Or(p.Object, p.Source), stale, p.Text)
	}
	return b.String()
}
