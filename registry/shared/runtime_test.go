package shared_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/shared"
)

// replica is a Runtime that runs.
type replica struct {
	*shared.Runtime
	link *link
	stop func() // ends it
	kill func() // ends it without a last write
}

// start runs a replica until the test ends or it is stopped.
func start(t testing.TB, store *record.Memory, cfg shared.Config) *replica {
	t.Helper()
	x := &replica{link: &link{Memory: store}}
	cfg.Records, cfg.Log = x.link, testlog.New(t)
	var err error
	if x.Runtime, err = shared.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := x.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	x.stop = func() { cancel(); <-done }
	x.kill = func() { x.link.setDown(true); x.stop() }
	t.Cleanup(x.stop)
	return x
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"alone": 0, "with two others": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testContract(t, func(t *testing.T, grace time.Duration) registry.Runtime {
				store := record.NewMemory()
				for range others {
					start(t, store, shared.Config{Grace: grace})
				}
				return start(t, store, shared.Config{Grace: grace, SingleReplica: others == 0})
			})
		})
	}
}

// workload is a registration at 10.0.n/256.n%256.
func workload(n int, session string) registry.Registration {
	r := web(session)
	r.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})}
	r.Name = registry.RegistrationName(r.Group, r.Addresses[0], "")
	return r
}

// mesh is some replicas with one store.
type mesh struct {
	t        *testing.T
	store    *record.Memory
	replicas []*replica // nil: it was stopped
}

// run calls f with n replicas in a bubble of synctest. They have the default times: a heartbeat
// every 5s, lost after 20s, a grace of 10s and a restart grace of 5m.
func run(t *testing.T, n int, f func(*mesh)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &mesh{t: t, store: record.NewMemory()}
		for i := range n {
			m.start(i)
		}
		f(m)
	})
}

// start starts replica i, again or for the first time.
func (m *mesh) start(i int) {
	x := start(m.t, m.store, shared.Config{
		Replica: fmt.Sprint("replica ", i), Advertise: []string{fmt.Sprintf("r%d:15012", i)}, Address: fmt.Sprint("m",
			i),
	})
	if i == len(m.replicas) {
		m.replicas = append(m.replicas, nil)
	}
	m.replicas[i] = x
}

func (m *mesh) kill(i int) {
	m.replicas[i].kill()
	m.replicas[i] = nil
}

func (m *mesh) connect(i, n int, session string) {
	m.t.Helper()
	if err := m.replicas[i].Connect(m.t.Context(), workload(n, session)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mesh) disconnect(i, n int, session string) {
	m.t.Helper()
	if err := m.replicas[i].Disconnect(m.t.Context(), workload(n, session).RegistrationKey, session); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mesh) report(i, n int, session string, state registry.Reported) {
	m.t.Helper()
	report := registry.Report{State: state, At: time.Now()}
	if err := m.replicas[i].Report(m.t.Context(), workload(n, session).RegistrationKey, session, report); err != nil {
		m.t.Fatal(err)
	}
}

// session is the active session of a workload on replica i.
func (m *mesh) session(i, n int) string {
	m.t.Helper()
	r := m.replicas[i].Registrations().At(workload(n, "").RegistrationKey)
	if r == nil {
		m.t.Fatalf("replica %d: workload %d is not registered", i, n)
	}
	return r.Session
}

// text describes the registrations of replica i: "1 2- 3!" are three workloads, where the proxy of
// 2 is disconnected and 3 is unhealthy.
func (m *mesh) text(i int) string {
	var out []string
	for _, r := range m.replicas[i].Registrations().All() {
		s := fmt.Sprint(r.Addresses[0].As4()[3])
		if !r.DisconnectedAt.IsZero() {
			s += "-"
		}
		if r.Health.State == registry.ReportedUnhealthy {
			s += "!"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// after wants all replicas to have these registrations after a time.
func (m *mesh) after(d time.Duration, want string) {
	m.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	for i, x := range m.replicas {
		if x != nil && m.text(i) != want {
			m.t.Fatalf("replica %d has %q, want %q", i, m.text(i), want)
		}
	}
}

// same is after half a second.
func (m *mesh) same(want string) { m.t.Helper(); m.after(500*time.Millisecond, want) }

func TestShared(t *testing.T) {
	run(t, 3, func(m *mesh) {
		m.connect(0, 1, "a")
		m.connect(1, 2, "b")
		m.same("1 2")
		m.report(0, 1, "a", registry.ReportedUnhealthy)
		m.same("1! 2")
		m.report(0, 1, "a", registry.ReportedHealthy)
		m.same("1 2")
		m.disconnect(1, 2, "b")
		m.same("1 2-")
		m.after(9*time.Second, "1 2-")
		m.after(time.Second, "1")
		m.after(5*time.Hour, "1")
	})
}

// A replica that is alone keeps what it saved for the restart grace, also of proxies that it
// disconnected when it stopped. No workload counts as connected before it has reconnected.
func TestRestartAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &mesh{t: t, store: record.NewMemory()}
		open := func() *replica { return start(t, m.store, shared.Config{SingleReplica: true}) }
		m.replicas = []*replica{open()}
		for n := 1; n <= 3; n++ {
			m.connect(0, n, "a")
		}
		m.report(0, 2, "a", registry.ReportedUnhealthy)
		m.disconnect(0, 3, "a")
		m.same("1 2! 3-")
		m.kill(0)

		time.Sleep(time.Hour)
		m.replicas[0] = open()
		if list, err := m.store.List(t.Context(), "replica"); err != nil || len(list) > 0 {
			t.Errorf("heartbeats: %v, %v", list, err)
		}
		for _, r := range m.replicas[0].Registrations().All() {
			if r.Session != "" || r.LeaseExpiry.IsZero() {
				t.Errorf("%s counts as connected", r.Name)
			}
		}
		m.same("1 2! 3-")
		time.Sleep(4 * time.Minute)
		m.connect(0, 2, "b")
		m.same("1 2! 3-")
		m.after(58*time.Second, "1 2! 3-")
		m.after(3*time.Second, "2!")
	})
}

// A proxy that connects to another replica keeps its health, and its former stream changes nothing.
func TestMove(t *testing.T) {
	run(t, 2, func(m *mesh) {
		m.connect(0, 1, "a")
		m.report(0, 1, "a", registry.ReportedUnhealthy)
		m.same("1!")
		m.connect(1, 1, "b")
		m.same("1!")
		err := m.replicas[0].Disconnect(t.Context(), workload(1, "").RegistrationKey, "a")
		if !errors.Is(err, registry.ErrSession) {
			t.Errorf("the former stream ends: got %v, want ErrSession", err)
		}
		m.same("1!")
		m.report(1, 1, "b", registry.ReportedHealthy)
		m.same("1")
		m.disconnect(1, 1, "b")
		m.connect(0, 1, "c")
		m.after(time.Hour, "1")
	})
}

// Two replicas with streams of one proxy agree on one. When it ends the other is active, with what
// it reported meanwhile.
func TestTwoSessions(t *testing.T) {
	run(t, 2, func(m *mesh) {
		m.connect(0, 1, "a")
		m.connect(1, 1, "b")
		m.same("1")
		active, sessions := 0, []string{"a", "b"}
		if m.session(0, 1) == "b" {
			active = 1
		}
		if m.session(1, 1) != sessions[active] {
			t.Fatalf("sessions %s and %s are active", m.session(0, 1), m.session(1, 1))
		}
		other := 1 - active
		report := registry.Report{State: registry.ReportedUnhealthy}
		err := m.replicas[other].Report(t.Context(), workload(1, "").RegistrationKey, sessions[other], report)
		if !errors.Is(err, registry.ErrSession) {
			t.Errorf("report of the other session: got %v, want ErrSession", err)
		}
		m.same("1")
		m.disconnect(active, 1, sessions[active])
		m.after(time.Hour, "1!")
		m.disconnect(other, 1, sessions[other])
		m.after(time.Minute, "")
	})
}

// The registrations of a replica that is killed end after 20s and the restart grace.
func TestKill(t *testing.T) {
	run(t, 3, func(m *mesh) {
		for n := range 3 {
			m.connect(0, n, "a")
		}
		m.disconnect(0, 0, "a")
		m.same("0- 1 2")
		m.kill(0)
		m.after(15*time.Second, "0- 1 2")
		m.after(20*time.Second, "1 2")
		m.connect(1, 2, "b")
		m.after(4*time.Minute, "1 2")
		m.after(time.Minute, "2")
		m.after(5*time.Hour, "2")
		if list, err := m.store.List(t.Context(), "replica"); err != nil || len(list) != 2 {
			t.Errorf("the store has %d replicas, %v; want 2", len(list), err)
		}
	})
}

// A replica that stops writes one record, and its registrations last for the restart grace.
func TestStop(t *testing.T) {
	run(t, 2, func(m *mesh) {
		for n := range 200 {
			m.connect(0, n, "a")
		}
		time.Sleep(time.Second)
		stopped := m.replicas[0]
		before := stopped.link.writes.Load()
		stopped.stop()
		m.replicas[0] = nil
		if n := stopped.link.writes.Load() - before; n != 1 {
			t.Errorf("it wrote %d records, want 1", n)
		}
		m.connect(1, 7, "b")
		time.Sleep(5*time.Minute - time.Second)
		if n := m.replicas[1].Registrations().Len(); n != 200 {
			t.Errorf("within the grace %d are registered, want 200", n)
		}
		m.after(2*time.Second, "7")
	})
}

// While nothing happens only heartbeats are written.
func TestIdle(t *testing.T) {
	run(t, 2, func(m *mesh) {
		for n := range 200 {
			m.connect(n%2, n, "a")
		}
		written := func() int64 { return m.replicas[0].link.writes.Load() + m.replicas[1].link.writes.Load() }
		time.Sleep(10 * time.Second)
		before := written()
		time.Sleep(1000 * time.Second)
		if n := written() - before; n > 2*1000/5+2 {
			t.Errorf("%d writes of two replicas in 1000s", n)
		}
	})
}

// While the store is unavailable no registration ends, changes are active on their own replica, and
// all replicas have them afterwards.
func TestStoreUnavailable(t *testing.T) {
	run(t, 2, func(m *mesh) {
		m.connect(0, 1, "a")
		m.connect(1, 2, "a")
		m.connect(1, 3, "a")
		m.connect(1, 4, "a")
		m.disconnect(1, 4, "a")
		m.same("1 2 3 4-")
		for _, x := range m.replicas {
			x.link.setDown(true)
		}
		m.report(0, 1, "a", registry.ReportedUnhealthy)
		m.connect(0, 5, "a")
		m.disconnect(1, 3, "a")
		time.Sleep(10 * time.Hour)
		if one, two := m.text(0), m.text(1); one != "1! 2 3 4- 5" || two != "1 2 3- 4-" {
			t.Errorf("the replicas have %q and %q", one, two)
		}
		if n := m.replicas[0].Unshared(); n != 2 {
			t.Errorf("%d workloads are not shared, want 2", n)
		}
		if p := m.replicas[0].Problems(); len(p) != 1 || !strings.Contains(p[0], errUnavailable.Error()) {
			t.Errorf("problems: %q", p)
		}
		m.connect(1, 4, "b")
		m.replicas[0].link.setDown(false)
		time.Sleep(5 * time.Second)
		if got := m.text(0); got != "1! 2 3 4- 5" {
			t.Errorf("the first with the store has %q", got)
		}
		m.replicas[1].link.setDown(false)
		m.after(2*time.Second, "1! 2 3- 4 5")
		m.after(time.Hour, "1! 2 4 5")
		if p := m.replicas[0].Problems(); len(p) != 0 {
			t.Errorf("problems afterwards: %q", p)
		}
	})
}

// When one replica alone cannot reach the store for long, the others delete its registrations. It
// writes them again, but not those of proxies that connected elsewhere.
func TestReplicaWithoutStore(t *testing.T) {
	run(t, 3, func(m *mesh) {
		m.connect(0, 1, "a")
		m.connect(0, 2, "a")
		m.same("1 2")
		m.replicas[0].link.setDown(true)
		time.Sleep(time.Minute)
		m.connect(1, 2, "b")
		time.Sleep(5 * time.Minute)
		if one, two := m.text(0), m.text(1); one != "1 2" || two != "2" {
			t.Errorf("the one without the store has %q, another %q", one, two)
		}
		m.report(0, 1, "a", registry.ReportedUnhealthy)
		m.replicas[0].link.setDown(false)
		m.after(3*time.Second, "1! 2")
		if s := m.session(2, 2); s != "b" {
			t.Errorf("session %s is active, want the later one", s)
		}
		m.after(time.Hour, "1! 2")
	})
}

// What connected last is active, also when it was written first.
func TestLateWrite(t *testing.T) {
	run(t, 2, func(m *mesh) {
		m.replicas[0].link.setDown(true)
		m.connect(0, 1, "a")
		time.Sleep(3 * time.Second)
		m.connect(1, 1, "b")
		m.report(1, 1, "b", registry.ReportedUnhealthy)
		time.Sleep(3 * time.Second)
		m.replicas[0].link.setDown(false)
		m.after(3*time.Second, "1!")
		if s := m.session(0, 1); s != "b" {
			t.Errorf("session %s is active, want b", s)
		}
	})
}

// Writes in batches to a slow store are no outage, and the replica is not lost.
func TestSlowStore(t *testing.T) {
	run(t, 2, func(m *mesh) {
		const n = 2560
		time.Sleep(time.Second)
		m.replicas[0].link.takes.Store(int64(2 * time.Second))
		for i := range n {
			m.connect(0, i, "a")
		}
		for range 120 {
			time.Sleep(time.Second)
			if p, alive := m.replicas[0].Problems(), m.replicas[1].Replicas(); len(p) != 0 || alive != 2 {
				t.Fatalf("problems %q, %d replicas are alive; want none and 2", p, alive)
			}
		}
		for i, x := range m.replicas {
			if got := x.Registrations().Len(); got != n {
				t.Errorf("replica %d has %d registrations, want %d", i, got, n)
			}
		}
	})
}

// The largest registration and the longest name fit into a record.
func TestLargest(t *testing.T) {
	run(t, 2, func(m *mesh) {
		large := workload(1, "a")
		large.Labels = map[string]string{}
		for i := 0; large.CheckSize() == nil; i++ {
			large.Labels[fmt.Sprint(i)] = strings.Repeat("\x01", 100)
		}
		delete(large.Labels, fmt.Sprint(len(large.Labels)-1))
		long := workload(2, "a")
		long.Group, long.Name = strings.Repeat("g", 253), strings.Repeat("n", 253)
		for _, r := range []registry.Registration{large, long} {
			if err := m.replicas[0].Connect(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		report := registry.Report{State: registry.ReportedUnhealthy, Message: strings.Repeat("\x01", 1<<10)}
		if err := m.replicas[0].Report(t.Context(), large.RegistrationKey, "a", report); err != nil {
			t.Fatal(err)
		}
		m.same("1! 2")
		if p := m.replicas[0].Problems(); len(p) != 0 {
			t.Errorf("problems: %q", p)
		}
	})
}

// A record that cannot be read changes nothing, and its replica writes it again.
func TestInvalidRecord(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON":    "\x00",
		"null":       "null",
		"no address": `{"namespace":"shop","group":"web","name":"web-10.0.0.1","owner":"x"}`,
		"other name": `{"namespace":"shop","group":"web","name":"web-10.0.0.2","owner":"x","addresses":["10.0.0.2"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 2, func(m *mesh) {
				m.connect(0, 1, "a")
				m.same("1")
				key := record.Key{Table: "registration", Name: "shop/web/web-10.0.0.1"}
				err := m.store.Commit(t.Context(), record.Write{Key: key, Value: []byte(value), Version: record.Any})
				if err != nil {
					t.Fatal(err)
				}
				m.start(2)
				m.same("1")
				m.report(0, 1, "a", registry.ReportedUnhealthy)
				m.same("1!")
			})
		})
	}
}

// After the store was restored to a former state, connected proxies are registered again, and
// sessions that ended end again.
func TestStoreRestored(t *testing.T) {
	run(t, 2, func(m *mesh) {
		m.connect(0, 1, "a")
		m.connect(0, 2, "a")
		m.connect(1, 3, "a")
		m.same("1 2 3")
		old, err := m.store.List(t.Context(), "registration")
		if err != nil {
			t.Fatal(err)
		}
		m.connect(0, 1, "b")
		m.report(0, 1, "b", registry.ReportedUnhealthy)
		m.disconnect(0, 2, "a")
		m.connect(1, 4, "a")
		m.after(time.Minute, "1! 3 4")
		four := record.Key{Table: "registration", Name: "shop/web/web-10.0.0.4"}
		writes := []record.Write{{Key: four, Version: record.Any}}
		for _, r := range old {
			writes = append(writes, record.Write{Key: r.Key, Value: r.Value, Version: record.Any})
		}
		if err := m.store.Commit(t.Context(), writes...); err != nil {
			t.Fatal(err)
		}
		m.same("1! 2 3 4")
		m.after(6*time.Minute, "1! 3 4")
	})
}

// A replica knows which others are alive, and where agents find them.
func TestReplicas(t *testing.T) {
	run(t, 3, func(m *mesh) {
		want := func(d time.Duration, i, alive int, advertised ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			x := m.replicas[i]
			if n := x.Replicas(); n != alive {
				t.Errorf("replica %d: %d are alive, want %d", i, n, alive)
			}
			if got := x.Advertised(); !slices.Equal(got, advertised) {
				t.Errorf("replica %d: advertised %q, want %q", i, got, advertised)
			}
			var others []string
			for _, o := range x.Others() {
				others = append(others, o.Name+" at "+o.Address)
			}
			var named []string
			for _, a := range advertised {
				named = append(named, fmt.Sprintf("replica %c at m%c", a[1], a[1]))
			}
			if !slices.Equal(others, named) {
				t.Errorf("replica %d: the others are %q, want %q", i, others, named)
			}
		}
		want(time.Second, 0, 3, "r1:15012", "r2:15012")
		want(0, 2, 3, "r0:15012", "r1:15012")
		m.replicas[1].stop()
		want(time.Second, 0, 2, "r2:15012")
		m.kill(2)
		want(30*time.Second, 0, 1)
		m.start(2)
		want(6*time.Second, 0, 2, "r2:15012")
		want(20*time.Second, 2, 2, "r0:15012")
	})
}

// BenchmarkReport is the time until another replica has one report among 10,000 workloads, without
// the time of the store.
func BenchmarkReport(b *testing.B) {
	store := record.NewMemory()
	one, two := start(b, store, shared.Config{}), start(b, store, shared.Config{})
	changed := two.Watch(b.Context())
	const n = 10_000
	for i := range n {
		if err := one.Connect(b.Context(), workload(i, "s")); err != nil {
			b.Fatal(err)
		}
	}
	for two.Registrations().Len() < n {
		<-changed
	}
	key := workload(7, "s").RegistrationKey
	for i := 0; b.Loop(); i++ {
		state := registry.ReportedHealthy + registry.Reported(i%2)
		if err := one.Report(b.Context(), key, "s", registry.Report{State: state}); err != nil {
			b.Fatal(err)
		}
		for two.Registrations().At(key).Health.State != state {
			<-changed
		}
	}
}
