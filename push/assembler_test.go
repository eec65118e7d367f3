package push_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// scripted is a source that says what a test tells it to.
type scripted[T any] struct {
	name string
	say  chan feed.Batch[T]
	err  error
}

func newScripted[T any](name string) *scripted[T] {
	return &scripted[T]{name: name, say: make(chan feed.Batch[T])}
}

func (s *scripted[T]) Name() string { return s.name }

func (s *scripted[T]) Run(ctx context.Context, out chan<- feed.Batch[T]) error {
	if s.err != nil {
		return s.err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-s.say:
			b.Source = s.name
			select {
			case out <- b:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// published is one context, and what was said of it.
type published struct {
	context *push.Context
	changes push.Changes
}

// assembly is a running assembler and what it published.
type assembly struct {
	files     *scripted[*config.Object]
	services  *scripted[registry.Instances]
	assembler *push.Assembler
	published []published
	at        []time.Duration
}

func assemble(t *testing.T) *assembly {
	a := &assembly{files: newScripted[*config.Object]("files"), services: newScripted[registry.Instances]("services")}
	start := time.Now()
	a.assembler = push.NewAssembler(push.AssemblerConfig{
		Sources: push.Sources{Objects: []config.Source{a.files}, Instances: []feed.Source[registry.Instances]{a.services}}, Mesh: testMesh(),
		Publish: func(c *push.Context, changes push.Changes) {
			a.published = append(a.published, published{c, changes})
			a.at = append(a.at, time.Since(start))
		},
	})
	t.Cleanup(running(t, a.assembler))
	return a
}

func instances(host string, addresses ...string) feed.Update[registry.Instances] {
	k := registry.Key{Host: host, Namespace: "a"}
	l := &registry.EndpointList{}
	for _, addr := range addresses {
		l.Items = append(l.Items, registry.Endpoint{Address: addr, Namespace: "a"})
	}
	return feed.Update[registry.Instances]{Group: host, Items: []registry.Instances{{Service: &registry.Service{Key: k}, Endpoints: l}}}
}

func services(full bool, updates ...feed.Update[registry.Instances]) feed.Batch[registry.Instances] {
	return feed.Batch[registry.Instances]{Full: full, Updates: updates}
}

// Nothing is published until every source has delivered its first complete state.
func TestAssemblerWaitsForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := assemble(t)
		a.services.say <- services(true, instances("web", "10.0.0.1"))
		synctest.Wait()
		time.Sleep(time.Minute)
		if len(a.published) != 0 {
			t.Fatalf("published %d contexts before the files were read", len(a.published))
		}
		a.files.say <- feed.Batch[*config.Object]{Full: true}
		synctest.Wait()
		if len(a.published) != 1 {
			t.Fatalf("published %d contexts, want 1", len(a.published))
		}
	})
}

// The first change after a quiet spell is built at once; a storm gets one build a gap, and its last
// state arrives.
func TestAssemblerPaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := assemble(t)
		a.files.say <- feed.Batch[*config.Object]{Full: true}
		a.services.say <- services(true)
		time.Sleep(time.Second)
		synctest.Wait()
		a.published, a.at = nil, nil
		for i := range 100 {
			a.services.say <- services(false, instances("web", "10.0.0."+string(rune('1'+i%9))))
			synctest.Wait()
			if i == 0 && len(a.published) != 1 {
				t.Fatalf("the first change was not built at once")
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(a.published); n < 19 || n > 21 {
			t.Errorf("100 changes in one second made %d builds, want one every 50 ms", n)
		}
		last := a.published[len(a.published)-1].context.Inputs().Endpoints.At(registry.Key{Host: "web", Namespace: "a"})
		if last.Items[0].Address != "10.0.0.1" { // 99 % 9 == 0
			t.Errorf("last state: got %v", last.Items)
		}
	})
}

// What says the same again is no change, and an endpoint leaves its service's pointer alone.
func TestAssemblerKeepsPointers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := assemble(t)
		a.files.say <- feed.Batch[*config.Object]{Full: true}
		a.services.say <- services(true, instances("web", "10.0.0.1"))
		time.Sleep(time.Second)
		a.services.say <- services(false, instances("web", "10.0.0.1"))
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(a.published); n != 1 {
			t.Fatalf("published %d contexts for one content, want 1", n)
		}
		a.services.say <- services(false, instances("web", "10.0.0.2"))
		time.Sleep(time.Second)
		synctest.Wait()
		got := a.published[len(a.published)-1].changes
		if want := (push.Changes{Endpoints: 1, Since: got.Since}); got != want || got.Since.IsZero() {
			t.Errorf("one endpoint changed: got %+v, want %+v", got, want)
		}
	})
}

// Two sources of one object: the first counts, the clash is a problem, and the other takes over.
func TestAssemblerClash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newScripted[*config.Object]("one"), newScripted[*config.Object]("two")
		var last *push.Context
		a := push.NewAssembler(push.AssemblerConfig{Sources: push.Sources{Objects: []config.Source{one, two}}, Mesh: testMesh(), Publish: func(c *push.Context, _ push.Changes) { last = c }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		object := func(source string, hash uint64) feed.Batch[*config.Object] {
			o := &config.Object{Key: config.Key{Kind: config.ServiceEntry, Namespace: "a", Name: "x"}, Origin: config.Origin{Source: source, File: source + ".yaml", Line: 1}, Hash: hash, Spec: &networking.ServiceEntry{}}
			return feed.Batch[*config.Object]{Full: true, Updates: []feed.Update[*config.Object]{{Group: "g", Items: []*config.Object{o}}}}
		}
		two.say <- object("two", 2)
		one.say <- object("one", 1)
		time.Sleep(time.Second)
		synctest.Wait()
		key := config.Key{Kind: config.ServiceEntry, Namespace: "a", Name: "x"}
		if got := last.Inputs().Objects.At(key).Hash; got != 1 {
			t.Errorf("object of source %d counts, want that of the first", got)
		}
		if n := a.Status().Conflicts; n != 1 {
			t.Errorf("%d conflicts, want 1", n)
		}
		texts := a.Status().Problems
		if len(texts) != 1 || !strings.Contains(texts[0].String(), "one.yaml:1") || !strings.Contains(texts[0].String(), "two.yaml:1") {
			t.Errorf("problems: %v, want one that names both files", texts)
		}
		one.say <- feed.Batch[*config.Object]{Full: true}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := last.Inputs().Objects.At(key).Hash; got != 2 {
			t.Errorf("after the first is gone, object of source %d counts, want the second", got)
		}
		if n := a.Status().Conflicts; n != 0 {
			t.Errorf("%d conflicts, want none", n)
		}
		cancel()
		<-done
	})
}

// What two registries say of one service and contradict one another in is told with both, and counted, until they agree.
func TestAssemblerContradiction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newScripted[registry.Instances]("one"), newScripted[registry.Instances]("two")
		a := push.NewAssembler(push.AssemblerConfig{Sources: push.Sources{Instances: []feed.Source[registry.Instances]{one, two}}, Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		said := func(protocol registry.Protocol) feed.Batch[registry.Instances] {
			b := services(true, instances("web", "10.0.0.1"))
			s := b.Updates[0].Items[0].Service
			s.Source, s.Ports = "consul", []registry.Port{{Number: 80, Name: "http", Protocol: protocol}} // registries of one kind: their names tell them apart
			return b
		}
		one.say <- said(registry.HTTP)
		for _, c := range []struct {
			protocol registry.Protocol
			want     int
		}{{registry.TCP, 1}, {registry.HTTP, 0}} {
			two.say <- said(c.protocol)
			time.Sleep(time.Second)
			synctest.Wait()
			s := a.Status()
			if s.Conflicts != c.want || len(s.Problems) != c.want {
				t.Errorf("%s: %d conflicts and %v, want %d", c.protocol, s.Conflicts, s.Problems, c.want)
			}
			if c.want == 1 && (s.Problems[0].Source != "two" || !strings.Contains(s.Problems[0].Text, "one decides")) {
				t.Errorf("problem %v does not name both sides", s.Problems[0])
			}
		}
		told := said(registry.HTTP)
		told.Updates[0].Problems = []feed.Problem{{Text: "another source has it otherwise", Contradicts: true}}
		two.say <- told
		time.Sleep(time.Second)
		synctest.Wait()
		if n := a.Status().Conflicts; n != 1 {
			t.Errorf("%d conflicts by what a source tells, want 1", n)
		}
		cancel()
		<-done
	})
}

// A source that can never work ends the assembler with an error that names it.
func TestAssemblerSourceError(t *testing.T) {
	t.Parallel()
	bad := newScripted[*config.Object]("bad")
	bad.err = errors.New("no such setting")
	a := push.NewAssembler(push.AssemblerConfig{Sources: push.Sources{Objects: []config.Source{bad}}, Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {}})
	err := a.Run(t.Context())
	if !errors.Is(err, bad.err) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("Run: %v, want one that names the source", err)
	}
}

// An object that moved to another line of its file is shown there.
func TestAssemblerMovedObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := assemble(t)
		a.services.say <- services(true)
		key := config.Key{Kind: config.VirtualService, Namespace: "a", Name: "x"}
		for _, line := range []int{1, 7} {
			o := &config.Object{Key: key, Origin: config.Origin{Source: "files", File: "x.yaml", Line: line}, Hash: 1, Spec: &networking.VirtualService{}}
			a.files.say <- feed.Batch[*config.Object]{Full: true, Updates: []feed.Update[*config.Object]{{Group: "x.yaml", Items: []*config.Object{o}}}}
			time.Sleep(time.Second)
			synctest.Wait()
			if got := a.published[len(a.published)-1].context.Inputs().Objects.At(key).Origin.Line; got != line {
				t.Errorf("shown on line %d, want %d", got, line)
			}
		}
	})
}

// Sources come, go and are replaced while the assembler runs: what one said that is not named any more is gone, and what is
// replaced stays until the new one has said everything.
func TestAssemblerArrange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		object := func(name string, hash uint64) *config.Object {
			return &config.Object{Key: config.Key{Kind: config.ServiceEntry, Namespace: "a", Name: name}, Hash: hash, Spec: &networking.ServiceEntry{}}
		}
		full := func(objects ...*config.Object) feed.Batch[*config.Object] {
			return feed.Batch[*config.Object]{Full: true, Updates: []feed.Update[*config.Object]{{Group: "g", Items: objects}}}
		}
		one, two := newScripted[*config.Object]("one"), newScripted[*config.Object]("two")
		var last *push.Context
		a := push.NewAssembler(push.AssemblerConfig{
			Sources: push.Sources{Objects: []config.Source{one, two}, Optional: []string{"two"}}, Mesh: testMesh(),
			Publish: func(c *push.Context, _ push.Changes) { last = c },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		has := func(what string, want map[string]uint64) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			got := map[string]uint64{}
			for k, o := range last.Inputs().Objects.All() {
				got[k.Name] = o.Hash
			}
			if !cmp.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		arrange := func(objects ...config.Source) {
			t.Helper()
			if err := a.Arrange(ctx, push.Sources{Objects: objects}); err != nil {
				t.Fatal(err)
			}
		}
		one.say <- full(object("x", 1), object("y", 1))
		has("an optional source is not waited for", map[string]uint64{"x": 1, "y": 1})
		two.say <- full(object("x", 2), object("z", 2))
		has("the first counts", map[string]uint64{"x": 1, "y": 1, "z": 2})

		arrange(two, one)
		has("another order", map[string]uint64{"x": 2, "y": 1, "z": 2})
		again := newScripted[*config.Object]("one")
		arrange(two, again)
		has("one is replaced, and says nothing yet", map[string]uint64{"x": 2, "y": 1, "z": 2})
		again.say <- full(object("w", 3))
		has("the new one has said everything", map[string]uint64{"x": 2, "w": 3, "z": 2})
		three := newScripted[*config.Object]("three")
		arrange(three, again)
		has("two leaves when three is known", map[string]uint64{"x": 2, "w": 3, "z": 2})
		three.say <- full(object("w", 4))
		has("a new source", map[string]uint64{"w": 4})
		if got := a.Status().Sources; len(got) != 2 || got[0].Name != "three" || got[1].Name != "one" {
			t.Errorf("sources: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An object that leaves one source and is refused in another stays in use until it is mended there, or is gone there too.
func TestAssemblerHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key := config.Key{Kind: config.AuthorizationPolicy, Namespace: "a", Name: "x"}
		good := func(hash uint64) feed.Update[*config.Object] {
			return feed.Update[*config.Object]{Group: "g", Items: []*config.Object{{Key: key, Hash: hash, Spec: &security.AuthorizationPolicy{}}}}
		}
		bad := feed.Update[*config.Object]{Group: "g", Problems: []feed.Problem{{Severity: feed.Error, Object: key.String(), Text: "a slip"}}}
		say := func(full bool, updates ...feed.Update[*config.Object]) feed.Batch[*config.Object] {
			return feed.Batch[*config.Object]{Full: full, Updates: updates}
		}
		one, two := newScripted[*config.Object]("one"), newScripted[*config.Object]("two")
		var last *push.Context
		a := push.NewAssembler(push.AssemblerConfig{
			Sources: push.Sources{Objects: []config.Source{one, two}}, Mesh: testMesh(), Publish: func(c *push.Context, _ push.Changes) { last = c },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		has := func(what string, want uint64, problem string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			got := uint64(0)
			if o, ok := last.Inputs().Objects.Get(key); ok {
				got = o.Hash
			}
			texts := ""
			for _, p := range a.Status().Problems {
				texts += p.Text + "\n"
			}
			if got != want || (problem == "") == strings.Contains(texts, "is refused where it stands now") {
				t.Errorf("%s: the object is %d, want %d; problems: %s", what, got, want, texts)
			}
		}
		one.say <- say(true, good(1))
		two.say <- say(true)
		has("at first", 1, "")
		two.say <- say(false, bad)
		has("the other has it with a slip", 1, "")
		one.say <- say(false, feed.Update[*config.Object]{Group: "g"})
		has("it leaves the first", 1, "held")
		two.say <- say(false, good(2))
		has("the slip is mended", 2, "")

		two.say <- say(false, feed.Update[*config.Object]{Group: "g"})
		one.say <- say(false, good(1))
		two.say <- say(false, bad)
		synctest.Wait() // all of that is taken in
		three := newScripted[*config.Object]("three")
		if err := a.Arrange(ctx, push.Sources{Objects: []config.Source{three}}); err != nil {
			t.Fatal(err)
		}
		has("another source takes the place of both", 1, "")
		three.say <- say(true, bad)
		has("and has it with a slip", 1, "held")
		three.say <- say(false, feed.Update[*config.Object]{Group: "g"})
		has("and has it no more", 0, "")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What sources said before a start that there are not any more counts until those that there are have said everything, and then
// as long as it is refused there, or may be meant by what cannot be read. That they have left is told as soon as Keep was told what of
// theirs is in use.
func TestAssemblerBefore(t *testing.T) {
	t.Parallel()
	object := func(name string, hash uint64) *config.Object {
		return &config.Object{Key: config.Key{Kind: config.ServiceEntry, Namespace: "a", Name: name}, Hash: hash, Spec: &networking.ServiceEntry{}}
	}
	full := func(problems []feed.Problem, objects ...*config.Object) feed.Batch[*config.Object] {
		return feed.Batch[*config.Object]{Source: "old", Full: true, Updates: []feed.Update[*config.Object]{{Group: "g", Items: objects, Problems: problems}}}
	}
	refused := []feed.Problem{{Severity: feed.Error, Object: object("x", 0).Key.String(), Text: "wrong"}}
	unread := []feed.Problem{{Severity: feed.Error, Text: "cannot be read", Unread: true}}
	for name, tc := range map[string]struct {
		says     []feed.Problem
		held     map[string]uint64
		problems int
	}{
		"all is well":           {nil, map[string]uint64{"y": 2}, 0},
		"one is refused":        {refused, map[string]uint64{"x": 1, "y": 2}, 2},
		"a part cannot be read": {unread, map[string]uint64{"x": 1, "y": 2, "z": 1}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := newScripted[*config.Object]("new")
				var last *push.Context
				var left []string
				a := push.NewAssembler(push.AssemblerConfig{
					Sources: push.Sources{Objects: []config.Source{source}}, Mesh: testMesh(),
					Before:  []feed.Batch[*config.Object]{full(nil, object("x", 1), object("y", 1), object("z", 1))},
					Left:    func(names []string) { left = append(left, names...) },
					Publish: func(c *push.Context, _ push.Changes) { last = c },
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- a.Run(ctx) }()
				has := func(what string, want map[string]uint64, problems int, told ...string) {
					t.Helper()
					time.Sleep(time.Second)
					synctest.Wait()
					got := map[string]uint64{}
					for k, o := range last.Inputs().Objects.All() {
						got[k.Name] = o.Hash
					}
					if all := a.Status().Problems; !cmp.Equal(got, want) || len(all) != problems || !cmp.Equal(left, told) {
						t.Errorf("%s: %v with problems %v, left %v; want %v with %d, %v", what, got, all, left, want, problems, told)
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if last != nil {
					t.Error("published before the source was read")
				}
				source.say <- full(tc.says, object("y", 2))
				has("read", tc.held, tc.problems, "old")
				source.say <- full(nil, object("y", 2))
				has("mended", map[string]uint64{"y": 2}, 0, "old")
				source.say <- full(unread, object("y", 2))
				has("a slip later", map[string]uint64{"y": 2}, 1, "old")
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
