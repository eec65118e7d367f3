package consul

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// BenchmarkCatalog loads 5,000 services with 50,000 instances, lies idle, and then follows flaps;
// on each way to Consul. The floor is Consul's own client, which reads the same answers over as
// many connections and discards them. One iteration is enough: go test -run '^$' -bench Catalog
// -benchtime 1x ./internal/e2e/consul
func BenchmarkCatalog(b *testing.B) {
	const services, instances = 5000, 10
	a := testconsul.Start(b, nil)
	c := newCatalog(b, a, "")
	c.many(services, instances)
	for _, w := range ways()[:2] {
		b.Run(w.name, func(b *testing.B) {
			for range b.N {
				floor := read(b, w.options(a), services)
				began, cpu := time.Now(), used()
				v := follow(b, w.options(a))
				v.synced(b)
				loaded := time.Since(began)
				b.ReportMetric(loaded.Seconds(), "s/load")
				b.ReportMetric((used() - cpu).Seconds(), "cpu-s/load")
				b.ReportMetric(loaded.Seconds()/floor.Seconds(), "x-floor")
				b.ReportMetric(peak(), "MB-peak")
				time.Sleep(15 * time.Second) // what waits for a connection is looked at once
				cpu = used()
				time.Sleep(10 * time.Second)
				b.ReportMetric(100*(used()-cpu).Seconds()/10, "%core-idle")
				runtime.GC()
				c.flaps(b, v)
			}
		})
	}
}

// flaps measures the delay from when Consul's own client has a flap until the source has sent it.
func (c catalog) flaps(b *testing.B, v *view) {
	b.Helper()
	var late []time.Duration
	var cpu time.Duration
	const n = 20
	for i := range n {
		status, health := "critical", "unhealthy"
		if i%2 == 1 {
			status, health = "passing", "healthy"
		}
		saw := c.seen(b)
		before := used()
		_, err := c.c.Catalog().Register(&api.CatalogRegistration{Node: "node-70", Address: "10.1.0.70",
			SkipNodeUpdate: true,
			Check: &api.AgentCheck{Node: "node-70", CheckID: "service:svc7-0", Name: "http", Status: status,
				ServiceID: "svc7-0"}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		v.until(b, "the flap", func() bool {
			return slices.Contains(v.endpoints("svc7.service.consul"),
				"10.2.7.0:8080 "+health)
		})
		late = append(late, time.Since(<-saw))
		cpu += used() - before
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[n/2].Microseconds())/1000, "ms-flap-p50")
	b.ReportMetric(float64(late[n-1].Microseconds())/1000, "ms-flap-max")
	b.ReportMetric(float64(cpu.Microseconds())/1000/n, "cpu-ms/flap")
}

// seen returns when Consul's own client receives the next change of svc7. It waits for it already.
func (c catalog) seen(b *testing.B) <-chan time.Time {
	b.Helper()
	_, meta, err := c.c.Health().Service("svc7", "", false, nil)
	if err != nil {
		b.Fatal(err)
	}
	saw := make(chan time.Time, 1)
	go func() {
		if _, _, err := c.c.Health().Service("svc7", "", false,
			&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute}); err != nil {
			b.Error(err)
		}
		saw <- time.Now()
	}()
	time.Sleep(200 * time.Millisecond) // Consul says nothing of a wait that has begun
	return saw
}

// many registers services with instances on 500 nodes.
func (c catalog) many(services, instances int) {
	c.t.Helper()
	work := make(chan api.TxnOps)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for ops := range work {
				if ok, resp, _, err := c.c.Txn().Txn(ops, nil); err != nil || !ok {
					c.t.Errorf("%v %+v", err, resp)
				}
			}
		})
	}
	const nodes = 500
	var ops api.TxnOps
	add := func(more ...*api.TxnOp) {
		if len(ops)+len(more) > 60 {
			work <- ops
			ops = nil
		}
		ops = append(ops, more...)
	}
	for n := range nodes {
		add(&api.TxnOp{Node: &api.NodeTxnOp{Verb: api.NodeSet,
			Node: api.Node{Node: fmt.Sprintf("node-%d", n), Address: fmt.Sprintf("10.1.%d.%d", n/250, n%250),
				Meta: map[string]string{"zone": "z1"}}}})
	}
	time.Sleep(time.Second) // the nodes have to be there
	for s := range services {
		for i := range instances {
			node, id := fmt.Sprintf("node-%d", (s*instances+i)%nodes), fmt.Sprintf("svc%d-%d", s, i)
			add(&api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: node,
				Service: api.AgentService{ID: id, Service: fmt.Sprintf("svc%d", s), Port: 8080,
					Address: fmt.Sprintf("10.2.%d.%d", s%250, i), Tags: []string{"v1", "version=v1",
						"team=a"}, Meta: map[string]string{"protocol": "http", "owner": "shop"}}}},
				&api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckSet,
					Check: api.HealthCheck{Node: node, CheckID: "service:" + id, Name: "http", Status: "passing",
						ServiceID: id,
						Output:    "HTTP GET http://10.2.0.1:8080/health: 200 OK Output: fine"}}})
		}
	}
	work <- ops
	close(work)
	running.Wait()
}

// read has Consul's own client read all services.
func read(b *testing.B, o consul.Options, services int) time.Duration {
	b.Helper()
	transport := &http.Transport{ForceAttemptHTTP2: true, MaxConnsPerHost: 8, MaxIdleConnsPerHost: 8,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client, err := api.NewClient(&api.Config{Address: o.Address, HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		b.Fatal(err)
	}
	began, work := time.Now(), make(chan string)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for name := range work {
				if list, _, err := client.Health().Service(name, "", false, nil); err != nil || len(list) == 0 {
					b.Errorf("%s: %d instances, %v", name, len(list), err)
				}
			}
		})
	}
	for s := range services {
		work <- fmt.Sprintf("svc%d", s)
	}
	close(work)
	running.Wait()
	return time.Since(began)
}

// used is the processor time that this process has had.
func used() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// peak is the most memory that this process has had, in MB.
func peak() float64 {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return 0
			}
			return kb / 1024
		}
	}
	return 0
}
