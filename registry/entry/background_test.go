package entry_test

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

	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
)

// disk is an Addresses whose answers take time: a while, or until it is released.
type disk struct {
	takes time.Duration

	mu     sync.Mutex // guards the following
	ledger ledger
	stuck  chan struct{} // nil: it is not
	asked  int
}

func (d *disk) Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error) {
	d.mu.Lock()
	d.asked++
	stuck := d.stuck
	d.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	time.Sleep(d.takes)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger.Allocate(ctx, keys)
}

func (d *disk) Release(keys []registry.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger.Release(keys)
}

func (d *disk) Losing() <-chan struct{} { return d.ledger.losing }

func (d *disk) Lost() []registry.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger.Lost()
}

// hang makes it answer nothing until the returned function is called.
func (d *disk) hang() (release func()) {
	stuck := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck = stuck
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stuck = nil
		close(stuck)
	})
}

func (d *disk) refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger.refuse = err
}

// files is a source that says what a test tells it to.
type files chan feed.Batch[*config.Object]

func (files) Name() string { return "files" }

func (f files) Run(ctx context.Context, out chan<- feed.Batch[*config.Object]) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-f:
			select {
			case out <- b:
			case <-ctx.Done():
			}
		}
	}
}

// assembly is a running assembler over a disk, and the contexts that it published.
type assembly struct {
	files     files
	assembler *push.Assembler
	objects   objects
	contexts  []*push.Context
	at        []time.Duration // since the last edit
	edited    time.Time
	stop      func()
}

func assemble(t *testing.T, d *disk) *assembly {
	t.Helper()
	a := &assembly{files: make(files)}
	a.assembler = push.NewAssembler(push.AssemblerConfig{
		Sources: push.Sources{Objects: []config.Source{a.files}}, Derive: entry.NewBackground(d, nil, 0), Patience: 300 * time.Millisecond,
		Mesh: &push.Mesh{Config: &mesh.MeshConfig{RootNamespace: "root"}, Domain: "cluster.local"},
		Publish: func(c *push.Context, _ push.Changes) {
			a.contexts, a.at = append(a.contexts, c), append(a.at, time.Since(a.edited))
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.assembler.Run(ctx) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(a.stop)
	return a
}

// service puts a service of that host, and a route to it, and lets wait pass.
func (a *assembly) service(host, endpoint string, wait time.Duration) {
	se := serviceEntry(networking.ServiceEntry_STATIC, host)
	se.Endpoints = []*networking.WorkloadEntry{{Address: endpoint}}
	a.objects = with(a.objects, config.ServiceEntry, host, se)
	a.objects = with(a.objects, config.VirtualService, host, &networking.VirtualService{Hosts: []string{host}})
	u := feed.Update[*config.Object]{Group: "all"}
	for k, o := range a.objects.All() {
		o := *o
		o.Hash = config.HashOf(&o)
		a.objects = a.objects.With(k, &o)
		u.Items = append(u.Items, &o)
	}
	synctest.Wait()
	a.contexts, a.at, a.edited = nil, nil, time.Now()
	a.files <- feed.Batch[*config.Object]{Source: "files", Full: true, Updates: []feed.Update[*config.Object]{u}}
	time.Sleep(wait)
	synctest.Wait()
}

// address is the allocated address of host in the latest context.
func (a *assembly) address(t *testing.T, host string) string {
	t.Helper()
	if len(a.contexts) == 0 {
		t.Fatal("nothing was published")
	}
	s := a.contexts[len(a.contexts)-1].Inputs().Services.At(registry.Key{Host: host, Namespace: "shop"})
	if s == nil {
		t.Fatalf("%s is not in the context", host)
	}
	if len(s.AutoAddresses) == 0 {
		return ""
	}
	return s.AutoAddresses[0].String()
}

// A disk that hangs holds up neither what has nothing to do with it nor, beyond a moment, the service that needs
// an address. What has an address keeps it, and the new one gets its own when the disk is back.
func TestHungDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		a := assemble(t, d)
		a.service("old", "10.0.0.1", time.Second)
		old := a.address(t, "old")
		if old == "" {
			t.Fatal("the first context lacks an address")
		}
		release := d.hang()
		a.service("new", "10.0.0.2", time.Second)
		if got := a.address(t, "new"); got != "" {
			t.Errorf("the new service has %s from a disk that hangs", got)
		}
		if got := a.address(t, "old"); got != old {
			t.Errorf("the address of the old service moved from %s to %q", old, got)
		}
		if p := a.assembler.Status().Problems; len(p) != 1 || !strings.Contains(p[0].Text, "no virtual address for new yet") {
			t.Errorf("problems %v, want one of the new service", p)
		}
		a.service("old", "10.0.0.9", 0)
		if len(a.contexts) != 1 {
			t.Errorf("an endpoint changed while the disk hangs: %d contexts at once, want 1", len(a.contexts))
		}
		a.contexts = nil
		time.Sleep(time.Minute)
		release()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := a.address(t, "new"); got == "" || got == old {
			t.Errorf("the disk is back, and the new service has %q", got)
		}
		if got := a.address(t, "old"); got != old {
			t.Errorf("the address of the old service moved from %s to %q", old, got)
		}
		if p := a.assembler.Status().Problems; len(p) != 0 {
			t.Errorf("problems that are over: %v", p)
		}
	})
}

// Many services that wait for a store are one problem, not one each, and no disk is blamed that the store may not be on.
func TestHungStoreManyServices(t *testing.T) {
	t.Parallel()
	d := &disk{}
	d.hang()
	b := entry.NewBackground(d, nil, 0)
	objs := objects{}
	for i := range 1000 {
		name := fmt.Sprintf("s%03d", i)
		objs = with(objs, config.ServiceEntry, name, serviceEntry(networking.ServiceEntry_STATIC, name))
	}
	problems := func(of feed.Batch[registry.Instances]) (out []feed.Problem) {
		for _, u := range of.Updates {
			out = append(out, u.Problems...)
		}
		return out
	}
	want := func(got []feed.Problem, host string) {
		t.Helper()
		if len(got) != 1 || !strings.Contains(got[0].Text, "no virtual address for "+host+" yet") || !strings.Contains(got[0].Text, "Consul where the setting store says so") {
			t.Errorf("%d problems, the first of them %v; want one, of %s", len(got), got[:min(len(got), 1)], host)
		}
	}
	want(problems(b.Derive(t.Context(), objs)), "s000 and 999 more")
	gone := objs.Without(config.Key{Kind: config.ServiceEntry, Namespace: "shop", Name: "s000"})
	want(problems(b.Derive(t.Context(), gone)), "s001 and 998 more")
}

// A new service waits a moment for its address, so that it arrives complete and in one context with its route.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{takes: 200 * time.Millisecond}
		a := assemble(t, d)
		for i, host := range []string{"one", "two", "three"} {
			a.service(host, "10.0.0.1", time.Minute)
			if len(a.contexts) != 1 || a.at[0] != d.takes || a.address(t, host) == "" {
				t.Errorf("service %d: contexts after %v, address %q; want one after %v, with an address", i, a.at, a.address(t, host), d.takes)
			}
		}
		if d.asked != 3 {
			t.Errorf("the store was asked %d times, want once a service", d.asked)
		}
		a.service("one", "10.0.0.2", 0)
		if len(a.contexts) != 1 {
			t.Errorf("what has an address waited: %d contexts at once, want 1", len(a.contexts))
		}
	})
}

// The first context waits for the disk: without it, every service would lose the address that it had.
func TestHungDiskAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		release := d.hang()
		a := assemble(t, d)
		a.service("web", "10.0.0.1", time.Hour)
		if len(a.contexts) != 0 {
			t.Errorf("%d contexts without what the store knows", len(a.contexts))
		}
		if got := a.assembler.Status().Sources[1]; got.Name != "serviceentry" || got.Synced {
			t.Errorf("status: %+v, want services that are not complete", got)
		}
		release()
		time.Sleep(time.Second)
		synctest.Wait()
		if a.address(t, "web") == "" {
			t.Error("the first context lacks an address")
		}
		if got := a.assembler.Status().Sources[1]; !got.Synced {
			t.Errorf("status: %+v, want complete services", got)
		}
		d.hang()
		a.service("new", "10.0.0.2", time.Second)
		if got := a.assembler.Status().Sources[1]; !got.Synced {
			t.Errorf("status: %+v, want services that stay complete", got)
		}
	})
}

// A refusal holds up nothing, and is tried again until it is over; nobody asks for what is gone.
func TestRefusingDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		d.refuse(errors.New("disk full"))
		a := assemble(t, d)
		a.service("web", "10.0.0.1", 0)
		if got := a.address(t, "web"); got != "" {
			t.Errorf("got address %s from a full disk", got)
		}
		time.Sleep(12 * time.Second)
		synctest.Wait()
		if d.asked != 3 {
			t.Errorf("asked %d times in 12 s, want 3", d.asked)
		}
		if p := a.assembler.Status().Problems; len(p) != 1 || !strings.Contains(p[0].Text, "disk full") {
			t.Errorf("problems %v, want one that says why", p)
		}
		d.refuse(nil)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if a.address(t, "web") == "" {
			t.Error("the disk is well again, and the service has no address")
		}
		d.refuse(errors.New("disk full"))
		a.service("api", "10.0.0.1", 0)
		a.files <- feed.Batch[*config.Object]{Source: "files", Full: true}
		asked := d.asked
		time.Sleep(time.Minute)
		synctest.Wait()
		if d.asked != asked {
			t.Errorf("asked %d times for a service that is gone", d.asked-asked)
		}
	})
}

// What goes while it is asked for is let go when there is an answer, unless it is back.
func TestBackgroundLetsGoLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		a := assemble(t, d)
		a.service("old", "10.0.0.1", time.Second)
		release := d.hang()
		a.service("web", "10.0.0.1", time.Second)
		a.service("api", "10.0.0.1", time.Second)
		a.files <- feed.Batch[*config.Object]{Source: "files", Full: true}
		time.Sleep(time.Second)
		a.objects = objects{}
		a.service("web", "10.0.0.1", time.Second)
		if len(d.ledger.left) > 0 {
			t.Errorf("%v were let go while the store is asked", d.ledger.left)
		}
		release()
		time.Sleep(time.Minute)
		synctest.Wait()
		var left []string
		for _, k := range d.ledger.left {
			left = append(left, k.Host)
		}
		slices.Sort(left)
		if !slices.Equal(left, []string{"api", "old"}) || a.address(t, "web") == "" {
			t.Errorf("%v were let go, want api and old; web has %q", left, a.address(t, "web"))
		}
	})
}

// A service whose address is another's gets a new one, in one context.
func TestBackgroundLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{ledger: ledger{losing: make(chan struct{}, 1)}}
		a := assemble(t, d)
		a.service("web", "10.0.0.1", time.Second)
		web := registry.Key{Host: "web", Namespace: "shop"}
		had := a.address(t, "web")
		before := len(a.contexts)
		d.mu.Lock()
		delete(d.ledger.given, web)
		d.ledger.lost = []registry.Key{web, {Host: "gone"}}
		d.mu.Unlock()
		d.ledger.losing <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := a.address(t, "web"); got == had || got == "" || len(a.contexts) != before+1 {
			t.Errorf("it has %q after %d contexts, want another than %s after one", got, len(a.contexts)-before, had)
		}
	})
}

// A service that declares an address needs no allocated one any more: that is let go, once, also where it was only asked for, and
// asked for when it is wanted again.
func TestBackgroundDeclared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		a := assemble(t, d)
		a.service("web", "10.0.0.1", time.Second)
		had := a.address(t, "web")
		d.refuse(errors.New("disk full"))
		a.service("api", "10.0.0.1", time.Second)
		declare := func(addresses ...string) {
			for _, host := range []string{"api", "web"} {
				se := serviceEntry(networking.ServiceEntry_STATIC, host)
				se.Endpoints, se.Addresses = []*networking.WorkloadEntry{{Address: "10.0.0.1"}}, addresses
				a.objects = with(a.objects, config.ServiceEntry, host, se)
			}
		}
		declare("10.1.0.1")
		a.service("other", "10.0.0.1", time.Second)
		a.service("other", "10.0.0.2", time.Second)
		want := []registry.Key{{Host: "api", Namespace: "shop"}, {Host: "web", Namespace: "shop"}}
		if slices.SortFunc(d.ledger.left, registry.Key.Compare); !slices.Equal(d.ledger.left, want) {
			t.Errorf("%v were let go, want %v", d.ledger.left, want)
		}
		d.refuse(nil)
		declare()
		a.service("other", "10.0.0.1", 6*time.Second)
		if got := a.address(t, "web"); got != had || a.address(t, "api") == "" {
			t.Errorf("web has %q, want %s; api has %q", got, had, a.address(t, "api"))
		}
	})
}

// What was stuck ends with Run. A service that is gone is let go, and asked for when it is back.
func TestBackgroundLetsGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		a := assemble(t, d)
		a.service("web", "10.0.0.1", time.Second)
		had := a.address(t, "web")
		a.files <- feed.Batch[*config.Object]{Source: "files", Full: true}
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []registry.Key{{Host: "web", Namespace: "shop"}}; !slices.Equal(d.ledger.left, want) {
			t.Errorf("%v were let go, want %v", d.ledger.left, want)
		}
		a.objects = objects{}
		a.service("web", "10.0.0.1", time.Second)
		if got := a.address(t, "web"); got != had || d.asked != 2 || len(d.ledger.left) != 1 {
			t.Errorf("the service came back with %q after %d questions, want %s after 2; let go: %v", got, d.asked, had, d.ledger.left)
		}
		d.hang()
		a.service("other", "10.0.0.1", time.Second)
		a.stop()
		if !slices.Equal(d.ledger.given[registry.Key{Host: "other", Namespace: "shop"}], nil) {
			t.Error("the disk was not stuck")
		}
	})
}
