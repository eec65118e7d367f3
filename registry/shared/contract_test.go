package shared_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashore-mesh/ashore/registry"
)

// testContract tests what registry.Runtime promises, of the runtimes that open makes: each is empty,
// runs until the test ends, and keeps a registration for grace after its proxy disconnected.
func testContract(t *testing.T, open func(t *testing.T, grace time.Duration) registry.Runtime) {
	for name, test := range map[string]func(*testing.T, registry.Runtime){
		"connect":                  connect,
		"reconnect":                reconnect,
		"another identity":         identity,
		"reports":                  reports,
		"an older session":         olderSession,
		"remove":                   remove,
		"remove disconnected":      removeDisconnected,
		"watch":                    watchChanges,
		"snapshots":                snapshots,
		"two groups":               twoGroups,
		"many at one time":         many,
		"disconnect and reconnect": back,
		"too large":                tooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, time.Hour))
		})
	}
	t.Run("grace", func(t *testing.T) {
		t.Parallel()
		grace(t, open(t, 200*time.Millisecond))
	})
}

// web is a registration of the group shop/web by session.
func web(session string) registry.Registration {
	a := netip.MustParseAddr("10.0.0.1")
	return registry.Registration{
		RegistrationKey: registry.RegistrationKey{
			Namespace: "shop", Group: "web", Name: registry.RegistrationName("web", a, ""),
		},
		Identity:  "spiffe://cluster.local/ns/shop/sa/web",
		Addresses: []netip.Addr{a},
		Labels:    map[string]string{"app": "web"},
		Session:   session,
	}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get returns a registration that must exist.
func get(t *testing.T, rt registry.Runtime, k registry.RegistrationKey) *registry.Registration {
	t.Helper()
	r, ok := rt.Registrations().Get(k)
	if !ok {
		t.Fatalf("%+v is not registered", k)
	}
	return r
}

// A registration that is too large is rejected, and the former one stays.
func tooLarge(t *testing.T, rt registry.Runtime) {
	must(t, rt.Connect(t.Context(), web("1")))
	large := web("2")
	large.Labels = map[string]string{"app": strings.Repeat("x", registry.MaxRegistration)}
	if err := rt.Connect(t.Context(), large); !errors.Is(err, registry.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if r := get(t, rt, large.RegistrationKey); r.Session != "1" || r.Labels["app"] != "web" {
		t.Errorf("it is replaced by session %s with labels of %d bytes", r.Session, len(r.Labels["app"]))
	}
	fits := web("3")
	fits.Labels = map[string]string{"app": strings.Repeat("x", registry.MaxRegistration-1<<10)}
	must(t, rt.Connect(t.Context(), fits))
}

func connect(t *testing.T, rt registry.Runtime) {
	if n := rt.Registrations().Len(); n != 0 {
		t.Fatalf("%d registrations at the start", n)
	}
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	r := get(t, rt, w.RegistrationKey)
	if r.Identity != w.Identity || r.Addresses[0] != w.Addresses[0] || r.Labels["app"] != "web" || r.Session != "1" {
		t.Errorf("got %+v", r)
	}
	if r.Created.IsZero() || r.ConnectedAt.IsZero() || !r.DisconnectedAt.IsZero() {
		t.Errorf("created %v, connected %v, disconnected %v", r.Created, r.ConnectedAt, r.DisconnectedAt)
	}
}

func reconnect(t *testing.T, rt registry.Runtime) {
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	must(t, rt.Report(t.Context(), w.RegistrationKey, "1", registry.Report{State: registry.ReportedHealthy}))
	before := get(t, rt, w.RegistrationKey)
	w = web("2")
	w.Labels, w.Locality = map[string]string{"app": "web", "version": "v2"}, registry.Locality{Region: "eu"}
	must(t, rt.Connect(t.Context(), w))
	r := get(t, rt, w.RegistrationKey)
	if r.Labels["version"] != "v2" || r.Locality.Region != "eu" || r.Session != "2" {
		t.Errorf("the new registration is not used: %+v", r)
	}
	if !r.Created.Equal(before.Created) || r.Health.State != registry.ReportedHealthy {
		t.Errorf("first registered at %v, health %v; want %v and healthy", r.Created, r.Health.State, before.Created)
	}
}

func identity(t *testing.T, rt registry.Runtime) {
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	must(t, rt.Report(t.Context(), w.RegistrationKey, "1", registry.Report{State: registry.ReportedHealthy}))
	w = web("2")
	w.Identity = "spiffe://cluster.local/ns/shop/sa/other"
	must(t, rt.Connect(t.Context(), w))
	if r := get(t, rt, w.RegistrationKey); r.Health.State != registry.NotReported || r.Identity != w.Identity {
		t.Errorf("another identity got the health: %+v", r)
	}
}

func reports(t *testing.T, rt registry.Runtime) {
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	unhealthy := registry.Report{State: registry.ReportedUnhealthy, Message: "503"}
	for _, h := range []registry.Report{unhealthy, {State: registry.ReportedHealthy}} {
		must(t, rt.Report(t.Context(), w.RegistrationKey, "1", h))
		if got := get(t, rt, w.RegistrationKey).Health; got.State != h.State || got.Message != h.Message {
			t.Errorf("health %+v, want %+v", got, h)
		}
	}
}

func olderSession(t *testing.T, rt registry.Runtime) {
	w := web("1")
	for _, session := range []string{"1", "2"} {
		w.Session = session
		must(t, rt.Connect(t.Context(), w))
	}
	before := get(t, rt, w.RegistrationKey)
	for what, err := range map[string]error{
		"report": rt.Report(t.Context(), w.RegistrationKey, "1",
			registry.Report{State: registry.ReportedUnhealthy}),
		"disconnect": rt.Disconnect(t.Context(), w.RegistrationKey, "1"),
		"remove":     rt.Remove(t.Context(), w.RegistrationKey, "1"),
	} {
		if !errors.Is(err, registry.ErrSession) {
			t.Errorf("%s of a former session: %v, want ErrSession", what, err)
		}
	}
	if get(t, rt, w.RegistrationKey) != before {
		t.Error("a former session changed the registration")
	}
}

func remove(t *testing.T, rt registry.Runtime) {
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	must(t, rt.Remove(t.Context(), w.RegistrationKey, "1"))
	if n := rt.Registrations().Len(); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
	if err := rt.Remove(t.Context(), w.RegistrationKey, "1"); !errors.Is(err, registry.ErrSession) {
		t.Errorf("removed twice: %v, want ErrSession", err)
	}
}

// A registration is removed without a session only while its proxy is disconnected.
func removeDisconnected(t *testing.T, rt registry.Runtime) {
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	if err := rt.Remove(t.Context(), w.RegistrationKey, ""); !errors.Is(err, registry.ErrSession) {
		t.Errorf("while it is connected: %v", err)
	}
	must(t, rt.Disconnect(t.Context(), w.RegistrationKey, "1"))
	must(t, rt.Remove(t.Context(), w.RegistrationKey, ""))
	if n := rt.Registrations().Len(); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
}

func watchChanges(t *testing.T, rt registry.Runtime) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed := rt.Watch(ctx)
	w := web("1")
	for _, change := range []func() error{
		func() error { return rt.Connect(t.Context(), w) },
		func() error {
			return rt.Report(t.Context(), w.RegistrationKey, "1", registry.Report{State: registry.ReportedHealthy})
		},
		func() error { return rt.Disconnect(t.Context(), w.RegistrationKey, "1") },
	} {
		must(t, change())
		select {
		case <-changed:
		case <-time.After(20 * time.Second):
			t.Fatal("Watch sent nothing after a change")
		}
	}
}

func snapshots(t *testing.T, rt registry.Runtime) {
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	before, r := rt.Registrations(), get(t, rt, w.RegistrationKey)
	was := *r
	must(t, rt.Report(t.Context(), w.RegistrationKey, "1", registry.Report{State: registry.ReportedUnhealthy}))
	must(t, rt.Disconnect(t.Context(), w.RegistrationKey, "1"))
	same := r.Health == was.Health && r.DisconnectedAt == was.DisconnectedAt && r.Session == was.Session
	if before.At(w.RegistrationKey) != r || !same {
		t.Error("a snapshot changed")
	}
}

func twoGroups(t *testing.T, rt registry.Runtime) {
	w, other := web("1"), web("1")
	other.Group, other.Name = "admin", registry.RegistrationName("admin", other.Addresses[0], "")
	must(t, rt.Connect(t.Context(), w))
	must(t, rt.Connect(t.Context(), other))
	must(t, rt.Remove(t.Context(), other.RegistrationKey, "1"))
	get(t, rt, w.RegistrationKey)
}

func many(t *testing.T, rt registry.Runtime) {
	const n = 50
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			w := web("1")
			w.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})}
			w.Name = registry.RegistrationName("web", w.Addresses[0], "")
			for range 20 {
				report := registry.Report{State: registry.ReportedHealthy}
				err := errors.Join(
					rt.Connect(t.Context(), w),
					rt.Report(t.Context(), w.RegistrationKey, "1", report),
					rt.Disconnect(t.Context(), w.RegistrationKey, "1"),
					rt.Connect(t.Context(), w),
				)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got := rt.Registrations().Len(); got != n {
		t.Errorf("%d registrations, want %d", got, n)
	}
}

func back(t *testing.T, rt registry.Runtime) {
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	must(t, rt.Disconnect(t.Context(), w.RegistrationKey, "1"))
	if r := get(t, rt, w.RegistrationKey); r.DisconnectedAt.IsZero() {
		t.Error("it has no time of its disconnection")
	}
	w = web("2")
	must(t, rt.Connect(t.Context(), w))
	if r := get(t, rt, w.RegistrationKey); !r.DisconnectedAt.IsZero() {
		t.Error("it is disconnected after it reconnected")
	}
}

func grace(t *testing.T, rt registry.Runtime) {
	changed := rt.Watch(t.Context())
	w := web("1")
	must(t, rt.Connect(t.Context(), w))
	must(t, rt.Disconnect(t.Context(), w.RegistrationKey, "1"))
	late := time.After(20 * time.Second)
	for rt.Registrations().Len() > 0 {
		select {
		case <-changed:
		case <-late:
			t.Fatal("it is still registered after the grace period")
		}
	}
}
