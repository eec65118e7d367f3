package push_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
)

// folders are two sources of files, and what an assembler makes of them.
type folders struct {
	t        *testing.T
	one, two *scripted[*config.Object]
	a        *push.Assembler
	last     latest[*push.Context]
	kept     latest[[]push.Held]
	left     latest[[]string]
	end      func()
}

// policy is one of the name.
func policy(name string) *config.Object {
	return &config.Object{Key: config.Key{Kind: config.AuthorizationPolicy, Namespace: "a", Name: name}, Hash: 1, Spec: &security.AuthorizationPolicy{}}
}

// file is what is said of a file: names of policies that it has, and of those that it refuses.
func (f *folders) file(name string, objects ...string) feed.Update[*config.Object] {
	u := feed.Update[*config.Object]{Group: name, Edited: time.Now()}
	for _, o := range objects {
		refused, wrong := strings.CutPrefix(o, "!")
		p := policy(refused)
		if wrong {
			u.Problems = append(u.Problems, feed.Problem{Severity: feed.Error, Object: p.Key.String(), File: name, Text: "a slip", Unenforced: true})
			continue
		}
		p.Origin.File = name
		u.Items = append(u.Items, p)
	}
	return u
}

// say has a source say something of files.
func say(s *scripted[*config.Object], full bool, updates ...feed.Update[*config.Object]) {
	for _, u := range updates {
		for _, o := range u.Items {
			o.Origin.Source = s.Name()
		}
	}
	s.say <- feed.Batch[*config.Object]{Source: s.Name(), Full: full, Updates: updates}
}

func newFolders(t *testing.T, held ...push.Held) *folders {
	return newFoldersAfter(t, nil, nil, held...)
}

// newFoldersAfter are those that begin after sources that are not in the list any more said something; of the two those of these
// names are optional.
func newFoldersAfter(t *testing.T, before []feed.Batch[*config.Object], optional []string, held ...push.Held) *folders {
	f := &folders{t: t, one: newScripted[*config.Object]("one"), two: newScripted[*config.Object]("two")}
	f.kept.set(held)
	f.run(push.AssemblerConfig{
		Sources: push.Sources{Objects: []config.Source{f.one, f.two}, Optional: optional}, Mesh: testMesh(), Held: held, Before: before,
		Keep:    f.kept.set,
		Left:    func(names []string) { f.left.set(append(f.left.get(), names...)) },
		Publish: func(c *push.Context, _ push.Changes) { f.last.set(c) },
	})
	return f
}

// run runs an assembler until end.
func (f *folders) run(cfg push.AssemblerConfig) {
	f.a = push.NewAssembler(cfg)
	f.end = running(f.t, f.a)
}

// running runs an assembler until end.
func running(t *testing.T, a *push.Assembler) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// forgotten checks that nothing is kept of what went.
func (f *folders) forgotten() {
	f.t.Helper()
	for _, h := range f.kept.get() {
		if !h.Gone.IsZero() {
			f.t.Errorf("%v is kept, gone at %v", h.Object.Key, h.Gone)
		}
	}
}

// has checks which policies are in use, and which of them are held.
func (f *folders) has(inUse, held string) {
	f.t.Helper()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	var got, kept []string
	for _, name := range []string{"x", "y", "z"} {
		if f.last.get().Inputs().Objects.At(policy(name).Key) != nil {
			got = append(got, name)
		}
	}
	for _, h := range f.kept.get() {
		if h.Gone.IsZero() {
			kept = append(kept, h.Object.Name)
		}
	}
	if g, k := strings.Join(got, " "), strings.Join(kept, " "); g != inUse || k != held {
		f.t.Errorf("in use are %q, of them held %q; want %q and %q; problems: %v", g, k, inUse, held, f.a.Status().Problems)
	}
}

// An object goes from one source only when nothing that was changed with it in another one is wrong, in whatever order that is
// seen; it goes as soon as that is mended. What is plainly taken away goes.
func TestHeldBetweenSources(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuses string        // what the file of the other source refuses
		apart   time.Duration // from the first part of the change to the second
		held    string
	}{
		"the same":           {"!x", 0, "x"},
		"the same, later":    {"!x", 700 * time.Millisecond, "x"},
		"renamed":            {"!z", 0, "x"},
		"renamed, later":     {"!z", 700 * time.Millisecond, "x"},
		"long after":         {"!z", 2 * time.Second, ""},
		"nothing is refused": {"z", 0, ""},
		"a name that is had": {"y", 0, "x"},
	} {
		for _, removedFirst := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", removed first", false: ", removed last"}[removedFirst], func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFolders(t)
					defer f.end()
					say(f.one, true, f.file("x.yaml", "x"), f.file("y.yaml", "y"))
					say(f.two, true)
					time.Sleep(time.Minute)
					f.has("x y", "")
					steps := []func(){func() { say(f.one, false, f.file("x.yaml")) }, func() { say(f.two, false, f.file("x.yaml", c.refuses)) }}
					if !removedFirst {
						steps[0], steps[1] = steps[1], steps[0]
					}
					steps[0]()
					time.Sleep(c.apart)
					steps[1]()
					inUse := strings.TrimSpace(c.held + " y")
					if c.refuses == "z" {
						inUse += " z"
					}
					f.has(inUse, c.held)
					time.Sleep(time.Minute)
					f.has(inUse, c.held)
					say(f.two, false, f.file("x.yaml"))
					f.has("y", "")
				})
			})
		}
	}
}

// What was held before a start is held after it, once all have said everything, as long as it is wrong beside which it was held.
func TestHeldOverStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ says, inUse, held string }{
		"as before":       {"!z", "x", "x"},
		"mended":          {"z", "z", ""},
		"mended in place": {"x", "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := policy("x")
				x.Origin = config.Origin{Source: "one", File: "x.yaml"}
				f := newFolders(t, push.Held{Object: x, Beside: feed.GroupID{Source: "two", Group: "z.yaml"}})
				defer f.end()
				say(f.one, true)
				time.Sleep(time.Second)
				u := f.file("z.yaml", c.says)
				u.Edited = time.Time{}
				say(f.two, true, u)
				f.has(c.inUse, c.held)
			})
		})
	}
}

// What was held before a start beside a name that two sources have is held after it, whichever of them is heard of first.
func TestHeldOverStartBesideClash(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"one", "two"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := policy("x")
				x.Origin = config.Origin{Source: "one", File: "x.yaml"}
				f := newFolders(t, push.Held{Object: x, Beside: feed.GroupID{Source: "two", Group: "x.yaml"}})
				defer f.end()
				steps := []func(){func() { say(f.one, true, f.file("y.yaml", "y")) }, func() { say(f.two, true, f.file("x.yaml", "y")) }}
				if first == "two" {
					steps[0], steps[1] = steps[1], steps[0]
				}
				steps[0]()
				time.Sleep(time.Minute)
				steps[1]()
				f.has("x y", "x")
				say(f.two, false, f.file("x.yaml"))
				f.has("y", "")
			})
		})
	}
}

// A refused object that should protect says what is enforced for it: nothing, what is held, or what another source has.
func TestUnenforced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFolders(t)
		defer f.end()
		says := func(what string, want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			var texts []string
			for _, p := range f.a.Status().Problems {
				texts = append(texts, p.Text)
			}
			if got := strings.Join(texts, "\n"); got != strings.Join(want, "\n") {
				t.Errorf("%s: problems are\n%s\nwant\n%s", what, got, strings.Join(want, "\n"))
			}
		}
		say(f.one, true, f.file("x.yaml", "x"))
		say(f.two, true, f.file("y.yaml", "!x"))
		says("both have it", "a slip; until then the one in x.yaml of one is in use")
		say(f.one, false, f.file("x.yaml"))
		says("it is held", "a slip; until then its last good version stays in use",
			"is gone from where it stood, and is refused where it stands now: its last good version stays in use; mend it there, or take it out there too")
		say(f.two, false, f.file("y.yaml"))
		time.Sleep(time.Minute)
		say(f.two, false, f.file("y.yaml", "!x"))
		says("it is gone", "a slip; nothing is enforced for it until it is mended")
	})
}

// said is what a source that is not in the list any more said before the start.
func said(source string, names ...string) feed.Batch[*config.Object] {
	u := feed.Update[*config.Object]{Group: "kept"}
	for _, name := range names {
		p := policy(name)
		p.Origin = config.Origin{Source: source, File: name + ".yaml"}
		u.Items = append(u.Items, p)
	}
	return feed.Batch[*config.Object]{Source: source, Full: true, Updates: []feed.Update[*config.Object]{u}}
}

// tells checks that there is a problem of a policy with a text.
func (f *folders) tells(name, text string) {
	f.t.Helper()
	for _, p := range f.a.Status().Problems {
		if p.Object == policy(name).Key.String() && strings.Contains(p.Text, text) {
			return
		}
	}
	f.t.Errorf("nobody is told %q of %s: %v", text, name, f.a.Status().Problems)
}

// What was held before the start stays while what stands in for the source beside which it is held is from before the start too, in
// that file or, where nothing was kept of that, in any.
func TestHeldWhileAway(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]string{"the file is kept": "z.yaml", "another one is": "other.yaml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := policy("x")
				x.Origin = config.Origin{Source: "one", File: "x.yaml"}
				f := newFolders(t, push.Held{Object: x, Beside: feed.GroupID{Source: "two", Group: "z.yaml"}})
				defer f.end()
				say(f.two, true, feed.Update[*config.Object]{Group: kept, Kept: true})
				say(f.one, true)
				time.Sleep(time.Hour)
				f.has("x", "x")
				f.tells("x", "not read since is two:")
				u := f.file("z.yaml", "!z")
				u.Edited = time.Time{}
				say(f.two, true, u)
				f.has("x", "x")
				f.tells("x", "z.yaml of two, which was changed with it, has an error")
				say(f.two, false, f.file("z.yaml", "z"))
				f.has("z", "")
			})
		})
	}
}

// What went with its source stays until all others were read, those too that nobody waits for and that others stand in for: it
// may have moved there. People are told which are missing.
func TestLeftStaysUntilAllAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFoldersAfter(t, []feed.Batch[*config.Object]{said("old", "x"), said("older", "y", "z")}, []string{"one", "two"})
		defer f.end()
		f.has("x y z", "x y z")
		f.tells("z", "may stand now in what was not read since, one, two:")
		if got := strings.Join(f.left.get(), " "); got != "old older" {
			t.Errorf("left are %q, want both: what of theirs is in use is held", got)
		}
		say(f.one, true, f.file("x.yaml", "x"))
		say(f.two, true, feed.Update[*config.Object]{Group: "kept.yaml", Kept: true})
		time.Sleep(time.Hour)
		f.has("x y z", "y z")
		f.tells("z", "may stand now in what was not read since, two:")
		say(f.two, false, f.file("kept.yaml", "!y"))
		f.has("x y", "y")
		time.Sleep(time.Minute)
		say(f.one, false, f.file("x.yaml")) // plainly
		time.Sleep(time.Minute)
		f.has("y", "y")
	})
}

// What is taken away where it stands now does not come back at a start, whatever else is held of the source where it stood before.
func TestRemovalStaysOverStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unread := feed.Update[*config.Object]{Group: "more.yaml", Problems: []feed.Problem{{Severity: feed.Error, Unread: true, Text: "cannot be read"}}}
		f := newFoldersAfter(t, []feed.Batch[*config.Object]{said("old", "x", "z")}, nil)
		say(f.one, true)
		say(f.two, true, f.file("z.yaml", "z"), unread)
		f.has("x z", "x")
		time.Sleep(time.Minute)
		say(f.two, false, f.file("z.yaml"))
		f.has("x", "x")
		kept := f.kept.get()
		f.end()
		f = newFolders(t, kept...) // nothing is kept of the old one: it was told that it has left
		defer f.end()
		say(f.two, true, unread)
		say(f.one, true)
		f.has("x", "x")
		say(f.two, false, feed.Update[*config.Object]{Group: "more.yaml"})
		f.has("", "")
	})
}

// What goes with its source stays for as long as the change may take that took it away: what is written in the same moment has not been
// read by then.
func TestHeldAmidChangeOfList(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		writes              string // into the other folder; empty: nothing
		at                  time.Duration
		then, held, reasons string
	}{
		"a slip":             {"!x", 50 * time.Millisecond, "x", "x", "is refused where it stands now"},
		"a slip, later":      {"!x", 900 * time.Millisecond, "x", "x", "is refused where it stands now"},
		"moved":              {"x", 50 * time.Millisecond, "x", "", ""},
		"plainly taken away": {"", 0, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFolders(t)
				defer f.end()
				say(f.one, true, f.file("x.yaml", "x"))
				say(f.two, true)
				f.has("x", "")
				if err := f.a.Arrange(t.Context(), push.Sources{Objects: []config.Source{f.two}}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if f.last.get().Inputs().Objects.At(policy("x").Key) == nil {
					t.Error("it is gone at once")
				}
				if time.Sleep(c.at); c.writes != "" {
					say(f.two, false, f.file("y.yaml", c.writes))
				}
				time.Sleep(time.Second)
				if f.has(c.then, c.held); c.reasons != "" {
					f.tells("x", c.reasons)
				}
			})
		})
	}
}

// What is held beside a source stays when that goes too, until it is known that no other one has it.
func TestHeldBesideWhatLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFolders(t)
		defer f.end()
		say(f.one, true, f.file("x.yaml", "x"))
		say(f.two, true, f.file("x.yaml", "!x"))
		say(f.one, false, f.file("x.yaml"))
		f.has("x", "x")
		three := newScripted[*config.Object]("three")
		if err := f.a.Arrange(t.Context(), push.Sources{Objects: []config.Source{f.one, three}}); err != nil {
			t.Fatal(err)
		}
		f.has("x", "x")
		f.tells("x", "may stand now in what was not read since, three:")
		say(three, true, f.file("x.yaml", "!x"))
		f.has("x", "x")
		f.tells("x", "is refused where it stands now")
		time.Sleep(time.Second)
		say(three, false, f.file("x.yaml"))
		f.has("", "")
	})
}

// What went from a source before the start is one change with what is wrong in others, in whatever order they are heard of; once
// proxies are served without it, it stays away.
func TestGoneBeforeStart(t *testing.T) {
	t.Parallel()
	for _, slip := range []string{"!x", "!z"} {
		for _, first := range []string{"one", "two"} {
			t.Run(slip+", "+first+" first", func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFolders(t)
					defer f.end()
					went := f.file("all.yaml", "y")
					x := policy("x")
					x.Origin = config.Origin{Source: "one", File: "all.yaml"}
					went.Was = []*config.Object{x}
					steps := []func(){func() { went.Edited = time.Now(); say(f.one, true, went) }, func() { say(f.two, true, f.file("all.yaml", slip)) }}
					if first == "two" {
						slices.Reverse(steps)
					}
					steps[0]()
					time.Sleep(time.Minute) // a large folder takes long
					steps[1]()
					f.has("x y", "x")
					time.Sleep(time.Minute)
					say(f.two, false, f.file("all.yaml"))
					f.has("y", "")
					time.Sleep(time.Minute)
					say(f.two, false, f.file("all.yaml", slip))
					f.has("y", "")
				})
			})
		}
	}
}

// An object of a source that does not know when it was taken away, as a store and a server do not, stays where it is refused itself a
// moment before or after it went, and where that is so at the start after it went; what is wrong besides means others.
func TestGoneUnedited(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for name, c := range map[string]struct {
		refuses string        // what the other source refuses
		after   time.Duration // how long after the removal; never: the removal comes with the start
		held    string
	}{
		"at once":                 {"!x", 0, "x"},
		"a little later":          {"!x", 1500 * time.Millisecond, "x"},
		"much later":              {"!x", 5 * time.Second, ""},
		"another one":             {"!z", 0, ""},
		"while down":              {"!x", never, "x"},
		"another one, while down": {"!z", never, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				unedited := func(objects ...string) feed.Update[*config.Object] {
					u := (*folders).file(nil, "x.yaml", objects...)
					u.Edited = time.Time{}
					return u
				}
				f := newFolders(t)
				defer f.end()
				if c.after == never {
					x := policy("x")
					x.Origin = config.Origin{Source: "one", File: "x.yaml"}
					went := unedited()
					went.Was = []*config.Object{x}
					say(f.one, true, went, f.file("y.yaml", "y"))
					say(f.two, true, f.file("z.yaml", c.refuses))
				} else {
					say(f.one, true, unedited("x"), f.file("y.yaml", "y"))
					say(f.two, true)
					time.Sleep(time.Minute)
					f.has("x y", "")
					say(f.one, false, unedited())
					time.Sleep(c.after)
					say(f.two, false, f.file("z.yaml", c.refuses))
				}
				f.has(strings.TrimSpace(c.held+" y"), c.held)
				time.Sleep(time.Minute)
				f.forgotten()
				say(f.two, false, f.file("z.yaml"))
				f.has("y", "")
			})
		})
	}
}

// So it is over an end that comes in between, however it came.
func TestGoneUneditedOverStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ago  time.Duration // from the removal to the end
		slip string
		held string
	}{
		"shortly before":              {time.Second, "!x", "x"},
		"long before":                 {5 * time.Second, "!x", ""},
		"shortly before, another one": {time.Second, "!z", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFolders(t)
				store := f.file("x.yaml", "x")
				store.Edited = time.Time{}
				say(f.one, true, store, f.file("y.yaml", "y"))
				say(f.two, true)
				time.Sleep(time.Minute)
				say(f.one, false, feed.Update[*config.Object]{Group: "x.yaml"})
				time.Sleep(c.ago)
				synctest.Wait()
				kept := f.kept.get()
				f.end()
				time.Sleep(time.Hour)
				f = newFolders(t, kept...)
				defer f.end()
				say(f.one, true, f.file("y.yaml", "y"))
				time.Sleep(time.Minute)
				say(f.two, true, f.file("z.yaml", c.slip))
				f.has(strings.TrimSpace(c.held+" y"), c.held)
				time.Sleep(time.Minute)
				say(f.two, false, f.file("z.yaml"))
				f.has("y", "")
			})
		})
	}
}

// What went before the start, or shortly before the end before it, is one change with what was wrong elsewhere when that was first
// read, and with nothing that is edited later, however long proxies wait for some source. What went in the meantime, longer before an
// end than a change takes, is one with nothing after it.
func TestGoneOverStart(t *testing.T) {
	t.Parallel()
	const twoFirst, live = true, false
	for name, c := range map[string]struct {
		ago   time.Duration // from the removal to the end
		slip  bool          // whether the slip is there when the other source is first read
		stays string
	}{
		"shortly before the end, slip while down": {time.Second, twoFirst, "x"},
		"longer before the end, slip while down":  {10 * time.Second, twoFirst, ""},
		"shortly before the end, slip much later": {time.Second, live, ""},
		"longer before the end, slip much later":  {10 * time.Second, live, ""},
	} {
		for _, ready := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, served: %v", name, ready), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					x := policy("x")
					x.Origin = config.Origin{Source: "one", File: "x.yaml"}
					f := newFolders(t)
					say(f.one, true, f.file("x.yaml", "x"), f.file("y.yaml", "y"))
					if ready {
						say(f.two, true)
					}
					time.Sleep(time.Minute)
					say(f.one, false, f.file("x.yaml"))
					time.Sleep(c.ago)
					synctest.Wait()
					kept := f.kept.get()
					f.end()
					time.Sleep(time.Hour)
					f = newFolders(t, kept...)
					defer f.end()
					say(f.one, true, f.file("y.yaml", "y"))
					time.Sleep(time.Minute)
					if c.slip == live {
						wrong := f.file("z.yaml", "!z")
						wrong.Edited = time.Time{}
						say(f.two, true, wrong) // it was so before
						time.Sleep(time.Minute)
					}
					slip := f.file("x.yaml", "!z")
					say(f.two, c.slip == twoFirst, slip)
					f.has(strings.TrimSpace(c.stays+" y"), c.stays)
					time.Sleep(time.Minute)
					f.forgotten()
					say(f.two, false, f.file("x.yaml"))
					f.has("y", "")
				})
			})
		}
	}
}

// What went shortly before the end does not come back while proxies wait for a source on account of what is edited meanwhile.
func TestGoneWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := policy("x")
		x.Origin = config.Origin{Source: "old", File: "x.yaml"}
		f := newFolders(t, push.Held{Object: x, Beside: feed.GroupID{Source: "old", Group: "x.yaml"}, Gone: time.Now()})
		defer f.end()
		say(f.one, true, f.file("y.yaml", "y"))
		time.Sleep(time.Minute)
		say(f.one, false, f.file("y.yaml", "y", "!z"))
		time.Sleep(time.Minute)
		say(f.two, true)
		f.has("y", "")
		time.Sleep(time.Minute)
		if kept := f.kept.get(); len(kept) > 0 {
			t.Errorf("kept are %v", kept)
		}
	})
}

// Of what stood in with what was kept nobody knows when an object was taken away: that is one change with whatever got wrong in
// others since the start. Once its file was seen, what is taken out of it goes.
func TestGoneUnseen(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string][]string{"the whole file": nil, "one of two": {"y"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFolders(t)
				defer f.end()
				kept := f.file("all.yaml", append([]string{"x"}, rest...)...)
				kept.Kept, kept.Edited = true, time.Time{}
				say(f.one, true, kept)
				say(f.two, true, f.file("z.yaml", "!z"))
				y := strings.Join(rest, "")
				f.has(strings.TrimSpace("x "+y), "")
				time.Sleep(time.Minute)
				say(f.one, false, f.file("all.yaml", rest...))
				f.has(strings.TrimSpace("x "+y), "x")
				f.tells("x", "z.yaml of two, which was changed with it")
				say(f.two, false, f.file("z.yaml"))
				f.has(y, "")
				say(f.one, false, f.file("all.yaml", append([]string{"x"}, rest...)...))
				say(f.two, false, f.file("z.yaml", "!z"))
				time.Sleep(time.Minute)
				say(f.one, false, f.file("all.yaml", rest...))
				f.has(y, "")
			})
		})
	}
}

// What went with its source may have moved to one that was read, and is away since: it stays until that is back.
func TestLeftStaysWhileOneIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFolders(t)
		defer f.end()
		say(f.one, true, f.file("x.yaml", "x", "z"))
		say(f.two, true, f.file("y.yaml", "y"))
		f.two.say <- feed.Batch[*config.Object]{Standing: &feed.Standing{Error: "it cannot be asked", Since: time.Now()}}
		f.has("x y z", "")
		if err := f.a.Arrange(t.Context(), push.Sources{Objects: []config.Source{f.two}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		f.has("x y z", "x z")
		f.tells("x", "may stand now in what was not read since, two:")
		f.two.say <- feed.Batch[*config.Object]{Source: "two", Standing: &feed.Standing{}, Updates: []feed.Update[*config.Object]{f.file("x.yaml", "x")}}
		f.has("x y", "")
	})
}
