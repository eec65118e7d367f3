package consul

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/hashicorp/consul/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashore-mesh/ashore/internal/e2e/harness"
	"github.com/ashore-mesh/ashore/internal/testchild"
	"github.com/ashore-mesh/ashore/internal/testconsul"
	"github.com/ashore-mesh/ashore/internal/testport"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// services are how many there are.
const services = 1000

// BenchmarkFlap follows flaps from Consul to the acknowledgement of the last of many proxies, on
// each way to Consul. The floor is Consul's own client, which waits for the same service: a flap is
// late by how much longer the proxies take. go test -run '^$' -bench Flap -benchtime 1x
// ./internal/e2e/consul
func BenchmarkFlap(b *testing.B) {
	a := testconsul.Start(b, nil)
	c := newCatalog(b, a, "")
	c.many(services, 4)
	for _, w := range ways()[:2] {
		for _, proxies := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s/%d proxies", w.name, proxies), func(b *testing.B) {
				f := newFleet(b, a, w, proxies)
				for range b.N {
					f.flaps(b, c)
				}
			})
		}
	}
}

// fleet are proxies of one ashored, and when each acknowledged endpoints last.
type fleet struct {
	acked chan time.Time
	size  int
}

// newFleet starts ashored, whose services are a Consul's, and proxies that know all of them.
func newFleet(b *testing.B, a *testconsul.Agent, w way, proxies int) *fleet {
	b.Helper()
	dir := b.TempDir()
	o := w.options(a)
	config := filepath.Join(dir, "ashored.yaml")
	tls := ""
	if o.TLS.CAFile != "" {
		tls = fmt.Sprintf(", tls: {caFile: %q}", o.TLS.CAFile)
	}
	text := fmt.Sprintf("sources: [{kind: consul, address: %q, hosts: short%s}]\n", o.Address, tls)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", testport.Free(b))
	cmd := exec.Command(harness.Program("ashored"), "--dev", "--config", config,
		"--set", "state="+filepath.Join(dir, "state"), "--set", "xds.plaintextAddress="+address,
		"--set", fmt.Sprintf("metrics.address=127.0.0.1:%d", testport.Free(b)))
	cmd.Stderr = io.Discard
	wait, err := testchild.Start(cmd)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	b.Cleanup(func() {
		cancel()
		running.Wait()
		if err := cmd.Process.Kill(); err != nil {
			b.Error(err)
		}
		_ = wait() // it was killed
	})
	names := make([]string, services)
	for i := range names {
		names[i] = fmt.Sprintf("outbound|8080||svc%d.service.consul", i)
	}
	f := &fleet{acked: make(chan time.Time, 1<<16), size: proxies}
	for i := range proxies {
		running.Go(func() {
			for ctx.Err() == nil {
				_ = f.proxy(ctx, address, i, names) // ashored refuses proxies until Consul is known
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	for range proxies {
		select {
		case <-f.acked:
		case <-time.After(waitTime):
			b.Fatal("a proxy was sent no endpoints")
		}
	}
	return f
}

// proxy asks for the endpoints of clusters, and acknowledges all that it is sent, until its stream
// ends. It does nothing with them: what is measured is not its work.
func (f *fleet) proxy(ctx context.Context, address string, number int, clusters []string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	ask := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: xdstest.NodeID(fmt.Sprintf("p%d", number),
		fmt.Sprintf("10.99.0.%d", number+1))}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: clusters}
	for {
		if err := stream.Send(ask); err != nil {
			return err
		}
		if ask.ResponseNonce != "" {
			f.acked <- time.Now()
		}
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		ask = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: answer.Nonce}
	}
}

// quiet waits until no proxy acknowledges anything for a while, and clears the records.
func (f *fleet) quiet() {
	for {
		select {
		case <-f.acked:
		case <-time.After(300 * time.Millisecond):
			return
		}
	}
}

// flaps measures how much later the last proxy acknowledges a flap than Consul's own client sees
// it.
func (f *fleet) flaps(b *testing.B, c catalog) {
	b.Helper()
	const n = 40
	var late, own []time.Duration
	for i := range n {
		f.quiet()
		saw := c.seen(b)
		began := time.Now()
		_, err := c.c.Catalog().Register(&api.CatalogRegistration{Node: "node-28", Address: "10.1.0.28",
			SkipNodeUpdate: true,
			Check: &api.AgentCheck{Node: "node-28", CheckID: "service:svc7-0", Name: "http",
				Status: []string{"critical", "passing"}[i%2], ServiceID: "svc7-0"}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		var last time.Time
		for range f.size {
			select {
			case last = <-f.acked:
			case <-time.After(waitTime):
				b.Fatal("a proxy did not acknowledge the flap")
			}
		}
		seen := <-saw
		late, own = append(late, last.Sub(seen)), append(own, seen.Sub(began))
	}
	slices.Sort(late)
	slices.Sort(own)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(own[n/2]), "ms-consul-p50")
	b.ReportMetric(ms(late[n/2]), "ms-late-p50")
	b.ReportMetric(ms(late[n-1]), "ms-late-max")
	b.ReportMetric(float64(own[n/2]+late[n/2])/float64(own[n/2]), "x-floor")
}
