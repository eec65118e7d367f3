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
)

// twin is an assembler that hears the same as that of some sites, and what a neighbour says besides, and tells what is its own. Nil:
// there is none.
type twin struct {
	t         *testing.T
	random    *rand.Rand
	sources   map[string]*scripted[*config.Object]
	peer      *scripted[*config.Object]
	assembler *push.Assembler
	held      latest[[]push.Held]
	told      latest[*push.Told]
	last      latest[*push.Context]
	end       func()
}

// renew makes another source of a name.
func (w *twin) renew(name string) {
	if w != nil {
		w.sources[name] = newScripted[*config.Object](name)
	}
}

// list are the sources of these names, with the neighbour somewhere among them. He is waited for, or he is not.
func (w *twin) list(names, optional []string) push.Sources {
	out := push.Sources{Optional: slices.Clone(optional)}
	if w.random.IntN(2) == 0 {
		out.Optional = append(out.Optional, w.peer.Name())
	}
	for _, name := range names {
		out.Objects = append(out.Objects, w.sources[name])
	}
	out.Objects = slices.Insert(out.Objects, w.random.IntN(len(out.Objects)+1), config.Source(w.peer))
	return out
}

func (w *twin) begin(names, optional []string, before []feed.Batch[*config.Object]) {
	if w == nil {
		return
	}
	w.peer = newScripted[*config.Object]("peer")
	w.told.set(nil)
	w.last.set(nil)
	w.assembler = push.NewAssembler(push.AssemblerConfig{
		Sources: w.list(names, optional), Mesh: testMesh(), Held: w.held.get(), Before: before,
		Keep:    w.held.set,
		Publish: func(c *push.Context, _ push.Changes) { w.last.set(c) },
		Tell:    &push.Telling{Foreign: func(name string) bool { return name == "peer" }, Publish: func(told push.Told) { w.told.set(&told) }},
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.assembler.Run(ctx) }()
	w.end = func() {
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

func (w *twin) stop() {
	if w != nil {
		w.end()
	}
}

// holds is what it told last to be held.
func (w *twin) holds() []push.Held {
	if w == nil {
		return nil
	}
	return w.held.get()
}

// lose has it begin with what it told to be held before.
func (w *twin) lose(held []push.Held) {
	if w != nil {
		w.held.set(held)
	}
}

// say has a source say something, and the neighbour whatever comes to his mind.
func (w *twin) say(name string, full bool, updates ...feed.Update[*config.Object]) {
	if w == nil {
		return
	}
	w.chatter()
	w.sources[name].say <- feed.Batch[*config.Object]{Full: full, Updates: slices.Clone(updates)}
	synctest.Wait()
	w.chatter()
}

// chatter has the neighbour list something, refuse something, take something back, or be away; or nothing.
func (w *twin) chatter() {
	var updates []feed.Update[*config.Object]
	for _, name := range objectNames {
		u, p := feed.Update[*config.Object]{Group: name}, policy(name)
		switch w.random.IntN(6) {
		case 0:
			u.Items = []*config.Object{p}
		case 1:
			u.Problems = []feed.Problem{{Severity: feed.Error, Object: p.Key.String(), Text: "a slip"}}
		case 2:
		default:
			continue
		}
		updates = append(updates, u)
	}
	switch w.random.IntN(4) {
	case 0:
		return
	case 1:
		w.peer.say <- feed.Batch[*config.Object]{Standing: &feed.Standing{Error: "it is away", Since: time.Now()}}
	default:
		say(w.peer, w.random.IntN(2) == 0, updates...)
	}
	synctest.Wait()
}

func (w *twin) arrange(names, optional []string) {
	if w == nil {
		return
	}
	if err := w.assembler.Arrange(w.t.Context(), w.list(names, optional)); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	w.chatter()
}

// waits says that something that is waited for was not read: nothing is served until then.
func (w *twin) waits() bool {
	return slices.ContainsFunc(w.assembler.Status().Sources, func(s feed.SourceStatus) bool { return s.Required && !s.Synced })
}

// differs says in what it tells something else than what is in use without the neighbour, or what is in use in no version with him;
// or that nobody is told of an object of ours that is held, as it is in use, or told; empty: in nothing.
func (w *twin) differs(c *push.Context, held []push.Held) string {
	if w == nil {
		return ""
	}
	all, with := w.told.get(), w.last.get()
	if all == nil || with == nil && !w.waits() {
		return fmt.Sprintf("told: %v, served: %v", all != nil, with != nil)
	}
	problems := w.assembler.Status().Problems
	for _, h := range held {
		of := func(p feed.Problem) bool {
			return p.Object == h.Object.Key.String() && strings.HasPrefix(p.Text, "is gone ")
		}
		if i := slices.IndexFunc(problems, of); h.Gone.IsZero() && (i < 0 || slices.ContainsFunc(problems[i+1:], of)) {
			return fmt.Sprintf("%s is held, and that is not a problem, or several: %v", h.Object.Name, problems)
		}
	}
	for _, name := range objectNames {
		k := policy(name).Key
		told, used := all.Objects.At(k), c.Inputs().Objects.At(k)
		if (told == nil) != (used == nil) || told != nil && told.Origin != used.Origin {
			return fmt.Sprintf("%s: told is %v, and in use without the neighbour %v", name, originOf(told), originOf(used))
		}
		if told != nil && with != nil && with.Inputs().Objects.At(k) == nil {
			return fmt.Sprintf("%s of %v is told, and with the neighbour not in use in any version", name, originOf(told))
		}
	}
	return ""
}

// Whatever happens to our own sources, and whatever a neighbour says meanwhile: what is told is what would be in use without him, and
// is in use in some version with him.
func TestLawOfOwn(t *testing.T) {
	t.Parallel()
	histories(t, 600, func(s *sites) {
		s.twin = &twin{t: s.t, random: rand.New(rand.NewPCG(s.seed, 2)), sources: map[string]*scripted[*config.Object]{}}
	})
}

// originOf is where an object is from; nil: there is none.
func originOf(o *config.Object) any {
	if o == nil {
		return nil
	}
	return o.Origin
}
