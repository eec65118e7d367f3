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
)

// large is a large cluster, with a few proxies that see all of it.
func large() setup {
	return setup{Shape: fleet.Shape{Services: 10000, Endpoints: 10, Namespaces: 100}, Proxies: 5, Kubernetes: true}
}

const (
	// settling is how long ashored works on after it is ready; rest is how long it is then measured.
	settling, rest = 10 * time.Second, time.Minute
	// The most that loading and rest may cost.
	loadTime, loadMB, restCPU = 30 * time.Second, 700, 0.01
)

// kubernetes measures how long a large cluster takes to load, what it costs at rest, and its changes.
func (b *bench) kubernetes(ctx context.Context) (string, error) {
	c := large()
	t := newTable(fmt.Sprintf("%d Services with %d Pods on %d nodes are loaded", c.Services, c.Services*c.Endpoints,
		apiserver.Nodes), "lists", "measure", "ashored:", "at most", "")
	s, p, err := b.load(ctx, c, "at once", false, t)
	if err != nil {
		return "", err
	}
	p.stop()
	s.Close()
	if s, p, err = b.load(ctx, c, "streamed", true, t); err != nil {
		return "", err
	}
	defer s.Close()
	defer p.stop()
	if err := atRest(ctx, s, p, t); err != nil {
		return "", err
	}
	out := comparison{setup: c}
	floor, err := b.startFloor(ctx, p)
	if err != nil {
		return "", err
	}
	say("  floor")
	out.floor, err = measure(ctx, floor, clusterRun(c, func(service, _ int, ip string) error {
		return c.AddEndpoint(p.mesh.Dir, service, cmp.Or(ip, "172.16.0.1"))
	}))
	if err != nil {
		return "", err
	}
	say("  ashored")
	out.ours, err = measure(ctx, p, clusterRun(c, func(service, endpoint int, ip string) error {
		s.Set(service, endpoint, ip)
		return nil
	}))
	t.row("with proxies", "memory at its peak", fmt.Sprintf("%.0f MB", median(out.ours, "rolling",
		func(f fleet.Figures) float64 { return f.PeakMB })), "", "")
	return t.String() + out.report(), err
}

// load starts an API server and ashored, and adds rows about that to t.
func (b *bench) load(ctx context.Context, c setup, lists string, streams bool, t *table) (*apiserver.Server, *process,
	error) {
	say("\n%s: lists %s", c.title(), lists)
	m, err := b.newMesh(fleet.Shape{})
	if err != nil {
		return nil, nil, err
	}
	s := apiserver.Start(c.Shape, streams)
	m.Shape, m.Kubeconfig = c.Shape, filepath.Join(filepath.Dir(m.Dir), "kubeconfig")
	if err := os.WriteFile(m.Kubeconfig, s.Kubeconfig(), 0o600); err != nil {
		return nil, nil, err
	}
	began := time.Now()
	p, err := b.startAshored(ctx, m, false)
	if err != nil {
		return nil, nil, err
	}
	took := time.Since(began)
	if err := fleet.Wait(ctx, settling); err != nil {
		return nil, nil, err
	}
	cost, err := fleet.CostOf(p.pid())
	say("    ready after %s  %6.3f CPU-s  %7.1f MB", seconds(took), cost.CPU, cost.PeakMB)
	t.row(lists, "until ready", seconds(took), loadTime.String(), judge(took <= loadTime))
	t.row(lists, "CPU time", fmt.Sprintf("%.1f s", cost.CPU), "", "")
	t.row(lists, "memory at its peak", fmt.Sprintf("%.0f MB", cost.PeakMB), fmt.Sprint(loadMB, " MB"),
		judge(cost.PeakMB <= loadMB))
	return s, p, err
}

// atRest adds rows about a minute in which nothing changes but the reports of nodes.
func atRest(ctx context.Context, s *apiserver.Server, p *process, t *table) error {
	before, err := fleet.CostOf(p.pid())
	if err != nil {
		return err
	}
	const every = 5 * time.Minute / apiserver.Nodes // of all nodes together
	began := time.Now()
	for i := range int(rest / every) {
		s.Report(i)
		if err := fleet.Wait(ctx, every); err != nil {
			return err
		}
	}
	after, err := fleet.CostOf(p.pid())
	cpu := (after.CPU - before.CPU) / time.Since(began).Seconds()
	t.row("at rest", "CPU", fmt.Sprintf("%.2f %% of a core", 100*cpu), fmt.Sprintf("%g %%", 100*restCPU),
		judge(cpu <= restCPU))
	t.row("at rest", "memory", fmt.Sprintf("%.0f MB", after.MB), "", "")
	return err
}

// clusterRun are changes of a cluster: first 200 times an endpoint that becomes not ready, and then a
// rolling update of 100 services at 100 Pods a second. set makes one, as apiserver.Server.Set does.
func clusterRun(c setup, set func(service, endpoint int, ip string) error) fleet.RunConfig {
	const ready, rolling, pods = 200, 100, 1000
	return fleet.RunConfig{Proxies: c.Proxies, Settle: 200 * time.Millisecond, Changes: []fleet.Change{
		{Phase: "readiness", Type: fleet.EDS, Proxies: c.Proxies, Rounds: ready,
			Make: func(_ context.Context, round int, await func(string)) error {
				await("|" + c.Host(round))
				return set(round, 1, "")
			}},
		fleet.Churn("rolling", c.Proxies, pods, 10*time.Millisecond, func(i int, ip string) error {
			return set(ready+i%rolling, i/rolling, ip)
		}),
	}}
}
