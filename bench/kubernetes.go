package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ashore-mesh/ashore/bench/apiserver"
	"github.com/ashore-mesh/ashore/bench/fleet"
	"github.com/ashore-mesh/ashore/internal/task"
)

// settling is how long ashored works on after it is ready.
const settling = 10 * time.Second

// kubernetes measures how long a large cluster takes to load, what it costs at rest, and its changes,
// with a few proxies that see all of it.
func (b *bench) kubernetes(ctx context.Context) (string, error) {
	c := setup{Shape: fleet.Shape{Services: 10000, Endpoints: 10, Namespaces: 100}, Proxies: 5, Kubernetes: true}
	t := newTable(fmt.Sprintf("%d Services with %d Pods on %d nodes are loaded", c.Services, c.Services*c.Endpoints,
		apiserver.Nodes), "lists", "measure", "ashored:", "at most", "")
	out, err := b.compare(ctx, c, func() (*process, error) { return b.load(ctx, c, false, t) },
		func() (*process, error) {
			p, err := b.load(ctx, c, true, t)
			if err != nil {
				return nil, err
			}
			return p, atRest(ctx, p, t)
		})
	t.figure("with proxies", "memory at its peak", quantile(out.ours, "rolling", 0.5, peak), "MB", 0)
	return t.String() + out.report(), err
}

// load starts an API server and ashored, and adds rows about that to t.
func (b *bench) load(ctx context.Context, c setup, streams bool, t *table) (*process, error) {
	lists := "at once"
	if streams {
		lists = "streamed"
	}
	say("\n%s: lists %s", c.title(), lists)
	m, err := b.newMesh(fleet.Shape{})
	if err != nil {
		return nil, err
	}
	s := apiserver.Start(c.Shape, streams)
	m.Shape, m.Kubeconfig = c.Shape, filepath.Join(filepath.Dir(m.Dir), "kubeconfig")
	if err := os.WriteFile(m.Kubeconfig, s.Kubeconfig(), 0o600); err != nil {
		return nil, err
	}
	began := time.Now()
	p, err := b.startAshored(ctx, m, false)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	stop := p.stop
	p.cluster, p.stop = s, func() { stop(); s.Close() }
	if !task.Sleep(ctx, settling) {
		return nil, ctx.Err()
	}
	cost, err := fleet.CostOf(p.pid())
	t.figure(lists, "until ready", took.Seconds(), "s", 30)
	t.figure(lists, "CPU time", cost.CPU, "s", 0)
	t.figure(lists, "memory at its peak", cost.PeakMB, "MB", 700)
	return p, err
}

// atRest adds rows about a minute in which nothing changes but the reports of nodes.
func atRest(ctx context.Context, p *process, t *table) error {
	const rest, every = time.Minute, 5 * time.Minute / apiserver.Nodes // of all nodes together
	before, err := fleet.CostOf(p.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range int(rest / every) {
		p.cluster.Report(i)
		if !task.Sleep(ctx, every) {
			return ctx.Err()
		}
	}
	after, err := fleet.CostOf(p.pid())
	t.figure("at rest", "CPU", 100*(after.CPU-before.CPU)/time.Since(began).Seconds(), "% of a core", 1)
	t.figure("at rest", "memory", after.MB, "MB", 0)
	return err
}

// clusterChanges are changes of a cluster: first 200 times an endpoint that becomes not ready, and then
// a rolling update of 100 services at 100 Pods a second. A floor has them as files.
func clusterChanges(c setup, p *process) []fleet.Change {
	set := func(service, endpoint int, ip string) error {
		if p.cluster == nil {
			return c.AddEndpoint(p.mesh.Dir, service, cmp.Or(ip, "172.16.0.1"))
		}
		p.cluster.Set(service, endpoint, ip)
		return nil
	}
	const ready, rolling, pods = 200, 100, 1000
	return []fleet.Change{
		{Phase: "readiness", Type: fleet.EDS, Proxies: c.Proxies, Rounds: ready,
			Make: func(_ context.Context, round int, await func(string)) error {
				await("|" + c.Host(round))
				return set(round, 1, "")
			}},
		fleet.Churn("rolling", c.Proxies, pods, 10*time.Millisecond, func(i int, ip string) error {
			return set(ready+i%rolling, i/rolling, ip)
		}),
	}
}
