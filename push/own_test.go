package push_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// teller is an assembler of two folders, a neighbour whose word comes before theirs, and two registries; it tells what is its own.
type teller struct {
	*folders
	peer        *scripted[*config.Object]
	first, next *scripted[registry.Instances]
	told        latest[*push.Told]
	tellings    latest[int]
	counted     int // of tellings
}

// newTeller makes one that begins after held was kept; waits says that the neighbour is waited for.
func newTeller(t *testing.T, waits bool, held ...push.Held) *teller {
	f := &folders{t: t, one: newScripted[*config.Object]("one"), two: newScripted[*config.Object]("two")}
	f.kept.set(held)
	n := &teller{folders: f, peer: newScripted[*config.Object]("peer"), first: newScripted[registry.Instances]("first"), next: newScripted[registry.Instances]("next")}
	cfg := push.AssemblerConfig{
		Sources: push.Sources{Objects: []config.Source{n.peer, f.one, f.two}, Instances: []feed.Source[registry.Instances]{n.first, n.next}},
		Mesh:    testMesh(), Held: held, Merging: registry.Merging{Shadow: true},
		Keep:    f.kept.set,
		Publish: func(c *push.Context, _ push.Changes) { f.last.set(c) },
		Tell: &push.Telling{Foreign: func(name string) bool { return name == "peer" }, Services: true, Publish: func(told push.Told) {
			n.told.set(&told)
			n.tellings.set(n.tellings.get() + 1)
		}},
	}
	if !waits {
		cfg.Sources.Optional = []string{"peer"}
	}
	f.run(cfg)
	return n
}

// word is what the neighbour says of policies of these names.
func (n *teller) word(names ...string) feed.Update[*config.Object] {
	u := n.file("c", names...)
	u.Edited = time.Time{}
	return u
}

// registries have the two say that they have nothing, or what is given of the first.
func (n *teller) registries(updates ...feed.Update[registry.Instances]) {
	n.first.say <- services(true, updates...)
	n.next.say <- services(true)
}

// more is how many times something was told since it was last asked.
func (n *teller) more() int {
	was := n.counted
	n.counted = n.tellings.get()
	return n.counted - was
}

// tells checks which policies are told, each with its source, and that something was told so many times more.
func (n *teller) tells(what, want string, more int) {
	n.t.Helper()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
	times := n.more()
	var got []string
	if told := n.told.get(); told != nil {
		for _, o := range told.Objects.All() {
			got = append(got, o.Name+" of "+o.Origin.Source)
		}
	}
	if g := strings.Join(got, ", "); g != want || times != more {
		n.t.Errorf("%s: told are %q, %d times; want %q, %d times", what, g, times, want, more)
	}
}

// What is told is what is in use without the neighbour, and is told without waiting for him; nothing that he says has it told anew.
func TestTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTeller(t, true)
		defer n.end()
		n.registries()
		say(n.one, true, n.file("a", "x"))
		n.tells("a folder is missing", "", 0)
		say(n.two, true, n.file("b", "x", "y"))
		n.tells("the neighbour is missing", "x of one, y of two", 1)
		if n.last.get() != nil {
			t.Error("proxies are served before the neighbour has said anything")
		}
		say(n.peer, true, n.word("x", "z"))
		n.tells("he has one of them, and another one", "x of one, y of two", 0)
		if o := n.last.get().Inputs().Objects.At(policy("x").Key); o.Origin.Source != "peer" {
			t.Errorf("in use is that of %s", o.Origin.Source)
		}
		say(n.one, true)
		n.tells("the first folder has it no more", "x of two, y of two", 1)
		say(n.peer, true)
		n.tells("he has nothing any more", "x of two, y of two", 0)
		n.has("x y", "")
	})
}

// What is held is told for as long as it would be held without the neighbour, also while that which he has is in use, and over a
// start; afterwards it is in use again.
func TestToldHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTeller(t, false)
		n.registries()
		say(n.one, true, n.file("a", "x"))
		say(n.two, true, n.file("b", "y"))
		n.tells("all", "x of one, y of two", 1)
		say(n.two, false, n.file("b", "y", "!x"))
		synctest.Wait()
		say(n.one, true, n.file("a"))
		n.tells("one moves, with a slip", "x of one, y of two", 0)
		n.has("x y", "x")
		say(n.peer, true, n.word("x"))
		n.tells("the neighbour has it", "x of one, y of two", 0)
		if o := n.last.get().Inputs().Objects.At(policy("x").Key); o.Origin.Source != "peer" {
			t.Errorf("in use is that of %s", o.Origin.Source)
		}
		n.has("x y", "x")
		n.folders.tells("x", "is refused where it stands now: its last good version is still told to others; mend it there, or take it out there too; in use is that of peer")
		n.end()

		n = newTeller(t, false, n.kept.get()...)
		defer n.end()
		n.registries()
		say(n.one, true)
		say(n.two, true, n.file("b", "y", "!x"))
		say(n.peer, true, n.word("x"))
		n.tells("after a start", "x of one, y of two", 1)
		n.folders.tells("x", "is still told to others")
		say(n.peer, true)
		n.tells("the neighbour has it no more", "x of one, y of two", 0)
		n.folders.tells("x", "is refused where it stands now: its last good version stays in use")
		if o := n.last.get().Inputs().Objects.At(policy("x").Key); o == nil || o.Origin.Source != "one" {
			t.Errorf("in use is %v", o)
		}
		say(n.two, false, n.file("b", "y"))
		say(n.peer, true, n.word("x"))
		n.tells("it is taken out there too", "y of two", 1)
		n.has("x y", "")
		if all := n.a.Status().Problems; len(all) > 0 {
			t.Errorf("problems are left: %v", all)
		}
	})
}

// What the neighbour has is not told when it stays in use although he has it no more.
func TestForeignHeldIsNotTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTeller(t, false)
		n.registries()
		say(n.one, true)
		say(n.two, true, n.file("b", "y", "!x"))
		say(n.peer, true, n.word("x"))
		n.tells("the neighbour's own", "y of two", 1)
		say(n.peer, true)
		n.tells("it is held", "y of two", 0)
		n.has("x y", "x")
		n.end()
		n = newTeller(t, false, n.kept.get()...)
		defer n.end()
		n.registries()
		say(n.one, true)
		say(n.two, true, n.file("b", "y", "!x"))
		n.tells("and after a start", "y of two", 1)
		n.has("x y", "x")
	})
}

// What of our own may stand now at the neighbour, where that is not known or something is wrong, stays in use and is not told, over a
// start too; it goes once he is read and all is well there.
func TestHeldForNeighbourIsNotTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leaves bool // x goes with its source
		before func(n *teller)
		text   string
	}{
		"he refuses it":            {false, func(n *teller) { say(n.peer, true, n.word("!x")) }, "is refused where it stands now"},
		"he has a slip besides it": {false, func(n *teller) { say(n.peer, true, n.file("c", "!z")) }, "c of peer, which was changed with it, has an error"},
		"he was not read":          {true, func(*teller) {}, "may stand now in what was not read since, peer:"},
		"he is away": {true, func(n *teller) {
			say(n.peer, true, n.word("z"))
			n.peer.say <- feed.Batch[*config.Object]{Standing: &feed.Standing{Error: "it is away", Since: time.Now()}}
		}, "may stand now in what was not read since, peer:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newTeller(t, false)
				n.registries()
				say(n.two, true, n.file("b", "y"))
				say(n.one, true, n.file("a", "x"))
				n.tells("all", "x of one, y of two", 1)
				c.before(n)
				synctest.Wait()
				if c.leaves {
					n.lists(n.peer, n.two)
					time.Sleep(time.Second) // the length of one change
				} else {
					say(n.one, false, n.file("a"))
				}
				n.tells("it goes", "y of two", 1)
				n.keeps("x", c.text)
				n.end()

				n = newTeller(t, false, n.kept.get()...)
				defer n.end()
				n.registries()
				say(n.one, true)
				say(n.two, true, n.file("b", "y"))
				n.tells("after a start", "y of two", 1)
				n.keeps("x", "peer")
				say(n.peer, true)
				n.tells("he is read", "y of two", 0)
				n.has("y", "")
			})
		})
	}
}

// lists has the list of sources of configuration be these.
func (n *teller) lists(objects ...config.Source) {
	n.t.Helper()
	if err := n.a.Arrange(n.t.Context(), push.Sources{Objects: objects, Instances: []feed.Source[registry.Instances]{n.first, n.next}, Optional: []string{"peer"}}); err != nil {
		n.t.Fatal(err)
	}
}

// keeps checks that a policy is held, in use, and that people are told why.
func (n *teller) keeps(name, text string) {
	n.t.Helper()
	if n.last.get().Inputs().Objects.At(policy(name).Key) == nil || !slices.ContainsFunc(n.kept.get(), func(h push.Held) bool { return h.Object.Name == name && h.Gone.IsZero() && h.Untold }) {
		n.t.Errorf("%s is not in use, or not held untold: %v", name, n.kept.get())
	}
	n.folders.tells(name, text)
}

// What is held of our own is in use too, also where the neighbour had a version of it, and took that away before it was known that
// ours is held.
func TestToldHeldIsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTeller(t, false)
		defer n.end()
		n.registries()
		say(n.one, true, n.file("a", "x"))
		say(n.two, true, n.file("b", "y"))
		say(n.peer, true, n.word("x"))
		time.Sleep(5 * time.Second)
		n.tells("all", "x of one, y of two", 1)
		say(n.one, false, n.file("a"))
		synctest.Wait()
		say(n.peer, true)
		n.tells("nobody has it", "y of two", 1)
		n.has("y", "")
		say(n.two, false, n.file("b", "y", "!z"))
		n.tells("the rest of the change, with a slip", "x of one, y of two", 1)
		n.has("x y", "x")
		say(n.two, false, n.file("b", "y"))
		n.tells("it is mended", "y of two", 1)
		n.has("y", "")
	})
}

// What was taken away is not told again after a start, whatever is wrong by then, also where nothing is in force yet because a neighbour
// is waited for: others were told that it is gone.
func TestGoneIsNotToldAgain(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"he is waited for": true, "he is not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newTeller(t, waits)
				n.registries()
				went, x := n.file("a"), policy("x")
				x.Origin = config.Origin{Source: "one", File: "a"}
				went.Was = []*config.Object{x}
				say(n.one, true, went)
				say(n.two, true, n.file("b", "y"))
				n.tells("it was taken away while nobody looked", "y of two", 1)
				time.Sleep(time.Hour)
				synctest.Wait()
				kept := n.kept.get()
				n.end()

				n = newTeller(t, waits, kept...)
				defer n.end()
				n.registries()
				say(n.one, true, n.file("a"))
				say(n.two, true, n.file("b", "y", "!x"))
				n.tells("a slip, an hour later", "y of two", 1)
			})
		})
	}
}

// Services are told as registries have them, whatever declares them: in the namespace of the first, and merged.
func TestToldServices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTeller(t, false)
		defer n.end()
		elsewhere := func(host string, addresses ...string) feed.Update[registry.Instances] {
			u := instances(host, addresses...)
			u.Items[0].Service.Namespace = "b"
			return u
		}
		say(n.one, true)
		say(n.two, true)
		n.registries(instances("web", "10.0.0.1"))
		check := func(what string, more int, want ...string) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			times, told := n.more(), n.told.get()
			var got []string
			for k, l := range told.Endpoints.All() {
				got = append(got, fmt.Sprint(k.Host, " in ", k.Namespace, addressesOf(l)))
			}
			if !slices.Equal(got, want) || told.Services.Len() != len(want) || times != more {
				t.Errorf("%s: %v, %d times; want %v, %d times", what, got, times, want, more)
			}
		}
		check("one", 1, "web in a[10.0.0.1]")
		n.next.say <- services(true, elsewhere("web", "10.0.0.2"), elsewhere("db", "10.0.0.3"))
		check("two", 1, "db in b[10.0.0.3]", "web in a[10.0.0.1]")
		n.next.say <- services(true, elsewhere("web", "10.0.0.4"), elsewhere("db", "10.0.0.3"))
		check("what the first one shadows", 0, "db in b[10.0.0.3]", "web in a[10.0.0.1]")
		n.first.say <- services(true)
		check("the first one has it no more", 1, "db in b[10.0.0.3]", "web in b[10.0.0.4]")
		n.first.say <- services(true, instances("web", "10.0.0.5"))
		check("and again", 1, "db in b[10.0.0.3]", "web in a[10.0.0.5]")
		if err := n.a.Arrange(t.Context(), push.Sources{Objects: []config.Source{n.peer, n.one, n.two}, Instances: []feed.Source[registry.Instances]{n.next, n.first}, Optional: []string{"peer"}}); err != nil {
			t.Fatal(err)
		}
		check("the other way round", 1, "db in b[10.0.0.3]", "web in b[10.0.0.4]")
		n.next.say <- services(true)
		check("the end of one", 1, "web in a[10.0.0.5]")
	})
}

// The services of a registry that is taken out of the list are told for as long as one of our own is missing that came, and no longer,
// whether a neighbour was read or not. When it is back it is told as it says from then on, and not as it said before.
func TestToldServicesOfWhatLeft(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"the neighbour is waited for": true, "he is not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newTeller(t, waits)
				defer n.end()
				say(n.one, true)
				say(n.two, true)
				n.registries(instances("web", "10.0.0.1"))
				hosts := func(what, want string) {
					t.Helper()
					time.Sleep(time.Minute)
					synctest.Wait()
					var got []string
					for k := range n.told.get().Services.All() {
						got = append(got, k.Host)
					}
					if g := strings.Join(got, " "); g != want {
						t.Errorf("%s: told are %q, want %q", what, g, want)
					}
				}
				arrange := func(instances ...feed.Source[registry.Instances]) {
					t.Helper()
					s := push.Sources{Objects: []config.Source{n.peer, n.one, n.two}, Instances: instances}
					if !waits {
						s.Optional = []string{"peer"}
					}
					if err := n.a.Arrange(t.Context(), s); err != nil {
						t.Fatal(err)
					}
				}
				hosts("all", "web")
				third := newScripted[registry.Instances]("third")
				arrange(n.next, third)
				hosts("another one came in its place, and was not read yet", "web")
				third.say <- services(true, instances("db", "10.0.0.2"))
				hosts("it was read", "db")
				first := newScripted[registry.Instances]("first")
				arrange(first, n.next)
				hosts("it is back, in the place of the other one, and was not read yet", "db")
				first.say <- services(true, instances("cache", "10.0.0.3"))
				hosts("it was read too", "cache")
				say(n.peer, true)
				hosts("the neighbour was read", "cache")
				if got := n.last.get().Inputs().Services.Len(); got != 1 {
					t.Errorf("%d services are in use", got)
				}
			})
		})
	}
}
