package vip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// office gives addresses by the last letter of a host, unless it refuses, or does not answer.
type office struct {
	mu      sync.Mutex
	refuses map[string]error // by host
	stuck   chan struct{}    // not nil: it answers when that is closed
	asked   []string         // each question, the hosts in it
	left    []string         // the hosts that were let go
	lost    []registry.Key   // told once
	moved   byte             // added to addresses
	losing  chan struct{}    // made by begin
}

func (o *office) Losing() <-chan struct{} { return o.losing }

func (o *office) Release(keys []registry.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range keys {
		o.left = append(o.left, k.Host)
	}
}

func (o *office) Lost() []registry.Key {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost := o.lost
	o.lost = nil
	return lost
}

func (o *office) Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	o.mu.Lock()
	stuck := o.stuck
	var hosts []string
	for _, k := range keys {
		hosts = append(hosts, k.Host)
	}
	o.asked = append(o.asked, strings.Join(hosts, " "))
	o.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	out, errs := map[registry.Key][]netip.Addr{}, []error(nil)
	for _, k := range keys {
		if err := o.refuses[k.Host]; err != nil {
			errs = append(errs, err)
			continue
		}
		out[k] = []netip.Addr{netip.AddrFrom4([4]byte{240, 240, o.moved, k.Host[len(k.Host)-1]})}
	}
	return out, errors.Join(errs...)
}

func (o *office) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// wantAsked checks what was asked since the last time.
func (o *office) wantAsked(t *testing.T, what string, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.asked, want) {
		t.Errorf("%s: asked for %q, want %q", what, o.asked, want)
	}
	o.asked = nil
}

// speaker is a source that says what a test has it say.
type speaker chan feed.Batch[registry.Instances]

func (speaker) Name() string { return "consul:a" }

func (s speaker) Run(ctx context.Context, out chan<- feed.Batch[registry.Instances]) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-s:
			b.Source = s.Name()
			select {
			case out <- b:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// stage is a source at work, and what was heard of it.
type stage struct {
	speaker
	*office

	ear   sync.Mutex
	heard []feed.Batch[registry.Instances] // guarded by ear
}

// listen returns what was heard since the last time.
func (s *stage) listen() []feed.Batch[registry.Instances] {
	synctest.Wait()
	s.ear.Lock()
	defer s.ear.Unlock()
	heard := s.heard
	s.heard = nil
	return heard
}

func begin(t *testing.T, o *office) *stage {
	o.losing = make(chan struct{}, 1)
	s := &stage{speaker: make(speaker), office: o}
	src := New(Config{Source: s.speaker, Addresses: o})
	if src.Name() != "consul:a" {
		t.Errorf("it is called %s", src.Name())
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan feed.Batch[registry.Instances]), make(chan error, 1)
	go func() { done <- src.Run(ctx, out) }()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for {
			select {
			case <-ctx.Done():
				return
			case b := <-out:
				s.ear.Lock()
				s.heard = append(s.heard, b)
				s.ear.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-heard
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

// says has the source say groups, each with the host of its name.
func (s *stage) says(full bool, hosts ...string) {
	b := feed.Batch[registry.Instances]{Full: full}
	for _, h := range hosts {
		b.Updates = append(b.Updates, update(h, registry.Service{}))
	}
	s.speaker <- b
}

func update(host string, s registry.Service) feed.Update[registry.Instances] {
	s.Key, s.Object = registry.Key{Host: host, Namespace: "shop"}, "Consul service "+host
	return feed.Update[registry.Instances]{Group: host, Items: []registry.Instances{{Service: &s, Endpoints: &registry.EndpointList{}}}}
}

// want checks what was heard since the last time: a line a batch.
func (s *stage) want(t *testing.T, what string, want ...string) {
	t.Helper()
	check(t, what, s.listen(), want...)
}

// check checks what was heard: a line a batch.
func check(t *testing.T, what string, heard []feed.Batch[registry.Instances], want ...string) {
	t.Helper()
	var got []string
	for _, b := range heard {
		line := ""
		if b.Full {
			line = "full"
		}
		if b.Standing != nil {
			line += "standing"
		}
		for _, u := range b.Updates {
			line += " " + u.Group
			for _, in := range u.Items {
				line += fmt.Sprintf("%v", in.Service.VirtualIPs())
			}
			for _, p := range u.Problems {
				line += "!"
				if p.Severity != feed.Warning || p.Object != "Consul service "+u.Group {
					t.Errorf("%s: problem %+v", what, p)
				}
			}
		}
		if b.Source != "consul:a" {
			t.Errorf("%s: a batch of %q", what, b.Source)
		}
		got = append(got, strings.TrimSpace(line))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: heard %q, want %q", what, got, want)
	}
}

// What the source says first waits for the addresses of all its services, which are asked for at once.
func TestFirstStateIsComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &office{stuck: make(chan struct{})})
		s.speaker <- feed.Batch[registry.Instances]{Standing: &feed.Standing{}}
		s.want(t, "a standing waits for nothing", "standing")
		s.says(true, "a", "b", "*.c")
		time.Sleep(time.Hour)
		s.want(t, "as long as it takes")
		close(s.stuck)
		s.want(t, "with addresses", "full a[240.240.0.97/32] b[240.240.0.98/32] *.c[]")
		s.wantAsked(t, "once for all, but for wildcards", "a b")
		s.says(true, "b", "a")
		s.want(t, "what is known is not asked for", "full b[240.240.0.98/32] a[240.240.0.97/32]")
		s.wantAsked(t, "nothing")
	})
}

// A new service waits a little for its address, and what comes after it as long; then nothing does until there is an answer,
// which brings it.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &office{})
		s.says(true)
		s.says(false, "a")
		s.want(t, "at once from a store that answers", "full", "a[240.240.0.97/32]")
		s.set(func() { s.stuck = make(chan struct{}) })
		s.says(false, "b")
		time.Sleep(249 * time.Millisecond)
		s.want(t, "it waits")
		time.Sleep(2 * time.Millisecond)
		s.want(t, "not for long", "b[]!")
		s.says(false, "c")
		s.says(false, "a", "b")
		s.want(t, "nothing waits any more", "c[]", "b[]!", "a[240.240.0.97/32] b[]!")
		s.set(func() { close(s.stuck); s.stuck = nil })
		s.want(t, "the answer, and then that about what came meanwhile", "b[240.240.0.98/32] c[]!", "c[240.240.0.99/32]")
		s.says(false, "d")
		s.want(t, "it answers again", "d[240.240.0.100/32]")
		s.wantAsked(t, "each once", "a", "b", "c", "d")
	})
}

// What is refused goes on without, is told of, and asked for again now and then, not whenever the service changes.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &office{refuses: map[string]error{"b": errors.New("all are taken")}})
		s.says(true, "a", "b")
		heard := s.listen()
		if p := heard[0].Updates[1].Problems; len(p) != 1 || !strings.HasPrefix(p[0].Text, "no virtual address could be allocated for b (tried again in a while;") || !strings.HasSuffix(p[0].Text, "all are taken") {
			t.Errorf("problems %+v", p)
		}
		check(t, "the others have theirs", heard, "full a[240.240.0.97/32] b[]!")
		s.wantAsked(t, "once", "a b")
		s.says(false, "b")
		s.says(true, "a", "b")
		s.want(t, "changes do not wait", "b[]!", "full a[240.240.0.97/32] b[]!")
		s.wantAsked(t, "and do not ask")
		time.Sleep(6 * time.Second)
		s.want(t, "refused again")
		s.wantAsked(t, "after a while", "b")
		s.set(func() { s.refuses = nil })
		time.Sleep(5 * time.Second)
		s.want(t, "now it has one", "b[240.240.0.98/32]")
		s.wantAsked(t, "after a while", "b")
		time.Sleep(time.Minute)
		s.wantAsked(t, "no more")
		s.want(t, "no more")
	})
}

// What nobody has any more is let go, once, and asked for when it is back; what several have when the last one is gone. In the end
// all is.
func TestLetGo(t *testing.T) {
	t.Parallel()
	o := &office{}
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, o)
		left := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			s.set(func() {
				slices.Sort(s.left)
				if !slices.Equal(s.left, want) {
					t.Errorf("%s: %q were let go, want %q", what, s.left, want)
				}
				s.left = nil
			})
		}
		s.says(true, "a", "b", "c")
		two := update("b", registry.Service{})
		two.Group = "second"
		s.speaker <- feed.Batch[registry.Instances]{Updates: []feed.Update[registry.Instances]{two}}
		s.says(false, "a")
		left("all are there")
		s.speaker <- feed.Batch[registry.Instances]{Updates: []feed.Update[registry.Instances]{{Group: "a"}, {Group: "b"}}}
		left("another group has b", "a")
		s.says(true, "c")
		left("nobody has", "b")
		s.wantAsked(t, "before", "a b c")
		s.says(false, "a")
		s.listen()
		s.wantAsked(t, "a is back", "a")
		left("a is back")
	})
	slices.Sort(o.left)
	if !slices.Equal(o.left, []string{"a", "c"}) {
		t.Errorf("in the end %q were let go", o.left)
	}
}

// What is let go while it is asked for is let go after the answer; what is wanted again by then is not.
func TestLetGoWhileAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &office{})
		s.says(true)
		s.set(func() { s.stuck = make(chan struct{}) })
		s.says(false, "a", "b")
		time.Sleep(time.Second)
		s.speaker <- feed.Batch[registry.Instances]{Updates: []feed.Update[registry.Instances]{{Group: "a"}, {Group: "b"}}}
		s.says(false, "a")
		s.listen()
		s.set(func() {
			if len(s.left) > 0 {
				t.Errorf("%q were let go, and are asked for", s.left)
			}
			close(s.stuck)
			s.stuck = nil
		})
		s.want(t, "a is there", "a[240.240.0.97/32]")
		s.set(func() {
			if !slices.Equal(s.left, []string{"b"}) {
				t.Errorf("%q were let go, want b", s.left)
			}
		})
	})
}

// Who has lost its address goes without at once, and is told of, until there is another.
func TestLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &office{})
		s.says(true, "a", "b")
		s.want(t, "at first", "full a[240.240.0.97/32] b[240.240.0.98/32]")
		s.set(func() { s.lost, s.moved = []registry.Key{{Host: "b", Namespace: "shop"}, {Host: "gone"}}, 1 })
		s.losing <- struct{}{}
		s.want(t, "another at once", "b[]!", "b[240.240.1.98/32]")
		s.wantAsked(t, "anew", "a b", "b")
		s.says(false, "b")
		s.want(t, "and it stays", "b[240.240.1.98/32]")
	})
}

// However many have no address, one problem tells of them: all that it takes is one disk without room. It follows who is the first.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left")
		s := begin(t, &office{refuses: map[string]error{"b": full, "c": full, "d": full}})
		said := func(heard []feed.Batch[registry.Instances]) (text string) {
			for _, b := range heard {
				for _, u := range b.Updates {
					for _, p := range u.Problems {
						text = p.Text
					}
				}
			}
			return text
		}
		s.says(true, "d", "a", "b", "c")
		heard := s.listen()
		check(t, "at first", heard, "full d[] a[240.240.0.97/32] b[]! c[]")
		if got := said(heard); !strings.HasPrefix(got, "no virtual address could be allocated for b and 2 more (tried again in a while; connections that are not HTTP do not find them ") {
			t.Errorf("it tells %q", got)
		}
		s.set(func() { delete(s.refuses, "c") })
		time.Sleep(6 * time.Second)
		heard = s.listen()
		check(t, "one has its own", heard, "b[]! c[240.240.0.99/32]")
		if got := said(heard); !strings.HasPrefix(got, "no virtual address could be allocated for b and 1 more ") {
			t.Errorf("it tells %q", got)
		}
		s.set(func() { delete(s.refuses, "b") })
		time.Sleep(6 * time.Second)
		s.want(t, "the first has its own", "b[240.240.0.98/32] d[]!")
		s.says(false, "d")
		s.want(t, "nothing is told of nobody else", "d[]!")
		s.set(func() { s.refuses = nil })
		time.Sleep(6 * time.Second)
		s.want(t, "all have theirs", "d[240.240.0.100/32]")
	})
}

// Who has lost its address does not go on with it where there is no other, which is told of with its reason.
func TestLostForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &office{})
		s.says(true, "a", "b")
		s.want(t, "at first", "full a[240.240.0.97/32] b[240.240.0.98/32]")
		s.set(func() {
			s.lost, s.refuses = []registry.Key{{Host: "b", Namespace: "shop"}}, map[string]error{"b": errors.New("all are taken")}
		})
		s.losing <- struct{}{}
		heard := s.listen()
		check(t, "without", heard, "b[]!", "b[]!")
		if p := heard[1].Updates[0].Problems[0]; !strings.HasSuffix(p.Text, "all are taken") {
			t.Errorf("problem %q", p.Text)
		}
		time.Sleep(time.Minute)
		s.want(t, "nothing new")
		s.set(func() { s.refuses = nil })
		time.Sleep(6 * time.Second)
		s.want(t, "there is one again", "b[240.240.0.98/32]")
	})
}

// What is lost between an answer and its arrival is not taken from that: it is asked for again.
func TestLostWhileAsked(t *testing.T) {
	t.Parallel()
	b := registry.Key{Host: "b", Namespace: "shop"}
	d := newDesk(Config{Source: make(speaker), Patience: time.Second, Retry: time.Second})
	d.take(feed.Batch[registry.Instances]{Full: true, Updates: []feed.Update[registry.Instances]{update("b", registry.Service{})}})
	d.asking = true
	d.lose([]registry.Key{b})
	old := answer{keys: []registry.Key{b}, got: map[registry.Key][]netip.Addr{b: {netip.IPv4Unspecified()}}}
	if d.answer(old); d.known[b] != nil || len(d.questions()) != 1 {
		t.Errorf("it has %v, and %v are asked for", d.known[b], d.questions())
	}
	d.asking = true
	if d.answer(old); d.known[b] == nil {
		t.Error("it has none")
	}
}

// What has gone meanwhile is not said again when its address comes, and not asked for any more.
func TestGoneMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &office{refuses: map[string]error{"a": errors.New("no"), "b": errors.New("no"), "c": errors.New("no")}})
		s.says(true, "a", "b", "c")
		s.speaker <- feed.Batch[registry.Instances]{Updates: []feed.Update[registry.Instances]{{Group: "a"}}}
		s.want(t, "they come and go", "full a[]! b[] c[]", "a", "b[]!")
		s.says(true, "c")
		s.wantAsked(t, "once", "a b c")
		s.want(t, "one is left", "full c[]!")
		s.set(func() { s.refuses = nil })
		time.Sleep(6 * time.Second)
		s.want(t, "that alone", "c[240.240.0.99/32]")
		s.wantAsked(t, "that alone", "c")
	})
}

// Who has addresses keeps them, and what goes to the address that the client chose has none. What the source said is not
// changed.
func TestOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, &office{})
		own := update("a", registry.Service{Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}})
		chosen, plain := update("b", registry.Service{Resolution: registry.Passthrough}), update("c", registry.Service{})
		s.speaker <- feed.Batch[registry.Instances]{Full: true, Updates: []feed.Update[registry.Instances]{own, chosen, plain}}
		heard := s.listen()
		if got := heard[0].Updates; got[0].Items[0] != own.Items[0] || got[1].Items[0] != chosen.Items[0] || got[2].Items[0].Endpoints != plain.Items[0].Endpoints {
			t.Error("a service is another")
		}
		check(t, "all", heard, "full a[10.0.0.1/32] b[] c[240.240.0.99/32]")
		if plain.Items[0].Service.AutoAddresses != nil {
			t.Error("what the source said was changed")
		}
		s.wantAsked(t, "one", "c")
	})
}

// A source that can never work ends it.
func TestSourceFails(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong setting")
	err := New(Config{Source: failing{wrong}, Addresses: &office{}}).Run(t.Context(), nil)
	if !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (failing) Name() string { return "f" }

func (f failing) Run(context.Context, chan<- feed.Batch[registry.Instances]) error { return f.err }

// 10,000 services that are new at once.
func BenchmarkLoad(b *testing.B) {
	for range b.N {
		d := newDesk(Config{Source: make(speaker), Patience: time.Second, Retry: time.Second})
		full := feed.Batch[registry.Instances]{Full: true}
		for i := range 10_000 {
			full.Updates = append(full.Updates, update(fmt.Sprint("host-", i), registry.Service{}))
		}
		d.take(full)
		keys := d.questions()
		got := make(map[registry.Key][]netip.Addr, len(keys))
		for _, k := range keys {
			got[k] = []netip.Addr{{}}
		}
		d.answer(answer{keys: keys, got: got})
		for _, u := range full.Updates {
			d.filled(u)
		}
	}
}
