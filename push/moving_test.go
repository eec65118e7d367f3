package push_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// market are registries by name that come, go and change among the sources of an assembler.
type market struct {
	t     *testing.T
	a     *push.Assembler
	says  map[string]*scripted[registry.Instances]
	last  latest[*push.Context]
	empty []string // hosts of which a context had no endpoints, of those that must have some
	must  latest[[]string]
	end   func()
}

func newMarket(t *testing.T, names ...string) *market {
	m := &market{t: t, says: map[string]*scripted[registry.Instances]{}}
	m.a = push.NewAssembler(push.AssemblerConfig{Sources: m.list(names...), Mesh: testMesh(), Publish: func(c *push.Context, _ push.Changes) {
		m.last.set(c)
		for _, host := range m.must.get() {
			if len(addressesOf(c.Inputs().Endpoints.At(registry.Key{Host: host, Namespace: "a"}))) == 0 {
				m.empty = append(m.empty, host)
			}
		}
	}})
	m.end = running(t, m.a)
	return m
}

// list are sources of these names, anew those that begin with "+".
func (m *market) list(names ...string) (s push.Sources) {
	for _, name := range names {
		name, anew := strings.CutPrefix(name, "+")
		if m.says[name] == nil || anew {
			m.says[name] = newScripted[registry.Instances](name)
		}
		s.Instances = append(s.Instances, m.says[name])
	}
	return s
}

func (m *market) arrange(names ...string) {
	m.t.Helper()
	m.change(m.list(names...))
}

func (m *market) change(s push.Sources) {
	m.t.Helper()
	synctest.Wait() // what was said is heard
	if err := m.a.Arrange(m.t.Context(), s); err != nil {
		m.t.Fatal(err)
	}
}

// has checks all that is in use, each host with its addresses, and what people are told that stays, by source.
func (m *market) has(what, want, stays string) {
	m.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	var got, told []string
	for k, l := range m.last.get().Inputs().Endpoints.All() {
		got = append(got, fmt.Sprint(k.Host, " ", strings.Join(addressesOf(l), "+")))
	}
	s := m.a.Status()
	for _, p := range s.Problems {
		told = append(told, p.Source)
	}
	if g, p := strings.Join(got, ", "), strings.Join(told, " "); g != want || p != stays {
		m.t.Errorf("%s: in use are %q, and told of are %q; want %q and %q", what, g, p, want, stays)
	}
	for _, one := range s.Sources {
		if m.says[one.Name] == nil {
			m.t.Errorf("%s: %s is a source", what, one.Name)
		}
	}
}

// What moves from one registry to another by a change of the list is in use at every moment, whoever is read first.
func TestServicesMove(t *testing.T) {
	t.Parallel()
	a, b := instances("a", "10.0.0.1"), instances("b", "10.0.0.2")
	for name, move := range map[string]func(m *market){
		"split, the rest first": func(m *market) {
			m.arrange("+one", "oneb")
			m.has("nothing was read", "a 10.0.0.1, b 10.0.0.2", "")
			m.says["one"].say <- services(true, a)
			m.has("one was read", "a 10.0.0.1, b 10.0.0.2", "one")
			m.says["oneb"].say <- services(true, b)
		},
		"split, the new one first": func(m *market) {
			m.arrange("+one", "oneb")
			m.says["oneb"].say <- services(true, b)
			m.says["one"].say <- services(true, a)
		},
		"swap": func(m *market) {
			m.arrange("+one", "oneb")
			m.says["one"].say <- services(true, a)
			m.says["oneb"].say <- services(true, b)
			m.arrange("+one", "+oneb")
			m.says["one"].say <- services(true, b)
			m.has("one was read", "a 10.0.0.1, b 10.0.0.2", "one")
			m.says["oneb"].say <- services(true, a)
		},
		"swap, while what was kept of one stands in": func(m *market) {
			m.arrange("+one", "oneb")
			m.says["one"].say <- services(true, a)
			m.says["oneb"].say <- services(true, b)
			m.arrange("+one", "+oneb")
			kept := b
			kept.Kept = true
			m.says["oneb"].say <- services(true, kept)
			m.says["one"].say <- services(true, b)
			m.has("the other one is not", "a 10.0.0.1, b 10.0.0.2", "one")
			m.says["oneb"].say <- services(true, a)
		},
		"to one that nothing waits for": func(m *market) {
			s := m.list("+one", "oneb")
			s.Optional = []string{"oneb"}
			m.change(s)
			m.says["one"].say <- services(true, a)
			m.has("it was not read", "a 10.0.0.1, b 10.0.0.2", "one")
			m.says["oneb"].say <- services(true, b)
		},
		"there, and back before it was read": func(m *market) {
			m.arrange("+one", "oneb")
			m.says["one"].say <- services(true, a)
			m.arrange("+one")
			m.has("nothing was read", "a 10.0.0.1, b 10.0.0.2", "one")
			m.says["one"].say <- services(true, a, b)
		},
		"out and in again, in two": func(m *market) {
			m.arrange("other")
			m.arrange("+one", "oneb", "other")
			m.says["one"].say <- services(true, a)
			m.says["other"].say <- services(true)
			m.has("the new one was not read", "a 10.0.0.1, b 10.0.0.2", "one")
			m.says["oneb"].say <- services(true, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMarket(t, "one")
				defer m.end()
				m.says["one"].say <- services(true, a, b)
				m.has("at first", "a 10.0.0.1, b 10.0.0.2", "")
				m.must.set([]string{"a", "b"})
				move(m)
				m.has("in the end", "a 10.0.0.1, b 10.0.0.2", "")
				if len(m.empty) > 0 {
					t.Errorf("%v had no endpoints for a moment", m.empty)
				}
			})
		})
	}
}

// Only what nobody says any more stays: of all else what sources say counts at once, and what none of them has goes when all were read.
func TestServicesMoveAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarket(t, "one", "other")
		defer m.end()
		m.says["one"].say <- services(true, instances("a", "10.0.0.1"), instances("b", "10.0.0.2"), instances("c", "10.0.0.3"))
		m.says["other"].say <- services(true)
		m.has("at first", "a 10.0.0.1, b 10.0.0.2, c 10.0.0.3", "")
		m.arrange("+one", "oneb", "onec", "other")
		m.says["one"].say <- services(true, instances("a", "10.0.0.9"))
		m.has("one was read", "a 10.0.0.9, b 10.0.0.2, c 10.0.0.3", "one")
		m.says["one"].say <- services(false, feed.Update[registry.Instances]{Group: "a"})
		m.has("one has it no more", "b 10.0.0.2, c 10.0.0.3", "one")
		m.says["oneb"].say <- services(true, instances("b", "10.0.0.8"))
		m.has("another one was read, and more of it may be on its way", "b 10.0.0.8+10.0.0.2, c 10.0.0.3", "one")
		time.Sleep(10 * time.Second)
		m.has("none is", "b 10.0.0.8, c 10.0.0.3", "one")
		kept := instances("c", "10.0.0.7")
		kept.Kept = true
		m.says["onec"].say <- services(true, kept)
		m.has("what was kept of one stands in", "b 10.0.0.8, c 10.0.0.7+10.0.0.3", "one")
		m.says["oneb"].say <- services(false, instances("c", "10.0.0.6"))
		m.has("another one has that too", "b 10.0.0.8, c 10.0.0.6+10.0.0.7", "")
		m.says["onec"].say <- services(true)
		m.has("all were read", "b 10.0.0.8, c 10.0.0.6", "")
	})
}

// What is gone because it is too old by the settings does not stay because its source has changed.
func TestServicesTooOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarket(t, "one")
		defer m.end()
		m.says["one"].say <- services(true, instances("a", "10.0.0.1"), instances("b", "10.0.0.2"))
		m.has("at first", "a 10.0.0.1, b 10.0.0.2", "")
		m.arrange("+one")
		m.has("the new one was not read", "a 10.0.0.1, b 10.0.0.2", "")
		gone := services(true, feed.Update[registry.Instances]{Group: "(others)", Kept: true})
		gone.Standing = &feed.Standing{Error: "it is away; its content counts as gone", Since: time.Now()}
		m.says["one"].say <- gone
		m.has("what it had is too old", "", "one")
		m.says["one"].say <- feed.Batch[registry.Instances]{Full: true, Standing: &feed.Standing{}}
		m.has("it is back", "", "")
	})
}

// departing is a registry that says at its end that it has nothing.
type departing struct{ *scripted[registry.Instances] }

func (d departing) Run(ctx context.Context, out chan<- feed.Batch[registry.Instances]) error {
	err := d.scripted.Run(ctx, out)
	out <- feed.Batch[registry.Instances]{Source: d.name, Full: true}
	return err
}

// What a source says at its end is no word of the one that has its place.
func TestLastWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMarket(t, "other")
		defer m.end()
		m.says["other"].say <- services(true)
		old := departing{newScripted[registry.Instances]("one")}
		m.change(push.Sources{Instances: []feed.Source[registry.Instances]{old, m.says["other"]}})
		m.says["one"] = old.scripted
		old.say <- services(true, instances("a", "10.0.0.1"))
		m.must.set([]string{"a"})
		m.has("at first", "a 10.0.0.1", "")
		m.arrange("+one", "other")
		m.has("the new one was not read", "a 10.0.0.1", "")
		m.says["one"].say <- services(true)
		m.must.set(nil)
		m.has("it was", "", "")
	})
}

// Whatever happens to registries of our own and to the list: what is told of their services is what is in use without a neighbour that
// is waited for.
func TestLawOfOwnServices(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { ownServices(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

// ownServices is one history.
func ownServices(t *testing.T, r *rand.Rand) {
	alone, peer := newMarket(t, "one"), newScripted[*config.Object]("peer")
	defer alone.end()
	with := &market{t: t, says: map[string]*scripted[registry.Instances]{}}
	var told latest[*push.Told]
	s := with.list("one")
	s.Objects = []config.Source{peer}
	with.a = push.NewAssembler(push.AssemblerConfig{Sources: s, Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {}, Tell: &push.Telling{
		Foreign: func(name string) bool { return name == "peer" }, Services: true, Publish: func(now push.Told) { told.set(&now) }}})
	defer running(t, with.a)()
	names := []string{"one"}
	for step := range 25 {
		switch r.IntN(5) {
		case 0:
			peer.say <- feed.Batch[*config.Object]{Full: true}
		case 1, 2:
			names = names[:0]
			var changed []string
			for _, name := range []string{"one", "two", "three"} {
				if r.IntN(4) == 0 {
					continue
				}
				names = append(names, name)
				if r.IntN(2) == 0 {
					name = "+" + name
				}
				changed = append(changed, name)
			}
			alone.arrange(changed...)
			s := with.list(changed...)
			if r.IntN(3) == 0 {
				peer = newScripted[*config.Object]("peer")
			}
			s.Objects = []config.Source{peer}
			with.change(s)
		default:
			if len(names) == 0 {
				continue
			}
			var said []feed.Update[registry.Instances]
			name := names[r.IntN(len(names))]
			for _, host := range []string{"a", "b", "c"} {
				if r.IntN(2) == 0 {
					u := instances(host, fmt.Sprintf("10.0.0.%d", r.IntN(3)))
					u.Kept = r.IntN(4) == 0
					said = append(said, u)
				}
			}
			alone.says[name].say <- services(true, slices.Clone(said)...)
			with.says[name].say <- services(true, said...)
		}
		time.Sleep(time.Duration(1+r.IntN(5)) * time.Second)
		synctest.Wait()
		if want, got := inUse(alone.last.get()), toldServices(told.get()); want != got {
			t.Fatalf("step %d: told are %q, and in use without the neighbour %q", step, got, want)
		}
	}
}

func inUse(c *push.Context) string {
	if c == nil {
		return "nothing yet"
	}
	return listed(c.Inputs().Endpoints)
}

func toldServices(told *push.Told) string {
	if told == nil {
		return "nothing yet"
	}
	return listed(told.Endpoints)
}

func listed(all push.Endpoints) string {
	var out []string
	for k, l := range all.All() {
		out = append(out, fmt.Sprint(k.Host, addressesOf(l)))
	}
	return strings.Join(out, " ")
}
