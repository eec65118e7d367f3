package push_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
)

// form is what stands of an object in a file of its own.
type form int

const (
	nothing form = iota
	right
	slipped // the object, with an error
	renamed // another object, with an error
)

// site is a source as operators see it: files, an origin that may be away, and what was kept of it.
type site struct {
	name   string
	files  map[string]form
	kept   map[string]bool // objects of which a last good version is kept
	known  map[string]form // the files as they were read last
	edited map[string]time.Time
	went   map[string]time.Time // when objects went from their files
	away   bool
	began  bool // it has said everything at some time
	source *scripted[*config.Object]
}

func newSite(name string) *site {
	return &site{name: name, files: map[string]form{}, kept: map[string]bool{}, known: map[string]form{}, edited: map[string]time.Time{}, went: map[string]time.Time{}}
}

// item is an object in its file.
func (s *site) item(name string) *config.Object {
	p := policy(name)
	p.Origin.File = name + ".yaml"
	return p
}

// update is what a source says of a file, as package filestore does.
func (s *site) update(name string, now time.Time) feed.Update[*config.Object] {
	if f, known := s.known[name]; !known || f != s.files[name] {
		s.edited[name] = now
	}
	u := feed.Update[*config.Object]{Group: name + ".yaml", Edited: s.edited[name]}
	if s.kept[name] && s.files[name] == nothing {
		s.went[name] = now
	}
	refused := map[form]string{slipped: name, renamed: "other-" + name}[s.files[name]]
	s.kept[name] = s.files[name] == right || refused != "" && s.kept[name]
	if s.kept[name] {
		u.Items = append(u.Items, s.item(name))
	}
	if refused != "" {
		u.Problems = []feed.Problem{{Severity: feed.Error, Object: policy(refused).Key.String(), Text: "a slip", Stale: s.kept[name]}}
	}
	if s.known[name] = s.files[name]; s.files[name] == nothing {
		delete(s.known, name)
	}
	return u
}

// amid says that something happened so shortly before the end of ashored that it may be one change with what came after that.
func amid(at, ended time.Time) bool { return !at.After(ended) && ended.Sub(at) <= time.Second }

// all is what it says at its start: what its files say, and what went while it did not run or shortly before; or, when it is away,
// what was kept. False: there is nothing to say. What was edited shortly before it ended is as what was edited while it did not run.
func (s *site) all(ended time.Time) ([]feed.Update[*config.Object], bool) {
	var out []feed.Update[*config.Object]
	if !s.away {
		for _, name := range objectNames {
			if _, there := s.files[name]; there && amid(s.edited[name], ended) {
				s.edited[name] = time.Now()
			}
			_, there := s.files[name]
			if _, known := s.known[name]; !there && !known && !amid(s.went[name], ended) {
				continue
			}
			u := s.update(name, time.Now())
			if went := s.went[name]; s.files[name] == nothing && (amid(went, ended) || went.Equal(u.Edited)) {
				u.Edited, u.Was = went, []*config.Object{s.item(name)}
			}
			out = append(out, u)
		}
		s.began = true
		return out, true
	}
	for name := range s.known {
		u := feed.Update[*config.Object]{Group: name + ".yaml", Kept: true}
		if s.kept[name] {
			u.Items = append(u.Items, s.item(name))
		}
		out = append(out, u)
	}
	return append(out, feed.Update[*config.Object]{Group: "(others)", Kept: true}), s.began
}

// latest is what was said last. Safe for concurrent use.
type latest[T any] struct {
	mu  sync.Mutex
	now T // guarded by mu
}

func (l *latest[T]) set(now T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = now
}

func (l *latest[T]) get() T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// sites are the sources, an assembler that begins anew again and again, and what operators may rely on.
type sites struct {
	t        *testing.T
	seed     uint64
	random   *rand.Rand
	sites    map[string]*site
	list     []string
	optional []string
	log      []string

	assembler *push.Assembler
	last      *push.Context
	held      latest[[]push.Held]
	running   bool
	ended     time.Time // when the last one ended; zero: it has not
	end       func()

	meant map[string]bool // nobody has said that it goes
	inUse map[string]bool
	blind bool // when it was looked last, nothing was served

	twin *twin // nil: there is none
}

var objectNames = []string{"w", "x", "y", "z"}

func newSites(t *testing.T, seed uint64) *sites {
	s := &sites{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), sites: map[string]*site{}, meant: map[string]bool{}, inUse: map[string]bool{}}
	for _, name := range []string{"a", "b", "c"} {
		s.sites[name] = newSite(name)
		if s.random.IntN(2) == 0 {
			s.optional = append(s.optional, name)
		}
	}
	s.list = []string{"a", "b"}
	return s
}

// sources are those of the list; of the names that are new a source begins anew.
func (s *sites) sources(anew func(name string) bool) push.Sources {
	out := push.Sources{Optional: s.optional}
	for _, name := range s.list {
		if anew(name) {
			s.sites[name].source = newScripted[*config.Object](name)
			s.twin.renew(name)
		}
		out.Objects = append(out.Objects, s.sites[name].source)
	}
	return out
}

// begin starts an assembler. What was kept of sources that are not in the list any more comes before.
func (s *sites) begin() {
	var before []feed.Batch[*config.Object]
	for _, name := range slices.Sorted(maps.Keys(s.sites)) {
		if one := s.sites[name]; !slices.Contains(s.list, name) && one.began {
			var kept []string
			for o, is := range one.kept {
				if is {
					kept = append(kept, o)
				}
			}
			before = append(before, said(name, kept...))
		}
	}
	s.last = nil
	s.assembler = push.NewAssembler(push.AssemblerConfig{
		Sources: s.sources(func(string) bool { return true }), Mesh: testMesh(), Held: s.held.get(), Before: before,
		Keep: s.held.set,
		Left: func(names []string) {
			for _, name := range names {
				s.sites[name].kept, s.sites[name].known, s.sites[name].began = map[string]bool{}, map[string]form{}, false
			}
		},
		Publish: func(c *push.Context, _ push.Changes) { s.last = c },
	})
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.assembler.Run(ctx) }()
	s.running = true
	s.end = func() {
		synctest.Wait()
		s.running = false
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		s.ended = time.Now()
		s.twin.stop()
	}
	s.twin.begin(s.list, s.optional, before)
	for _, i := range s.random.Perm(len(s.list)) {
		s.first(s.list[i])
	}
}

// says has a source say something, and that of the twin the same.
func (s *sites) says(one *site, full bool, updates ...feed.Update[*config.Object]) {
	for _, u := range updates {
		for _, o := range u.Was {
			o.Origin.Source = one.name
		}
	}
	say(one.source, full, updates...)
	s.twin.say(one.name, full, updates...)
}

// first has a source say what it says at its start.
func (s *sites) first(name string) {
	if all, ok := s.sites[name].all(s.ended); ok {
		s.says(s.sites[name], true, all...)
	}
	limit := 3000
	if time.Since(s.ended) < time.Minute && len(s.optional) > 0 { // what comes with a change in others is not waited for
		limit = 300
	}
	time.Sleep(time.Duration(s.random.IntN(limit)) * time.Millisecond)
}

// write puts something into files of a source; it says so when it is there.
func (s *sites) write(name string, object string, f form) {
	one := s.sites[name]
	if one.files[object] = f; f == nothing {
		delete(one.files, object)
	}
	if s.running && !one.away && slices.Contains(s.list, name) {
		s.says(one, false, one.update(object, time.Now()))
	}
}

// back has a source that was away say what is there now: everything, or what was not seen and what is others.
func (s *sites) back(name string) {
	one := s.sites[name]
	one.away = false
	if !slices.Contains(s.list, name) {
		return
	}
	if !one.began || s.random.IntN(2) == 0 {
		s.first(name)
		return
	}
	names := maps.Clone(one.files)
	maps.Copy(names, one.known)
	out := []feed.Update[*config.Object]{{Group: "(others)"}}
	for object := range names {
		out = append(out, one.update(object, time.Now()))
	}
	s.says(one, false, out...)
}

// where lists the sources in the list that have an object, or what became of it.
func (s *sites) where(object string) (out []string) {
	for _, name := range s.list {
		if s.sites[name].files[object] != nothing {
			out = append(out, name)
		}
	}
	return out
}

// step is one thing that happens.
func (s *sites) step() {
	object := objectNames[s.random.IntN(len(objectNames))]
	name := s.list[s.random.IntN(len(s.list))]
	to, at := s.sites[name], s.where(object)
	what := s.random.IntN(10)
	say := func(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }
	switch {
	case what <= 2 && !to.away && len(at) == 0:
		say("%s is made in %s", object, name)
		s.write(name, object, right)
		s.meant[object] = true
	case what <= 4 && !to.away && len(at) == 1 && !s.sites[at[0]].away:
		f := []form{right, slipped, renamed}[s.random.IntN(3)]
		if f == renamed && !s.inUse[object] {
			f = slipped
		}
		say("%s goes from %s to %s as %d", object, at[0], name, f)
		if name == at[0] {
			s.write(name, object, f)
			break
		}
		first, second := func() { s.write(at[0], object, nothing) }, func() { s.write(name, object, f) }
		if s.random.IntN(2) == 0 {
			say("%s first", name)
			first, second = second, first
		}
		s.oneChange(first, second)
	case what == 5 && len(at) == 1 && !s.sites[at[0]].away:
		say("%s is taken out of %s", object, at[0])
		plain := s.sites[at[0]].files[object] == right
		s.meant[object] = false
		if removal := func() { s.write(at[0], object, nothing) }; s.away() { // a slip that nobody sees may be one change with it
			removal()
		} else {
			s.oneChange(removal)
		}
		s.settle()
		if plain && s.last != nil && s.inUse[object] {
			s.fail("%s was taken away plainly, and is in use", object)
		}
	case what == 6 && to.away:
		say("%s is back", name)
		s.back(name)
	case what == 6:
		say("%s is away", name)
		to.away = true
	case what == 7:
		s.relist()
		say("the list is %v", s.list)
		s.arrange()
	case what == 8:
		s.end()
		if s.random.IntN(2) == 0 {
			s.relist()
		}
		say("it starts anew, with %v", s.list)
		s.begin()
	}
}

// oneChange does the parts of a change. ashored may be killed amid it, and what was told to be held a moment before then, or let go, is
// not on the disk; where something was held before that is so written before what sources say.
func (s *sites) oneChange(parts ...func()) {
	killed := len(parts) + 1
	if s.random.IntN(2) == 0 {
		killed = s.random.IntN(len(parts) + 1)
	}
	synctest.Wait()
	held, twins := s.held.get(), s.twin.holds()
	for i, part := range append(parts, func() {}) {
		if i == killed {
			s.end()
			lost := len(held) == 0 && s.random.IntN(2) == 0
			if lost {
				s.held.set(held)
				s.twin.lose(twins)
			}
			s.log = append(s.log, fmt.Sprintf("it is killed after %d of %d parts, and what was told to be held last is lost: %v", i, len(parts), lost))
		}
		synctest.Wait()
		held, twins = s.held.get(), s.twin.holds()
		part()
		time.Sleep(time.Duration(s.random.IntN(900/len(parts))) * time.Millisecond)
	}
	if !s.running {
		s.begin()
	}
}

// relist makes another list. What goes with a source, and is in none that is in the list, right or with a slip, is meant to go.
func (s *sites) relist() {
	before := map[string][]string{}
	for _, object := range objectNames {
		before[object] = s.where(object)
	}
	names := slices.Sorted(maps.Keys(s.sites))
	s.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	s.list = names[:1+s.random.IntN(len(names))]
	for _, object := range objectNames {
		goes := slices.ContainsFunc(before[object], func(name string) bool { return !slices.Contains(s.list, name) })
		if goes && !slices.ContainsFunc(s.where(object), func(name string) bool { return s.sites[name].files[object] != renamed }) {
			s.meant[object] = false
		}
	}
}

// arrange has the assembler take the list in.
func (s *sites) arrange() {
	had := map[string]bool{}
	for _, one := range s.assembler.Status().Sources {
		had[one.Name] = true
	}
	if err := s.assembler.Arrange(s.t.Context(), s.sources(func(name string) bool { return !had[name] })); err != nil {
		s.t.Fatal(err)
	}
	s.twin.arrange(s.list, s.optional)
	synctest.Wait()
	for _, name := range s.list {
		if !had[name] {
			s.first(name)
		}
	}
}

// away says that one in the list is.
func (s *sites) away() bool {
	return slices.ContainsFunc(s.list, func(name string) bool { return s.sites[name].away })
}

// settle waits until all is taken in, and checks what is in use by the law.
func (s *sites) settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
	blind := s.blind
	if s.blind = s.last == nil; s.blind {
		return // nothing is served before all that is waited for was heard of
	}
	if differs := s.twin.differs(s.last, s.held.get()); differs != "" {
		s.fail("%s", differs)
	}
	quiet := !s.away()
	for _, object := range objectNames {
		is, was := s.last.Inputs().Objects.At(policy(object).Key) != nil, s.inUse[object]
		at := s.where(object)
		has := func(f form) bool {
			return slices.ContainsFunc(at, func(name string) bool { return s.sites[name].files[object] == f && !s.sites[name].away })
		}
		switch {
		case was && !is && s.meant[object]:
			s.fail("%s was in use, nobody said that it goes, and it is lost", object)
		case !was && is && !has(right) && !blind:
			s.fail("%s was not in use, is right nowhere, and came back", object)
		case is && quiet && len(at) == 0:
			s.fail("%s is in no source, all were read, and it is in use", object)
		case !is && has(right):
			s.fail("%s is right in %v, and not in use", object, at)
		}
		s.inUse[object] = is
	}
}

func (s *sites) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s; held: %v; problems: %v; after:\n%s", fmt.Sprintf(format, args...), s.held.get(), s.assembler.Status().Problems, strings.Join(s.log, "\n"))
}

// Whatever is moved, broken, mended and taken away, whichever sources are away, come and go, and whenever ashored starts anew: what
// was in use stays until somebody plainly says that it goes; then it goes, and does not come back.
func TestLawOfStay(t *testing.T) {
	t.Parallel()
	histories(t, 400, func(*sites) {})
}

// histories has so many random ones happen, each to sites that ready has prepared, until one of them breaks a law.
func histories(t *testing.T, seeds uint64, ready func(*sites)) {
	t.Helper()
	const steps = 60
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := newSites(t, seed)
			ready(s)
			s.log = append(s.log, fmt.Sprintf("seed %d, optional %v", seed, s.optional))
			s.begin()
			defer func() { s.end() }()
			for range steps {
				s.settle()
				s.step()
			}
			s.settle()
		})
		if t.Failed() {
			return
		}
	}
}
