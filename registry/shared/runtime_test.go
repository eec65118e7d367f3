package shared_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/runtimetest"
	"github.com/ashore-mesh/ashore/registry/shared"
)

// one is a replica that runs.
type one struct {
	*shared.Runtime
	name string
	link *link
	stop context.CancelFunc // says goodbye
	kill func()             // does not
	done chan error
}

// start runs a replica over a store until the test ends or it is stopped.
func start(t *testing.T, store record.Store, cfg shared.Config) *one {
	t.Helper()
	o := &one{name: cfg.Replica, link: &link{Store: store}, done: make(chan error, 1)}
	cfg.Records = changer{o.link}
	if cfg.Log == nil {
		cfg.Log = testlog.New(t)
	}
	if strings.HasSuffix(cfg.Replica, "1") { // to one of them the store does not tell what has changed
		cfg.Records = o.link
	}
	rt, err := shared.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.Runtime, o.stop = rt, cancel
	o.kill = func() { o.link.sever("registration", "replica"); cancel() }
	go func() { o.done <- rt.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-o.done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return o
}

func TestContract(t *testing.T) {
	t.Parallel()
	runtimetest.Run(t, func(t *testing.T, grace time.Duration) registry.Runtime {
		return start(t, record.NewMemory(), shared.Config{Grace: grace})
	})
}

// What every runtime promises holds beside others that share the store too.
func TestContractBesideOthers(t *testing.T) {
	t.Parallel()
	runtimetest.Run(t, func(t *testing.T, grace time.Duration) registry.Runtime {
		store := record.NewMemory()
		for range 2 {
			start(t, store, shared.Config{Grace: grace})
		}
		return start(t, store, shared.Config{Grace: grace})
	})
}

// at is a registration at 10.0.0.n.
func at(n byte, session string) registry.Registration {
	r := runtimetest.Web(session)
	r.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n})}
	r.Name = registry.RegistrationName(r.Group, r.Addresses[0], "")
	return r
}

// told is what a replica tells of workloads: "1 2- 3!" of three, where the proxy of 2 has gone and 3 is not well.
func told(rt registry.Runtime) string {
	var out []string
	for k, r := range rt.Registrations().All() {
		s := strings.TrimPrefix(k.Name, "web-10.0.0.")
		if !r.DisconnectedAt.IsZero() {
			s += "-"
		}
		if r.Health.State == registry.ReportedUnhealthy {
			s += "!"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// fleet are replicas that share a store.
type fleet struct {
	t     *testing.T
	store *record.Memory
	all   []*one
}

// replicas runs n of them in a bubble of synctest, in which 4 beats are 20s, the grace is 10s, and that of a lost one 60s.
func replicas(t *testing.T, n int, cfg func(i int) shared.Config, f func(*fleet)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fl := &fleet{t: t, store: record.NewMemory()}
		for i := range n {
			c := shared.Config{}
			if cfg != nil {
				c = cfg(i)
			}
			c.Replica = fmt.Sprint("replica ", i)
			fl.all = append(fl.all, start(t, fl.store, c))
		}
		f(fl)
	})
}

// same wants every replica, but for those that were stopped, to tell the same, a moment from now.
func (fl *fleet) same(want string) {
	fl.t.Helper()
	fl.after(500*time.Millisecond, want)
}

// after is same at a time from now.
func (fl *fleet) after(d time.Duration, want string) {
	fl.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	for i, o := range fl.all {
		if o != nil && told(o) != want {
			fl.t.Fatalf("replica %d tells %q, want %q", i, told(o), want)
		}
	}
}

// end stops a replica, or kills it, and counts it no more.
func (fl *fleet) end(i int, how func()) {
	fl.t.Helper()
	o := fl.all[i]
	how()
	fl.all[i] = nil
	if err := <-o.done; err != nil {
		fl.t.Error(err)
	}
	o.done <- nil
}

func (fl *fleet) connect(i int, n byte, session string) {
	fl.t.Helper()
	if err := fl.all[i].Connect(fl.t.Context(), at(n, session)); err != nil {
		fl.t.Fatal(err)
	}
}

func (fl *fleet) leave(i int, n byte, session string) {
	fl.t.Helper()
	if err := fl.all[i].Disconnect(fl.t.Context(), at(n, session).RegistrationKey, session); err != nil {
		fl.t.Fatal(err)
	}
}

func (fl *fleet) report(i int, n byte, session string, state registry.Reported) {
	fl.t.Helper()
	if err := fl.all[i].Report(fl.t.Context(), at(n, session).RegistrationKey, session, registry.Report{State: state, At: time.Now()}); err != nil {
		fl.t.Fatal(err)
	}
}

// What the stream of one replica says, all tell.
func TestShared(t *testing.T) {
	replicas(t, 3, nil, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.connect(1, 2, "b")
		fl.same("1 2")
		fl.report(0, 1, "a", registry.ReportedUnhealthy)
		fl.same("1! 2")
		fl.report(0, 1, "a", registry.ReportedHealthy)
		fl.same("1 2")
		fl.leave(1, 2, "b")
		fl.same("1 2-")
		fl.after(9*time.Second, "1 2-")
		fl.after(time.Second, "1")
		fl.after(5*time.Hour, "1")
	})
}

// A proxy that moves takes its health along, whichever of the two replicas hears of it first.
func TestMoves(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.report(0, 1, "a", registry.ReportedUnhealthy)
		fl.same("1!")
		fl.connect(1, 1, "b")
		fl.same("1!")
		if err := fl.all[0].Disconnect(t.Context(), at(1, "a").RegistrationKey, "a"); !errors.Is(err, registry.ErrSession) {
			t.Errorf("the end of a stream whose place was taken: %v", err)
		}
		fl.same("1!")
		fl.report(1, 1, "b", registry.ReportedHealthy)
		fl.same("1")
		fl.leave(1, 1, "b")
		fl.connect(0, 1, "c")
		fl.same("1")
		fl.after(time.Hour, "1")
	})
}

// Two replicas that hear of two streams of one proxy at the same moment agree on one, and when that ends the other speaks.
func TestBothAtOnce(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.connect(1, 1, "b")
		fl.same("1")
		winner := fl.all[0].Registrations().At(at(1, "").RegistrationKey).Session
		if other := fl.all[1].Registrations().At(at(1, "").RegistrationKey).Session; other != winner {
			t.Fatalf("%s and %s speak for one workload", winner, other)
		}
		i, loser := 0, "b"
		if winner == "b" {
			i, loser = 1, "a"
		}
		// what the other says meanwhile counts when its turn comes
		err := fl.all[1-i].Report(t.Context(), at(1, "").RegistrationKey, loser, registry.Report{State: registry.ReportedUnhealthy})
		if !errors.Is(err, registry.ErrSession) {
			t.Errorf("report of a session that does not speak: %v", err)
		}
		fl.same("1")
		fl.leave(i, 1, winner)
		fl.same("1!")
		fl.after(time.Hour, "1!")
		fl.leave(1-i, 1, loser)
		fl.same("1-!")
		fl.after(time.Minute, "")
	})
}

// Those who were connected to a replica that was killed count until they had time to turn to another.
func TestKilled(t *testing.T) {
	replicas(t, 3, nil, func(fl *fleet) {
		for n := byte(1); n <= 3; n++ {
			fl.connect(0, n, "a")
		}
		fl.leave(0, 3, "a")
		fl.same("1 2 3-")
		fl.end(0, fl.all[0].kill)
		fl.after(15*time.Second, "1 2 3-")
		fl.after(10*time.Second, "1 2")
		fl.connect(1, 2, "b")
		fl.after(40*time.Second, "1 2")
		fl.after(30*time.Second, "2")
		fl.after(5*time.Hour, "2")
		if list, err := fl.store.List(t.Context(), "replica"); err != nil || len(list) != 2 {
			t.Errorf("%d replicas are known, %v; want 2", len(list), err)
		}
	})
}

// A replica that ends writes one record, not one of each workload.
func TestEnded(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		const n = 200
		for i := range byte(n) {
			fl.connect(0, i, "a")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before := fl.all[0].link.writes.Load()
		o := fl.all[0]
		fl.end(0, o.stop)
		if wrote := o.link.writes.Load() - before; wrote != 1 {
			t.Errorf("%d writes to say goodbye, want 1", wrote)
		}
		if got := fl.all[1].Registrations().Len(); got != n {
			t.Fatalf("%d are registered, want %d", got, n)
		}
		fl.connect(1, 7, "b")
		fl.after(59*time.Second, told(fl.all[1]))
		fl.after(2*time.Second, "7")
	})
}

// While nothing happens only the replicas themselves write, however many workloads there are.
func TestIdle(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		for i := range byte(200) {
			fl.connect(int(i)%2, i, "a")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := fl.all[0].link.writes.Load() + fl.all[1].link.writes.Load()
		time.Sleep(1000 * time.Second)
		synctest.Wait()
		if wrote := fl.all[0].link.writes.Load() + fl.all[1].link.writes.Load() - before; wrote > 2*1000/5+2 {
			t.Errorf("%d writes in 1000s of two replicas", wrote)
		}
	})
}

// While the store is away what a replica hears counts with it, nobody who was right is lost, and everything is told when it
// is back.
func TestStoreAway(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.connect(1, 2, "a")
		fl.connect(1, 3, "a")
		fl.same("1 2 3")
		for _, o := range fl.all {
			o.link.sever("registration", "replica")
		}
		fl.report(0, 1, "a", registry.ReportedUnhealthy)
		fl.connect(0, 4, "a")
		fl.leave(1, 3, "a")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got, other := told(fl.all[0]), told(fl.all[1]); got != "1! 2 3 4" || other != "1 2 3-" {
			t.Errorf("they tell %q and %q", got, other)
		}
		if n := fl.all[0].Unshared(); n != 2 {
			t.Errorf("%d workloads are not shared, want 2", n)
		}
		if p := fl.all[0].Problems(); len(p) != 1 || !strings.Contains(p[0], errAway.Error()) {
			t.Errorf("problems: %q", p)
		}
		for _, o := range fl.all {
			o.link.mend()
		}
		fl.after(2*time.Second, "1! 2 3- 4")
		fl.after(11*time.Second, "1! 2 4")
		fl.after(time.Hour, "1! 2 4")
		if p := fl.all[0].Problems(); len(p) != 0 {
			t.Errorf("problems afterwards: %q", p)
		}
	})
}

// A fleet that comes all at once to a replica whose store is slow is written batch by batch, however long all of them take: the store
// is not taken for away, nor the replica for lost.
func TestSlowStore(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		fl.connect(1, 1, "a")
		fl.same("1")
		fl.all[0].link.takes.Store(int64(3 * time.Second))
		const n = 2560
		for i := range n {
			if err := fl.all[0].Connect(fl.t.Context(), crowd(1000+i, "a")); err != nil {
				fl.t.Fatal(err)
			}
		}
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			synctest.Wait()
			if p := fl.all[0].Problems(); len(p) != 0 {
				fl.t.Fatalf("problems %q", p)
			}
			if got := fl.all[1].Replicas(); got != 2 {
				fl.t.Fatalf("%d replicas are alive, want 2", got)
			}
		}
		for i, o := range fl.all {
			if got := o.Registrations().Len(); got != n+1 {
				t.Errorf("replica %d tells of %d, want %d", i, got, n+1)
			}
		}
		// a store that does not take even one in time is away
		fl.all[0].link.takes.Store(int64(time.Minute))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if p := fl.all[0].Problems(); len(p) != 1 {
			fl.t.Errorf("problems %q, want one", p)
		}
	})
}

// A proxy that went before the store did may be at a replica that cannot say so: who is back first waits for the others.
func TestBackFirst(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.same("1")
		fl.leave(0, 1, "a")
		fl.same("1-")
		for _, o := range fl.all {
			o.link.sever("registration", "replica")
		}
		fl.connect(1, 1, "b")
		time.Sleep(time.Minute)
		fl.all[0].link.mend()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := told(fl.all[0]); got != "1-" {
			t.Errorf("it tells %q", got)
		}
		fl.all[1].link.mend()
		fl.after(2*time.Second, "1")
	})
}

// The registrations of a replica that is cut off for long end, and are there again when it is back.
func TestCutOff(t *testing.T) {
	replicas(t, 3, nil, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.connect(0, 2, "a")
		fl.same("1 2")
		fl.all[0].link.sever("registration", "replica")
		time.Sleep(30 * time.Second)
		fl.connect(1, 2, "b") // it has turned to another; its old stream hangs
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if got, other := told(fl.all[0]), told(fl.all[1]); got != "1 2" || other != "2" {
			t.Errorf("the one that is cut off tells %q, another %q", got, other)
		}
		fl.report(0, 1, "a", registry.ReportedUnhealthy)
		fl.all[0].link.mend()
		fl.after(3*time.Second, "1! 2")
		if r := fl.all[2].Registrations().At(at(2, "").RegistrationKey); r.Session != "b" {
			t.Errorf("session %s speaks for the one that has moved, want b", r.Session)
		}
		fl.after(time.Hour, "1! 2")
	})
}

// What came later counts, not what was written later: who was cut off does not take a workload back.
func TestLateWord(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		fl.connect(1, 2, "x")
		fl.same("2")
		fl.all[0].link.sever("registration", "replica")
		fl.connect(0, 1, "a")
		time.Sleep(3 * time.Second)
		fl.connect(1, 1, "b")
		fl.report(1, 1, "b", registry.ReportedUnhealthy)
		time.Sleep(3 * time.Second)
		fl.all[0].link.mend()
		fl.after(3*time.Second, "1! 2")
		if r := fl.all[0].Registrations().At(at(1, "").RegistrationKey); r.Session != "b" {
			t.Errorf("session %s speaks, want b", r.Session)
		}
		fl.leave(1, 1, "b")
		fl.same("1! 2") // the stream to the other is there still, and has not said that it is better
	})
}

// A replica that answers and writes nothing is cut off, not lost, and its workloads count for as long as it answers.
func TestAnswers(t *testing.T) {
	var answers atomic.Bool
	answers.Store(true)
	replicas(t, 2, func(i int) shared.Config {
		return shared.Config{Address: fmt.Sprintf("10.1.0.%d:15012", i), Answers: func(_ context.Context, address string) bool { return address == "10.1.0.0:15012" && answers.Load() }}
	}, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.same("1")
		fl.all[0].link.sever("registration", "replica")
		fl.after(time.Hour, "1")
		answers.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := told(fl.all[1]); got != "" {
			t.Errorf("of a replica that answers no more: %q", got)
		}
	})
}

// first is the replica whose turn it is to end what a lost one left behind: the first of all by its ID.
func (fl *fleet) first() int {
	fl.t.Helper()
	list, err := fl.store.List(fl.t.Context(), "replica")
	if err != nil || len(list) != len(fl.all) {
		fl.t.Fatalf("%d replicas are known, %v; want %d", len(list), err, len(fl.all))
	}
	least := slices.MinFunc(list, func(a, b record.Record) int { return strings.Compare(a.Name, b.Name) })
	return slices.IndexFunc(fl.all, func(o *one) bool { return strings.Contains(string(least.Value), o.name) })
}

// What a lost replica left behind ends although one that is cut off and answers would be the first to end it. Machines that
// join are not sent to that one.
func TestCutOffEndsNothing(t *testing.T) {
	replicas(t, 3, func(i int) shared.Config {
		at := fmt.Sprintf("10.1.0.%d:15012", i)
		return shared.Config{Address: at, Advertise: []string{at}, Answers: func(context.Context, string) bool { return true }}
	}, func(fl *fleet) {
		fl.same("")
		cut := fl.first()
		lost, other := (cut+1)%3, (cut+2)%3
		fl.connect(lost, 1, "a")
		fl.connect(cut, 2, "a")
		fl.same("1 2")
		fl.all[cut].link.sever("registration", "replica")
		time.Sleep(30 * time.Second)
		fl.end(lost, fl.all[lost].stop)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := told(fl.all[other]); got != "2" {
			t.Errorf("it tells %q, want %q", got, "2")
		}
		if got := fl.all[other].Advertised(); len(got) != 0 {
			t.Errorf("machines that join are sent to %q, want nobody", got)
		}
		fl.all[cut].link.mend()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got, want := fl.all[other].Advertised(), []string{fmt.Sprintf("10.1.0.%d:15012", cut)}; !slices.Equal(got, want) {
			t.Errorf("machines that join are sent to %q, want %q", got, want)
		}
		if got := fl.all[other].Replicas(); got != 2 {
			t.Errorf("%d replicas are alive, want 2", got)
		}
	})
}

// A replica that was killed and started again at once answers where the one before did: that one is lost all the same, and what it
// left behind ends.
func TestAnswersAfterRestart(t *testing.T) {
	at := func(i int) shared.Config {
		return shared.Config{Replica: fmt.Sprint("replica ", i), Address: fmt.Sprintf("10.1.0.%d:15012", i), Answers: func(context.Context, string) bool { return true }}
	}
	replicas(t, 2, at, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.connect(0, 2, "a")
		fl.same("1 2")
		fl.end(0, fl.all[0].kill)
		fl.all[0] = start(fl.t, fl.store, at(0))
		fl.connect(0, 1, "b")
		fl.after(15*time.Second, "1 2")
		fl.after(2*time.Minute, "1")
	})
}

// Who was killed and started again is not said to be lost, neither by the others nor by itself; who does not come back is, and so is one of two
// with a Member in common that were there together.
func TestStartedAgain(t *testing.T) {
	const (
		lost   = "[WARN]  a replica is lost"
		former = "[INFO]  the former run of a replica is over: it was started again"
		mine   = "[INFO]  the former run of this replica is over"
	)
	for name, tc := range map[string]struct {
		again  func(c *shared.Config) // what is other in the second run; nil: there is none
		while  bool                   // the second comes before the first is killed
		beside string                 // what the one beside says of the first
		own    string                 // and the second
	}{
		"at once":                {func(*shared.Config) {}, false, former, mine},
		"at another address":     {func(c *shared.Config) { c.Address = "10.1.0.8:15012" }, false, former, mine},
		"without an ID":          {func(c *shared.Config) { c.Member = "" }, false, lost, lost},
		"not again":              {nil, false, lost, ""},
		"another in its place":   {func(c *shared.Config) { c.Member = "n" }, false, lost, lost},
		"two that were together": {func(c *shared.Config) { c.Address = "10.1.0.9:15012" }, true, lost, lost},
	} {
		t.Run(name, func(t *testing.T) {
			var beside, own testlog.Text
			var down atomic.Bool // nobody is at the first one's address
			run := func(i int) shared.Config {
				log := []*testlog.Text{&own, &beside}[i]
				return shared.Config{Replica: "vm", Address: fmt.Sprintf("10.1.0.%d:15012", i), Member: fmt.Sprint("m", i),
					Answers: func(_ context.Context, address string) bool { return !down.Load() || address != "10.1.0.0:15012" },
					Log:     hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info, DisableTime: true})}
			}
			replicas(t, 2, run, func(fl *fleet) {
				time.Sleep(time.Minute)
				again := func() {
					if tc.again != nil {
						c := run(0)
						tc.again(&c)
						down.Store(c.Address != "10.1.0.0:15012")
						fl.all = append(fl.all, start(fl.t, fl.store, c))
					}
				}
				if tc.while {
					again()
					time.Sleep(30 * time.Second)
				}
				down.Store(true)
				fl.end(0, fl.all[0].kill)
				time.Sleep(time.Second)
				own.Take()
				beside.Take()
				if !tc.while {
					again()
				}
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				for log, want := range map[*testlog.Text]string{&beside: tc.beside, &own: tc.own} {
					checkSaid(fl.t, strings.Split(strings.TrimSpace(log.Take()), "\n"), want, lost, former, mine)
				}
			})
		})
	}
}

// checkSaid wants of all those the one beginning of a line, once, and nobody to be said to have ended.
func checkSaid(t *testing.T, lines []string, want string, all ...string) {
	t.Helper()
	for _, begin := range append(all, "[INFO]  a replica has ended") {
		n := 0
		for _, l := range lines {
			if strings.HasPrefix(l, begin) {
				n++
			}
		}
		if begin == want && n != 1 || begin != want && n != 0 {
			t.Errorf("%d lines begin with %q, in\n%s", n, begin, strings.Join(lines, "\n"))
		}
	}
}

// Replicas that are lost together, whose machines do not even refuse, hold up the others as long as one of them does.
func TestAnswersNobody(t *testing.T) {
	replicas(t, 6, func(i int) shared.Config {
		return shared.Config{Address: fmt.Sprintf("10.1.0.%d:15012", i), Answers: func(ctx context.Context, _ string) bool { <-ctx.Done(); return false }}
	}, func(fl *fleet) {
		fl.connect(4, 1, "a")
		fl.same("1")
		for i := range 4 {
			fl.end(i, fl.all[i].kill)
		}
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			for _, state := range []registry.Reported{registry.ReportedUnhealthy, registry.ReportedHealthy} {
				fl.report(4, 1, "a", state)
				fl.after(3*time.Second, map[registry.Reported]string{registry.ReportedUnhealthy: "1!", registry.ReportedHealthy: "1"}[state])
			}
		}
		for i, o := range fl.all[4:] {
			if p := o.Problems(); len(p) != 0 {
				t.Errorf("replica %d: problems %q", i, p)
			}
		}
	})
}

// A record that somebody damaged changes nothing, and is written anew by the replica whose proxy it is.
func TestDamaged(t *testing.T) {
	for name, value := range map[string]string{
		"empty": "", "no JSON": "\x00", "null": "null", "list": "[]", "format": `{"v":2}`, "nothing": `{"v":1}`, "no address": `{"v":1,"namespace":"shop","group":"web","name":"web-10.0.0.1","owner":"x"}`,
		"half an address": `{"v":1,"namespace":"shop","group":"web","name":"web-10.0.0.1","owner":"x","addresses":["10.0.0.1",""]}`,
		"another":         `{"v":1,"namespace":"shop","group":"web","name":"web-10.0.0.2","owner":"x","addresses":["10.0.0.2"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			replicas(t, 2, nil, func(fl *fleet) {
				fl.connect(0, 1, "a")
				fl.same("1")
				key := record.Key{Table: "registration", Name: "shop/web/web-10.0.0.1"}
				if err := fl.store.Commit(t.Context(), record.Write{Key: key, Value: []byte(value), Version: record.Any}); err != nil {
					t.Fatal(err)
				}
				fl.same("1")
				fl.all = append(fl.all, start(fl.t, fl.store, shared.Config{})) // it reads what stands there
				fl.same("1")
				fl.report(0, 1, "a", registry.ReportedUnhealthy)
				fl.same("1!")
			})
		})
	}
}

// A record that cannot be read and of which nobody knows what it said is deleted in a while, unless a later release wrote it; at once
// when its workload is removed.
func TestDamagedBefore(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		ruin := func(n int, value string) {
			fl.t.Helper()
			key := record.Key{Table: "registration", Name: fmt.Sprintf("shop/web/web-10.0.0.%d", n)}
			if err := fl.store.Commit(t.Context(), record.Write{Key: key, Value: []byte(value), Version: record.Any}); err != nil {
				fl.t.Fatal(err)
			}
		}
		left := func(after time.Duration, want ...string) {
			fl.t.Helper()
			time.Sleep(after)
			synctest.Wait()
			list, err := fl.store.List(t.Context(), "registration")
			if err != nil {
				fl.t.Fatal(err)
			}
			var got []string
			for _, r := range list {
				got = append(got, strings.TrimPrefix(r.Name, "shop/web/web-10.0.0."))
			}
			if !slices.Equal(got, want) {
				fl.t.Errorf("there are %q, want %q", got, want)
			}
		}
		ruin(1, "null")
		ruin(2, `{"v":2,"what":"ever"}`)
		ruin(3, "")
		fl.connect(0, 3, "a")
		fl.same("3")
		left(50*time.Second, "1", "2", "3")
		left(20*time.Second, "2", "3")
		left(time.Hour, "2", "3")
		ruin(4, "null")
		time.Sleep(time.Second)
		fl.connect(1, 4, "a")
		if err := fl.all[1].Remove(t.Context(), at(4, "a").RegistrationKey, "a"); err != nil {
			fl.t.Fatal(err)
		}
		left(time.Second, "2", "3")
	})
}

// The largest registration that is taken in, with the longest report, fits into a record, whatever its texts are.
func TestLargest(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		r := at(1, "a")
		r.Labels = map[string]string{}
		for i := 0; r.CheckSize() == nil; i++ {
			r.Labels[fmt.Sprint(i)] = strings.Repeat("\x01", 100)
		}
		delete(r.Labels, fmt.Sprint(len(r.Labels)-1))
		if err := fl.all[0].Connect(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		long := at(2, "a")
		long.Group, long.Name = strings.Repeat("g", 253), strings.Repeat("n", 253)
		if err := fl.all[0].Connect(t.Context(), long); err != nil {
			t.Fatal(err)
		}
		if err := fl.all[0].Report(t.Context(), r.RegistrationKey, "a", registry.Report{State: registry.ReportedUnhealthy, Message: strings.Repeat("\x01", 1<<10), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i, o := range fl.all {
			if p := o.Problems(); len(p) != 0 {
				t.Errorf("problems: %q", p)
			}
			if got := o.Registrations().At(r.RegistrationKey); got == nil || len(got.Labels) != len(r.Labels) || got.Health.State != registry.ReportedUnhealthy {
				t.Errorf("replica %d tells %v", i, got)
			}
		}
	})
}

// After the store was restored to an older state, those who are connected are registered again, and what is in it of streams
// that have ended ends.
func TestRestored(t *testing.T) {
	replicas(t, 2, nil, func(fl *fleet) {
		fl.connect(0, 1, "a")
		fl.connect(0, 2, "a")
		fl.connect(1, 3, "a")
		fl.same("1 2 3")
		old, err := fl.store.List(t.Context(), "registration")
		if err != nil {
			t.Fatal(err)
		}
		fl.connect(0, 1, "b")
		fl.report(0, 1, "b", registry.ReportedUnhealthy)
		fl.leave(0, 2, "a")
		fl.connect(1, 4, "a")
		fl.after(time.Minute, "1! 3 4")
		writes := []record.Write{{Key: record.Key{Table: "registration", Name: "shop/web/web-10.0.0.4"}, Version: record.Any}}
		for _, r := range old {
			writes = append(writes, record.Write{Key: r.Key, Value: r.Value, Version: record.Any})
		}
		if err := fl.store.Commit(t.Context(), writes...); err != nil {
			t.Fatal(err)
		}
		fl.same("1! 2 3 4")
		fl.after(61*time.Second, "1! 3 4")
	})
}

// A replica tells where agents find the others, and which members of the mesh they are, as long as they are alive.
func TestAdvertised(t *testing.T) {
	replicas(t, 3, func(i int) shared.Config {
		return shared.Config{Advertise: []string{fmt.Sprintf("mesh%d.example:15012", i)}, Member: fmt.Sprintf("m%d", i)}
	}, func(fl *fleet) {
		want := func(d time.Duration, i int, want ...string) {
			fl.t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := fl.all[i].Advertised(); !slices.Equal(got, want) {
				fl.t.Errorf("replica %d tells %q, want %q", i, got, want)
			}
			for j := range fl.all {
				address := fmt.Sprintf("mesh%d.example:15012", j)
				if got := fl.all[i].Alive(fmt.Sprintf("m%d", j)); got != slices.Contains(want, address) {
					fl.t.Errorf("replica %d says of %d that it is alive: %v", i, j, got)
				}
			}
		}
		want(time.Second, 0, "mesh1.example:15012", "mesh2.example:15012")
		if n := fl.all[0].Replicas(); n != 3 {
			fl.t.Errorf("%d replicas are alive, want 3", n)
		}
		want(0, 2, "mesh0.example:15012", "mesh1.example:15012")
		fl.end(1, fl.all[1].stop)
		want(time.Second, 0, "mesh2.example:15012")
		fl.end(2, fl.all[2].kill)
		want(30*time.Second, 0)
	})
}

// Former runs of a replica are not counted among those that are alive, by whoever sees them: the others, and those that begin while
// the records of several are still there.
func TestReplicas(t *testing.T) {
	run := func(i int) shared.Config {
		return shared.Config{Member: fmt.Sprint("m", i), Address: fmt.Sprintf("10.1.0.%d:15012", i), Answers: func(context.Context, string) bool { return true }}
	}
	replicas(t, 3, run, func(fl *fleet) {
		want := func(what string, d time.Duration, want int) {
			fl.t.Helper()
			time.Sleep(d)
			synctest.Wait()
			for i, o := range fl.all {
				if got := o.Replicas(); got != want {
					fl.t.Errorf("%s: replica %d counts %d, want %d", what, i, got, want)
				}
			}
		}
		again := func(i int) {
			fl.end(i, fl.all[i].kill)
			c := run(i)
			c.Replica = fmt.Sprint("replica ", i)
			fl.all[i] = start(fl.t, fl.store, c)
		}
		want("all are there", time.Second, 3)
		time.Sleep(7 * time.Second)
		for i := range 3 {
			again(i)
			want(fmt.Sprintf("%d was started again", i), 7*time.Second, 3)
		}
		again(0)
		want("one was started again twice", 7*time.Second, 3)
		want("they were thought to be lost", 30*time.Second, 3)
		want("they are forgotten", 5*time.Minute, 3)
	})
}

// Who begins counts others when they write, not those whose records are left alone; and one that is cut off from the store is alive.
func TestReplicasAtStart(t *testing.T) {
	var down atomic.Bool
	at := func(i int) shared.Config {
		return shared.Config{Address: fmt.Sprintf("10.1.0.%d:15012", i), Answers: func(_ context.Context, address string) bool { return !down.Load() || address != "10.1.0.1:15012" }}
	}
	replicas(t, 3, at, func(fl *fleet) {
		time.Sleep(62 * time.Second) // not when the others write
		down.Store(true)
		fl.end(1, fl.all[1].kill)
		fl.all[2].link.sever("registration", "replica")
		c := at(3)
		c.Replica = "replica 3"
		fl.all = append(fl.all, start(fl.t, fl.store, c))
		for _, tc := range []struct {
			after        time.Duration
			first, begun int
		}{
			{time.Second, 4, 1}, // as far as the first knows, all are there
			{6 * time.Second, 4, 2},
			{30 * time.Second, 3, 3}, // the one that is cut off answers, the one that is killed does not
		} {
			time.Sleep(tc.after)
			synctest.Wait()
			if first, begun := fl.all[0].Replicas(), fl.all[3].Replicas(); first != tc.first || begun != tc.begun {
				fl.t.Errorf("%v later the first counts %d and who has begun %d, want %d and %d", tc.after, first, begun, tc.first, tc.begun)
			}
		}
	})
}

// A replica that begins with an old copy of what the store has, for that is away, does not take what its former run wrote after the
// copy for the word of another one. One that is there is its twin all the same.
func TestNoTwinInAnOldCopy(t *testing.T) {
	same := shared.Config{Member: "m"}
	replicas(t, 1, func(int) shared.Config { return same }, func(fl *fleet) {
		later := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		later(time.Minute)
		way := &link{Store: fl.store}
		way.sever("registration", "replica") // the copy
		later(time.Minute)
		fl.end(0, fl.all[0].kill)
		same.Replica = "started again"
		again := start(fl.t, changer{way}, same)
		later(time.Minute)
		way.mend()
		for range 60 {
			later(time.Second)
			if got := again.Twin(); got != "" {
				fl.t.Fatalf("its twin is %q", got)
			}
		}
		same.Replica = "a copy"
		start(fl.t, fl.store, same)
		later(11 * time.Second)
		if got := again.Twin(); got != "a copy" {
			fl.t.Errorf("its twin is %q, want the copy", got)
		}
	})
}

// Two replicas with one Member are twins for as long as both write; what one that was killed has left is none of those that come,
// nor is what a store has again that was restored.
func TestTwin(t *testing.T) {
	same := shared.Config{Member: "m"}
	replicas(t, 1, func(int) shared.Config { return same }, func(fl *fleet) {
		want := func(what string, d time.Duration, want bool) {
			fl.t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := fl.all[len(fl.all)-1].Twin() != ""; got != want {
				fl.t.Errorf("%s: a twin %v, want %v", what, got, want)
			}
		}
		come := func(name string) {
			same.Replica = name
			fl.all = append(fl.all, start(fl.t, fl.store, same))
		}
		want("alone", time.Minute, false)
		first, err := fl.store.List(fl.t.Context(), "replica")
		if err != nil || len(first) != 1 {
			fl.t.Fatalf("records %v, %v", first, err)
		}
		fl.end(0, fl.all[0].kill)
		come("started again")
		want("a moment later", time.Second, false)
		if !fl.all[1].Alive("m") {
			fl.t.Error("what was left is thought to be dead at once")
		}
		want("later", time.Hour, false)
		come("a copy")
		want("before the copy heard of the other", 0, false)
		want("after that", 10*time.Second, true)
		for i, other := range []string{"a copy", "started again"} {
			if got := fl.all[i+1].Twin(); got != other {
				fl.t.Errorf("%s has the twin %q, want %q", fl.all[i+1].name, got, other)
			}
			if n := fl.all[i+1].Replicas(); n != 2 {
				fl.t.Errorf("%s counts %d replicas, want 2", fl.all[i+1].name, n)
			}
		}
		fl.end(1, fl.all[1].kill)
		want("the copy alone", time.Hour, false)
		if err := fl.store.Commit(fl.t.Context(), record.Write{Key: record.Key{Table: "replica", Name: "restored"}, Value: first[0].Value, Version: record.Any}); err != nil {
			fl.t.Fatal(err)
		}
		want("with what it left in a store that was restored", time.Second, false)
		if n := fl.all[2].Replicas(); n != 1 {
			fl.t.Errorf("with what it left it counts %d replicas, want 1", n)
		}
		want("an hour later", time.Hour, false)
	})
}
