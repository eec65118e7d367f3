package replicas

import (
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/filestore/bolt"
	"github.com/ashore-mesh/ashore/filestore/consul"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/shared"
)

// open runs a runtime over the store in Consul below a prefix, until the test ends.
func open(t testing.TB, a *testconsul.Agent, prefix string, cfg shared.Config) *shared.Runtime {
	t.Helper()
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Error})
	home, err := bolt.New(bolt.Config{Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	store, err := consul.Open(t.Context(), consul.Config{Options: consul.Options{Address: "http://" + a.Address,
		Prefix: prefix}, Replica: "test", Kept: home, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Records, cfg.Log = store.Records(), log
	rt, err := shared.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	begin := func(f func(context.Context) error) (end func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		running.Go(func() { done <- f(ctx) })
		return func() {
			cancel()
			if err := <-done; err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}
	follow := begin(store.Follow)
	run := begin(rt.Run)
	t.Cleanup(func() {
		run()
		follow()
		running.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if err := home.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// registration is the n-th of many workloads.
func registration(n int) registry.Registration {
	r := registry.Registration{Identity: "spiffe://cluster.local/ns/shop/sa/web", Session: "s",
		Labels: map[string]string{"app": "web"}}
	r.Namespace, r.Group = "shop", "web"
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], 10<<24|uint32(n))
	r.Addresses = []netip.Addr{netip.AddrFrom4(ip)}
	r.Name = registry.RegistrationName(r.Group, r.Addresses[0], "")
	return r
}

// cpu is what this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What 10,000 workloads cost two replicas: until the other one has all that connected at once, and
// one report among them, and while nothing happens. The time of one write to Consul is reported for
// comparison.
func BenchmarkReplicas(b *testing.B) {
	a := testconsul.Start(b, nil)
	one, two := open(b, a, "ashore/bench", shared.Config{}), open(b, a, "ashore/bench", shared.Config{})
	told := two.Watch(b.Context())
	wait := func(ok func() bool) {
		for !ok() {
			<-told
		}
	}
	const n = 10_000
	before := heap()
	start, used := time.Now(), cpu(b)
	for i := range n {
		if err := one.Connect(b.Context(), registration(i)); err != nil {
			b.Fatal(err)
		}
	}
	wait(func() bool { return two.Registrations().Len() == n })
	b.ReportMetric(time.Since(start).Seconds(), "s/10000-connect")
	b.ReportMetric((cpu(b) - used).Seconds(), "cpu-s/10000-connect")
	b.ReportMetric(float64(heap()-before)/n/2/1024, "KB/workload")

	key := registration(7).RegistrationKey
	var took time.Duration
	const reports = 200
	used = cpu(b)
	for i := range reports {
		state := registry.ReportedHealthy + registry.Reported(i%2)
		start := time.Now()
		if err := one.Report(b.Context(), key, "s", registry.Report{State: state}); err != nil {
			b.Fatal(err)
		}
		wait(func() bool { return two.Registrations().At(key).Health.State == state })
		took += time.Since(start)
		time.Sleep(20 * time.Millisecond) // one by one, not a storm
	}
	b.ReportMetric(took.Seconds()/reports*1e3, "ms/report")
	b.ReportMetric((cpu(b)-used).Seconds()/reports*1e3, "cpu-ms/report")
	floor := put(b, a, reports)
	b.ReportMetric(floor.Seconds()*1e3, "ms/consul-put")
	b.ReportMetric((took/reports).Seconds()/floor.Seconds(), "x/consul-put")

	used = cpu(b)
	const idle = 20 * time.Second
	time.Sleep(idle)
	b.ReportMetric((cpu(b)-used).Seconds()/idle.Seconds()*100, "%cpu-idle")
}

// heap is what is in use, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// put is how long Consul takes for one write of the same size, with nothing else to do.
func put(b *testing.B, a *testconsul.Agent, times int) time.Duration {
	b.Helper()
	start := time.Now()
	for range times {
		req, err := http.NewRequest(http.MethodPut, "http://"+a.Address+"/v1/kv/bench",
			strings.NewReader(strings.Repeat("x", 600)))
		if err != nil {
			b.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			b.Fatal(err)
		}
	}
	defer http.DefaultClient.CloseIdleConnections()
	return time.Since(start) / time.Duration(times)
}
