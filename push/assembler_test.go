package push_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// fakeSource is a source that sends what a test gives it.
type fakeSource[T any] struct {
	name    string
	batches chan feed.Batch[T]
	err     error
}

func (s *fakeSource[T]) Name() string { return s.name }

func (s *fakeSource[T]) Run(ctx context.Context, out chan<- feed.Batch[T]) error {
	for s.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case b := <-s.batches:
			b.Source = s.name
			select {
			case out <- b:
			case <-ctx.Done():
			}
		}
	}
	return s.err
}

// fakeDeriver makes a service of each ServiceEntry, in the namespace of that.
type fakeDeriver struct {
	objects push.Objects
	more    chan struct{}
	address string // of the only endpoint of each service
	full    bool   // the first batch was made
}

func (*fakeDeriver) Name() string { return "entries" }

func (d *fakeDeriver) Watch(context.Context) <-chan struct{} { return d.more }

func (d *fakeDeriver) Derive(objects push.Objects) feed.Batch[registry.Instances] {
	b := feed.Batch[registry.Instances]{Source: d.Name(), Full: !d.full, Explicit: true}
	for k, o := range objects.All() {
		if k.Kind == config.ServiceEntry {
			in := service(o.Spec.(*networking.ServiceEntry).Hosts[0], d.address)
			in.Service.Namespace, in.Service.Object, in.Service.Declared = k.Namespace, k.String(), true
			b.Updates = append(b.Updates, update(k.Namespace+"/"+k.Name, in))
		}
	}
	for k := range d.objects.All() {
		if _, ok := objects.Get(k); !ok {
			b.Updates = append(b.Updates, feed.Update[registry.Instances]{Group: k.Namespace + "/" + k.Name})
		}
	}
	d.objects, d.full = objects, true
	return b
}

// fakeAllocator allocates what a test sets.
type fakeAllocator struct {
	wanted []string
	vips   chan registry.VIPs
}

func (a *fakeAllocator) Want(hosts []string) { a.wanted = hosts }

func (a *fakeAllocator) Run(ctx context.Context, out chan<- registry.VIPs) error {
	return relay(ctx, a.vips, out)
}

// fakeKeys fetches what a test sets.
type fakeKeys struct {
	wanted map[string]time.Duration
	keys   chan *push.KeySets
}

func (k *fakeKeys) Want(timeouts map[string]time.Duration) { k.wanted = timeouts }

func (k *fakeKeys) Run(ctx context.Context, out chan<- *push.KeySets) error {
	return relay(ctx, k.keys, out)
}

func relay[T any](ctx context.Context, in <-chan T, out chan<- T) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case v := <-in:
			out <- v
		}
	}
}

// calls are the arguments of a callback.
type calls[T any] struct {
	mu   sync.Mutex
	list []T // guarded by mu
}

func (c *calls[T]) add(arg T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, arg)
}

// count is how many calls there were, and last the argument of the last one.
func (c *calls[T]) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list)
}

func (c *calls[T]) last() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list[len(c.list)-1]
}

func (c *calls[T]) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = nil
}

// fixture is an assembler with two sources of configuration, a and b, and two of services, c and d.
type fixture struct {
	t             *testing.T
	a, b          *fakeSource[*config.Object]
	c, d          *fakeSource[registry.Instances]
	cfg           push.AssemblerConfig
	assembler     *push.Assembler
	saved         map[string]feed.SavedGroup[*config.Object]
	savedServices map[string]feed.SavedGroup[registry.Instances]
	contexts      calls[*push.Context]
	changes       calls[push.Changes]
	exported      calls[push.Exported]
	trusted       chan *push.Trust
	stop          func()
}

func newFixture(t *testing.T, options ...func(*fixture)) *fixture {
	f := &fixture{
		t: t, a: objectSource("a"), b: objectSource("b"), c: serviceSource("c"), d: serviceSource("d"),
		saved: map[string]feed.SavedGroup[*config.Object]{}, savedServices: map[string]feed.SavedGroup[registry.Instances]{},
	}
	f.cfg = push.AssemblerConfig{
		Mesh: testMesh(),
		Save: f.save,
		Publish: func(c *push.Context, ch push.Changes) {
			f.contexts.add(c)
			f.changes.add(ch)
		},
	}
	for _, o := range options {
		o(f)
	}
	f.start()
	return f
}

func objectSource(name string) *fakeSource[*config.Object] {
	return &fakeSource[*config.Object]{name: name, batches: make(chan feed.Batch[*config.Object])}
}

func serviceSource(name string) *fakeSource[registry.Instances] {
	return &fakeSource[registry.Instances]{name: name, batches: make(chan feed.Batch[registry.Instances])}
}

func (f *fixture) save(s push.Saved) {
	for _, g := range s.Objects {
		f.saved[g.Source+" "+g.Group] = g
	}
	for _, g := range s.Services {
		f.savedServices[g.Source+" "+g.Group] = g
	}
}

// sources are all four.
func (f *fixture) sources() push.Sources {
	return push.Sources{
		Objects:  []push.Source[*config.Object]{{Source: f.a}, {Source: f.b}},
		Services: []push.Source[registry.Instances]{{Source: f.c}, {Source: f.d}},
	}
}

func (f *fixture) start() {
	if f.cfg.Sources.Objects == nil {
		f.cfg.Sources = f.sources()
	}
	f.assembler = push.NewAssembler(f.cfg)
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error)
	go func() { done <- f.assembler.Run(ctx) }()
	f.stop = func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("Run: %v", err)
		}
	}
	synctest.Wait()
}

// restart stops the assembler, and starts one that has what was saved.
func (f *fixture) restart() {
	f.stop()
	removed := func(_ string, g feed.SavedGroup[*config.Object]) bool { return g.Removed }
	removedServices := func(_ string, g feed.SavedGroup[registry.Instances]) bool { return g.Removed }
	maps.DeleteFunc(f.saved, removed)
	maps.DeleteFunc(f.savedServices, removedServices)
	f.cfg.Saved = push.Saved{
		Objects: slices.Collect(maps.Values(f.saved)), Services: slices.Collect(maps.Values(f.savedServices)),
	}
	f.contexts.reset()
	f.start()
}

// fill has all sources deliver: an object one=1 from a, and the service web from c.
func (f *fixture) fill() {
	f.objects(f.a, "1: one=1")
	f.objects(f.b, "")
	f.services(f.c, "web=10.0.0.1")
	f.services(f.d, "")
}

// objects sends all groups of a source, "group: name=version name=version; group: …".
func (f *fixture) objects(s *fakeSource[*config.Object], groups string) {
	b := feed.Batch[*config.Object]{Full: true}
	for g := range strings.SplitSeq(groups, "; ") {
		name, items, ok := strings.Cut(g, ": ")
		if !ok {
			continue
		}
		u := feed.Update[*config.Object]{Group: name}
		for text := range strings.FieldsSeq(items) {
			u.Items = append(u.Items, virtualService(text))
		}
		b.Updates = append(b.Updates, u)
	}
	send(s, b)
}

// services sends all services of a source, "host=address host=address", a group each.
func (f *fixture) services(s *fakeSource[registry.Instances], list string) {
	b := feed.Batch[registry.Instances]{Full: true}
	for text := range strings.FieldsSeq(list) {
		host, address, _ := strings.Cut(text, "=")
		b.Updates = append(b.Updates, update(host, service(host, address)))
	}
	send(s, b)
}

// update is a group with these items.
func update[T any](group string, items ...T) feed.Update[T] {
	return feed.Update[T]{Group: group, Items: items}
}

// change sends a batch with these updates.
func change[T any](s *fakeSource[T], b feed.Batch[T], updates ...feed.Update[T]) {
	b.Updates = updates
	send(s, b)
}

func send[T any](s *fakeSource[T], b feed.Batch[T]) {
	s.batches <- b
	synctest.Wait()
}

// virtualService is an object "name=version".
func virtualService(text string) *config.Object {
	name, version, _ := strings.Cut(text, "=")
	return &config.Object{
		Key:    config.Key{Kind: config.VirtualService, Namespace: "shop", Name: name},
		Hash:   uint64(version[0]),
		Spec:   &networking.VirtualService{Hosts: []string{version}},
		Origin: config.Origin{File: name + ".yaml", Line: 1},
	}
}

func serviceEntry(name, host string) *config.Object {
	return &config.Object{
		Key:  config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: name},
		Spec: &networking.ServiceEntry{Hosts: []string{host}},
	}
}

func service(host, address string) registry.Instances {
	s := &registry.Service{
		Key: registry.Key{Host: host, Namespace: "consul"}, Object: "service " + host,
		Ports: []registry.Port{{Number: 80, Name: "http", Protocol: registry.HTTP}},
	}
	endpoints := &registry.EndpointList{Items: []registry.Endpoint{{Address: address}}}
	return registry.Instances{Service: s, Endpoints: endpoints}
}

// want checks the latest context: "name=version" of each VirtualService, "namespace/host=addresses"
// of each service.
func (f *fixture) want(when, want string) {
	f.t.Helper()
	synctest.Wait()
	time.Sleep(60 * time.Millisecond) // more than the gap
	synctest.Wait()
	got := "nothing"
	if f.contexts.count() > 0 {
		in := f.contexts.last().Inputs()
		got = active(in.Objects, in.Services, in.Endpoints)
	}
	if got != want {
		f.t.Errorf("%s: active is %q, want %q", when, got, want)
	}
}

func active(objects push.Objects, services push.Services, endpoints push.Endpoints) string {
	var out []string
	for k, o := range objects.All() {
		if vs, ok := o.Spec.(*networking.VirtualService); ok {
			out = append(out, k.Name+"="+vs.Hosts[0])
		}
	}
	for k, s := range services.All() {
		text := k.Namespace + "/" + k.Host
		for _, e := range endpoints.At(k).All() {
			text += "=" + e.Address
		}
		for _, a := range s.AutoAddresses {
			text += "@" + a.String()
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// after lets time pass.
func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

func (f *fixture) problems() string {
	f.t.Helper()
	list, err := f.assembler.Problems(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for _, p := range list {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}

func TestAssembler(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		options []func(*fixture)
		run     func(f *fixture)
	}{
		{"the first context waits for all required sources", []func(*fixture){func(f *fixture) {
			f.cfg.Sources = f.sources()
			f.cfg.Sources.Objects[1].Optional = true
		}}, func(f *fixture) {
			f.objects(f.a, "1: one=1")
			f.services(f.c, "")
			f.want("d has not delivered", "nothing")
			f.services(f.d, "web=10.0.0.1")
			f.want("b is optional", "one=1 consul/web=10.0.0.1")
		}},
		{"a change is built at once, a storm once in a gap", nil, func(f *fixture) {
			f.fill()
			after(time.Second)
			f.contexts.reset()
			for i := range 100 {
				f.services(f.c, fmt.Sprintf("web=10.0.1.%d", i))
				if i == 0 && f.contexts.count() != 1 {
					f.t.Error("the first change was not built at once")
				}
				after(10 * time.Millisecond)
			}
			if n := f.contexts.count(); n < 19 || n > 21 {
				f.t.Errorf("%d builds in one second of changes, want one in 50ms", n)
			}
			f.want("after the storm", "one=1 consul/web=10.0.1.99")
		}},
		{"what did not change is not built, and keeps its pointers", nil, func(f *fixture) {
			f.fill()
			f.want("at first", "one=1 consul/web=10.0.0.1")
			before := f.contexts.last().Inputs()
			f.services(f.c, "web=10.0.0.1")
			after(time.Second)
			if now := f.contexts.last().Inputs(); now != before {
				f.t.Error("equal services changed the inputs")
			}
			f.services(f.c, "web=10.0.0.2")
			after(time.Second)
			k := registry.Key{Host: "web", Namespace: "consul"}
			if now := f.contexts.last().Inputs(); now.Services.At(k) != before.Services.At(k) {
				f.t.Error("another endpoint changed the service")
			}
		}},
		{"the time of a change is that when the source noticed it", nil, func(f *fixture) {
			f.fill()
			after(time.Second)
			noticed := time.Now().Add(-time.Second)
			change(f.c, feed.Batch[registry.Instances]{Since: noticed}, update("api", service("api", "10.0.0.2")))
			want := push.Changes{Services: 1, Endpoints: 1, Since: noticed}
			if got := f.changes.last(); got != want {
				f.t.Errorf("changes are %+v, want %+v", got, want)
			}
		}},
		{"a removed object stays for 2s, a moved one always", nil, func(f *fixture) {
			f.fill()
			f.objects(f.a, "2: one=1")
			f.want("moved to another group", "one=1 consul/web=10.0.0.1")
			f.objects(f.a, "")
			after(time.Second)
			f.objects(f.b, "1: one=1")
			after(10 * time.Second)
			f.want("moved to another source", "one=1 consul/web=10.0.0.1")
			f.objects(f.a, "1: two=1")
			f.objects(f.a, "1: three=1")
			f.want("removed", "one=1 three=1 two=1 consul/web=10.0.0.1")
		}},
		{"an explicit removal takes effect at once", nil, func(f *fixture) {
			f.fill()
			change(f.a, feed.Batch[*config.Object]{Explicit: true}, update[*config.Object]("1"))
			f.want("removed", "consul/web=10.0.0.1")
		}},
		{"an invalid object keeps its former version", nil, func(f *fixture) {
			f.fill()
			u := update("1", virtualService("two=1"))
			u.Invalid = []string{"VirtualService shop/one"}
			u.Problems = []feed.Problem{{Severity: feed.Error, Object: "VirtualService shop/one", Text: "has no host"}}
			change(f.a, feed.Batch[*config.Object]{}, u)
			after(time.Hour)
			f.want("after a broken edit", "one=1 two=1 consul/web=10.0.0.1")
			if p := f.problems(); !strings.Contains(p, "VirtualService shop/one: has no host") {
				f.t.Errorf("problems are %q", p)
			}
		}},
		{"an outage keeps all", nil, func(f *fixture) {
			f.fill()
			send(f.a, feed.Batch[*config.Object]{Down: errors.New("no such folder")})
			send(f.c, feed.Batch[registry.Instances]{Down: errors.New("connection refused")})
			after(24 * time.Hour)
			f.want("a day later", "one=1 consul/web=10.0.0.1")
			if p := f.problems(); !strings.Contains(p, "no such folder") || !strings.Contains(p, "connection refused") {
				f.t.Errorf("problems are %q", p)
			}
		}},
		{"a source that lost everything keeps its services for 10m", nil, func(f *fixture) {
			f.fill()
			f.services(f.c, "")
			after(9 * time.Minute)
			f.want("9m later", "one=1 consul/web=10.0.0.1")
			after(2 * time.Minute)
			f.want("11m later", "one=1")
		}},
		{"an operator accepts removals", nil, func(f *fixture) {
			f.fill()
			f.objects(f.a, "")
			f.services(f.c, "")
			after(time.Minute)
			f.want("all retained", "one=1 consul/web=10.0.0.1")
			for _, source := range []string{"a", "c"} {
				if _, err := f.assembler.AcceptRemovals(f.t.Context(), source); err != nil {
					f.t.Error(err)
				}
			}
			f.want("accepted", "")
		}},
		{"a restart serves what was saved until each source delivers", []func(*fixture){withDeriver}, func(f *fixture) {
			change(f.a, feed.Batch[*config.Object]{Full: true},
				update("1", virtualService("one=1"), serviceEntry("db", "db")))
			f.objects(f.b, "1: two=1")
			f.services(f.c, "web=10.0.0.1")
			f.services(f.d, "")
			f.objects(f.b, "")
			f.want("before", "one=1 two=1 shop/db=10.9.9.9 consul/web=10.0.0.1")
			for id := range f.savedServices {
				if strings.HasPrefix(id, "entries ") {
					f.t.Errorf("saved %s, which is derived", id)
				}
			}
			f.d.batches = nil // required, and has nothing saved
			f.cfg.Sources = f.sources()
			f.cfg.Sources.Services = f.cfg.Sources.Services[:1]
			f.cfg.Deriver = &fakeDeriver{address: "10.9.9.9", more: make(chan struct{})}
			f.restart()
			f.want("after", "one=1 two=1 shop/db=10.9.9.9 consul/web=10.0.0.1")
			f.objects(f.a, "1: one=2")
			f.want("a has delivered", "one=2 two=1 shop/db=10.9.9.9 consul/web=10.0.0.1")
		}},
		{"derived services change together with the objects", []func(*fixture){withDeriver}, func(f *fixture) {
			f.fill()
			f.want("at first", "one=1 consul/web=10.0.0.1")
			f.contexts.reset()
			change(f.a, feed.Batch[*config.Object]{Full: true},
				update("1", virtualService("one=2"), serviceEntry("web", "web"), serviceEntry("db", "db")))
			f.want("declared", "one=2 shop/db=10.9.9.9 shop/web=10.9.9.9=10.0.0.1")
			if f.contexts.count() != 1 {
				f.t.Errorf("%d contexts, want 1", f.contexts.count())
			}
			d := f.cfg.Deriver.(*fakeDeriver)
			d.address = "10.8.8.8"
			d.more <- struct{}{}
			f.want("a workload registered", "one=2 shop/db=10.8.8.8 shop/web=10.8.8.8=10.0.0.1")
			send(f.a, feed.Batch[*config.Object]{Explicit: true, Full: true})
			f.want("deleted", "consul/web=10.0.0.1")
		}},
		{"virtual IPs are never waited for but at the start", []func(*fixture){withAllocator}, func(f *fixture) {
			v := f.cfg.Allocator.(*fakeAllocator)
			f.fill()
			f.want("the allocator has not answered", "nothing")
			v.vips <- registry.VIPs{}
			f.want("it has", "one=1 consul/web=10.0.0.1")
			in := service("api", "10.0.0.2")
			in.Service.AutoAddress = true
			change(f.c, feed.Batch[registry.Instances]{}, update("api", in))
			f.want("without an address", "one=1 consul/api=10.0.0.2 consul/web=10.0.0.1")
			if !slices.Equal(v.wanted, []string{"api"}) {
				f.t.Errorf("wanted are %v", v.wanted)
			}
			vip := registry.VIP{IPv4: netip.MustParseAddr("240.240.0.1"), IPv6: netip.MustParseAddr("2001:2::1")}
			v.vips <- registry.VIPs{}.With(pmap.String("api"), vip)
			f.want("with one", "one=1 consul/api=10.0.0.2@240.240.0.1@2001:2::1 consul/web=10.0.0.1")
			if !slices.Equal(v.wanted, []string{"api"}) { // it is in use
				f.t.Errorf("wanted are %v", v.wanted)
			}
			in.Service.Addresses = []netip.Prefix{netip.MustParsePrefix("10.9.0.1/32")}
			change(f.c, feed.Batch[registry.Instances]{}, update("api", in))
			f.want("with an address of its own", "one=1 consul/api=10.0.0.2 consul/web=10.0.0.1")
			if len(v.wanted) != 0 {
				f.t.Errorf("wanted are %v, want none", v.wanted)
			}
		}},
		{"the first context waits for trust and keys", []func(*fixture){withTrust}, func(f *fixture) {
			keys, trust := f.cfg.Keys.(*fakeKeys), f.trusted
			f.fill()
			change(f.b, feed.Batch[*config.Object]{}, update("1", requestAuthentication("x", "https://one")))
			f.want("no trust", "nothing")
			if keys.wanted != nil {
				f.t.Errorf("asked for keys %v before all is known", keys.wanted)
			}
			keys.keys <- &push.KeySets{}
			f.want("keys before they are asked for", "nothing")
			trust <- &push.Trust{ID: "1"}
			f.want("no keys since they were asked for", "nothing")
			if !maps.Equal(keys.wanted, map[string]time.Duration{"https://one": 0}) {
				f.t.Errorf("asked for keys %v", keys.wanted)
			}
			keys.keys <- &push.KeySets{ByURL: map[string]string{"https://one": "{}"}}
			f.want("all is here", "one=1 consul/web=10.0.0.1")
			change(f.b, feed.Batch[*config.Object]{}, update("2", requestAuthentication("y", "https://two", 3*time.Second, 9*time.Second)))
			if !maps.Equal(keys.wanted, map[string]time.Duration{"https://one": 0, "https://two": 9 * time.Second}) {
				f.t.Errorf("asked for keys %v", keys.wanted)
			}
			n := f.contexts.count()
			trust <- &push.Trust{ID: "2"}
			after(time.Second)
			if c := f.contexts.last().Inputs(); f.contexts.count() == n || c.Trust.ID != "2" || c.Keys == nil {
				f.t.Errorf("other roots were not published: %+v", c.Trust)
			}
		}},
		{"other control planes get what is our own", []func(*fixture){withExport}, func(f *fixture) {
			f.objects(f.b, "1: one=9 foreign=1")
			f.services(f.c, "web=10.0.0.1")
			f.services(f.d, "")
			after(time.Second)
			if f.exported.count() != 0 {
				f.t.Errorf("exported %d times before our sources delivered", f.exported.count())
			}
			change(f.a, feed.Batch[*config.Object]{Full: true},
				update("1", virtualService("one=1"), serviceEntry("web", "web")))
			f.wantExported("at first", "one=1 consul/web=10.0.0.1")
			n := f.exported.count()
			f.objects(f.b, "1: one=8")
			after(time.Minute)
			if f.exported.count() != n {
				f.t.Error("exported again when an external source changed")
			}
			f.services(f.c, "web=10.0.0.2")
			f.wantExported("another endpoint", "one=1 consul/web=10.0.0.2")
		}},
		{"sources that contradict one another", nil, func(f *fixture) {
			f.fill()
			in := service("web", "b.example")
			in.Service.Resolution = registry.DNS
			change(f.d, feed.Batch[registry.Instances]{}, update("web", in))
			f.objects(f.b, "1: one=2")
			f.want("the first source is used", "one=1 consul/web=10.0.0.1")
			s, err := f.assembler.Status(f.t.Context())
			if err != nil || s.Conflicts != 1 {
				f.t.Errorf("%d conflicts (%v), want 1", s.Conflicts, err)
			}
			p := f.problems()
			for _, want := range []string{
				"service web resolution: is DNS, not STATIC", "defined in one.yaml:1 of source a, which is used",
			} {
				if !strings.Contains(p, want) {
					f.t.Errorf("problems are %q, want %q", p, want)
				}
			}
			f.services(f.d, "")
			f.objects(f.b, "")
			after(time.Hour)
			if s, _ := f.assembler.Status(f.t.Context()); s.Conflicts != 0 {
				f.t.Errorf("%d conflicts after the other declaration is gone", s.Conflicts)
			}
		}},
		{"status", nil, func(f *fixture) {
			f.objects(f.a, "1: one=1")
			f.services(f.c, "web=10.0.0.1")
			f.services(f.d, "web=10.0.0.2")
			s, err := f.assembler.Status(f.t.Context())
			if err != nil || !slices.Equal(s.Waiting, []string{"b"}) || len(s.Sources) != 4 || s.Builds != 0 {
				f.t.Errorf("status is %+v, %v", s, err)
			}
			j, ok, err := f.assembler.Supplied(f.t.Context(), registry.Key{Host: "web", Namespace: "consul"})
			if err != nil || !ok || j.Endpoints.Len() != 2 || len(j.Parts) != 2 {
				f.t.Fatalf("supplied is %+v, %v, %v", j, ok, err)
			}
			if p := j.Parts[1]; p.Source != "d" || p.Used != 1 {
				f.t.Errorf("the second part is %+v", p)
			}
			if _, ok, _ := f.assembler.Supplied(f.t.Context(), registry.Key{Host: "web", Namespace: "shop"}); ok {
				f.t.Error("a service that there is not is supplied")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, c.options...)
				defer func() { f.stop() }()
				c.run(f)
			})
		})
	}
}

func (f *fixture) wantExported(when, want string) {
	f.t.Helper()
	after(time.Second)
	got := "nothing"
	if f.exported.count() > 0 {
		e := f.exported.last()
		got = active(e.Objects, e.Services, e.Endpoints)
	}
	if got != want {
		f.t.Errorf("%s: exported is %q, want %q", when, got, want)
	}
}

func withDeriver(f *fixture) {
	f.cfg.Deriver = &fakeDeriver{address: "10.9.9.9", more: make(chan struct{})}
}

func withAllocator(f *fixture) { f.cfg.Allocator = &fakeAllocator{vips: make(chan registry.VIPs)} }

func withTrust(f *fixture) {
	f.trusted = make(chan *push.Trust)
	f.cfg.Trust, f.cfg.Keys = f.trusted, &fakeKeys{keys: make(chan *push.KeySets)}
}

func withExport(f *fixture) {
	f.cfg.Deriver = &fakeDeriver{address: "10.9.9.9", more: make(chan struct{})}
	f.cfg.Export = &push.ExportConfig{
		External: func(source string) bool { return source == "b" }, Services: true,
		Publish: f.exported.add,
	}
}

// requestAuthentication has a rule without timeout, and one for each timeout.
func requestAuthentication(name, url string, timeouts ...time.Duration) *config.Object {
	rules := []*security.JWTRule{{Issuer: "i", JwksUri: url}}
	for _, t := range timeouts {
		rules = append(rules, &security.JWTRule{Issuer: "i", JwksUri: url, Timeout: durationpb.New(t)})
	}
	return &config.Object{
		Key: config.Key{Kind: config.RequestAuthentication, Namespace: "shop", Name: name}, Hash: uint64(len(url)),
		Spec: &security.RequestAuthentication{JwtRules: rules},
	}
}

// A source that can never work ends Run, and so do two sources of one name.
func TestAssemblerErrors(t *testing.T) {
	t.Parallel()
	broken := objectSource("files")
	broken.err = errors.New("wrong setting")
	for _, c := range []struct {
		want    string
		sources []push.Source[*config.Object]
	}{
		{"source files: wrong setting", []push.Source[*config.Object]{{Source: broken}}},
		{"two sources are called one: remove one of them", []push.Source[*config.Object]{
			{Source: objectSource("one")}, {Source: objectSource("one")},
		}},
	} {
		a := push.NewAssembler(push.AssemblerConfig{
			Sources: push.Sources{Objects: c.sources}, Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {},
		})
		if err := a.Run(t.Context()); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// A call of an assembler that does not run returns when the context ends.
func TestRequestsEnd(t *testing.T) {
	t.Parallel()
	a := push.NewAssembler(push.AssemblerConfig{Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Responds(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Responds: %v", err)
	}
	if _, err := a.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Status: %v", err)
	}
}

// Requests to an assembler that has ended fail at once.
func TestEnded(t *testing.T) {
	t.Parallel()
	a := push.NewAssembler(push.AssemblerConfig{Mesh: testMesh(), Publish: func(*push.Context, push.Changes) {}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Problems(t.Context()); err == nil {
		t.Error("it still answers")
	}
}
