package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/bench/fleet"
	"github.com/ashore-mesh/ashore/internal/admin"
)

// groupFile is a WorkloadGroup, and a service whose endpoints are the workloads that join it.
const groupFile = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop, annotations: {ashore.io/allow-addresses: 10.200.0.0/16}} # all connect from loopback
spec:
  metadata: {labels: {app: web}}
  template: {serviceAccount: web, ports: {http: 8080}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  workloadSelector: {labels: {app: web}}
`

// joinGroup is that of groupFile.
const joinGroup = "shop/web"

const (
	// joinTime is how long all joins may take: the target.
	joinTime = time.Minute
	// joinPatience is how long they are waited for.
	joinPatience = 5 * time.Minute
	// joinPace is how often is asked who is registered: the answer is large.
	joinPace = 500 * time.Millisecond
	// tokenCallers ask for join tokens at once, as operators' scripts do.
	tokenCallers = 8
)

// joining is so many workloads that join at once.
type joining struct {
	*server
	admin     *admin.Client
	dir       string // state folders of the workloads
	tokens    []admin.Token
	simulator *fleet.Simulator

	start time.Time

	mu     sync.Mutex
	issued []time.Duration // guarded by mu: when each had its certificate
	served []time.Duration // guarded by mu: when each had its configuration
	failed []error         // guarded by mu
}

// join measures how long workloads need to join: each makes its key with the agent's own code,
// proves itself by a token of its own, keeps its identity on disk, connects by mutual TLS, is
// registered and gets its configuration.
func (b *bench) join(ctx context.Context) (section, error) {
	say("\n%d workloads join", b.joins)
	s, err := b.secureAshored(ctx)
	if err != nil {
		return section{}, err
	}
	dir, err := memoryFolder(b.work)
	if err != nil {
		return section{}, errors.Join(err, s.stop())
	}
	j := &joining{server: s, admin: admin.NewClient(s.socket), dir: dir, simulator: fleet.NewSimulator()}
	out, err := j.measure(ctx, b.joins)
	return out, errors.Join(err, s.stop(), os.RemoveAll(dir))
}

// secureAshored starts one with an authority of its own, the mesh of the options and a
// WorkloadGroup.
func (b *bench) secureAshored(ctx context.Context) (*server, error) {
	files, err := b.mesh(b.shape)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(files, "group.yaml"), []byte(groupFile), 0o600); err != nil {
		return nil, err
	}
	return startAshored(ctx, ashored{bin: b.ashored, files: files, work: b.work, secure: true})
}

// memoryFolder is for the state of workloads, each of which has a disk of its own in life: in
// memory where there is such a file system.
func memoryFolder(work string) (string, error) {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		work = memory
	}
	return os.MkdirTemp(work, "bench")
}

func (j *joining) measure(ctx context.Context, n int) (section, error) {
	began := time.Now()
	if err := j.makeTokens(ctx, n); err != nil {
		return section{}, err
	}
	made := time.Since(began)
	say("    %d tokens in %.1f s", n, made.Seconds())
	before, err := fleet.CPUSeconds(j.cmd.Process.Pid)
	if err != nil {
		return section{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	j.start = time.Now()
	for i := range n {
		wg.Go(func() { j.one(ctx, i) })
	}
	registered, err := j.registered(ctx, n)
	if err != nil {
		return section{}, err
	}
	after, err1 := fleet.CPUSeconds(j.cmd.Process.Pid)
	memory, err2 := fleet.MemoryMB(j.cmd.Process.Pid, "VmHWM")
	if err := errors.Join(err1, err2); err != nil {
		return section{}, err
	}
	return j.table(n, made, registered, after-before, memory)
}

// makeTokens asks ashored for join tokens as ashorectl does.
func (j *joining) makeTokens(ctx context.Context, n int) error {
	j.tokens = make([]admin.Token, n)
	next := make(chan int)
	errs := make([]error, tokenCallers)
	var wg sync.WaitGroup
	for c := range tokenCallers {
		wg.Go(func() {
			for i := range next {
				var err error
				j.tokens[i], err = j.admin.CreateToken(ctx, admin.TokenRequest{Group: joinGroup})
				errs[c] = errors.Join(errs[c], err)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// one is workload i: it joins, and stays connected until ctx ends.
func (j *joining) one(ctx context.Context, i int) {
	c, err := joinConfig(j.tokens[i])
	if err != nil {
		j.fail(i, err)
		return
	}
	c.Settings.State = filepath.Join(j.dir, fmt.Sprint("w", i))
	c.Settings.Workload.Name = fmt.Sprint("web-", i)
	c.Settings.Workload.Addresses = []string{fmt.Sprintf("10.200.%d.%d", i>>8, i&0xff)}
	r, err := agent.Join(ctx, c)
	if err != nil {
		j.fail(i, err)
		return
	}
	j.mark(&j.issued)
	node, err := nodeOf(r.Settings)
	if err != nil {
		j.fail(i, err)
		return
	}
	k, err := agent.NewCertManager(agent.CertManagerConfig{Dir: r.Settings.State, Addresses: r.Settings.XDS.Addresses,
		Name: r.Settings.Workload.Name, Log: c.Log})
	if err != nil {
		j.fail(i, err)
		return
	}
	j.simulator.Run(ctx, j.addr, node, k.ClientTLS(), func() { j.mark(&j.served) })
}

// joinConfig is what the command of a token says.
func joinConfig(t admin.Token) (agent.JoinConfig, error) {
	c := agent.JoinConfig{Settings: agent.Default(), Group: t.Group, Log: hclog.NewNullLogger()}
	c.Token = t.Token
	for i := 2; i+1 < len(t.Join); i += 2 { // ashore-agent join --name value …
		switch t.Join[i] {
		case "--control-plane":
			c.Settings.XDS.Addresses = strings.Split(t.Join[i+1], ",")
		case "--ca-hash":
			c.Hash = t.Join[i+1]
		}
	}
	if c.Token == "" || c.Hash == "" || len(c.Settings.XDS.Addresses) == 0 {
		return c, fmt.Errorf("the line of token %s names no control plane, hash or token", t.ID)
	}
	return c, nil
}

// nodeOf is how the Envoy of a workload that joined introduces itself.
func nodeOf(s agent.Settings) (*corev3.Node, error) {
	if err := s.Complete(); err != nil {
		return nil, err
	}
	raw, err := agent.Bootstrap(&s)
	if err != nil {
		return nil, err
	}
	var b struct{ Node json.RawMessage }
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, err
	}
	n := &corev3.Node{}
	return n, protojson.Unmarshal(b.Node, n)
}

// mark notes when something happened to a workload.
func (j *joining) mark(times *[]time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	*times = append(*times, time.Since(j.start))
}

func (j *joining) fail(i int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = append(j.failed, fmt.Errorf("workload %d: %w", i, err))
}

// registered waits until ashored knows all of them as workloads and each has its configuration, and
// tells how long that took.
func (j *joining) registered(ctx context.Context, n int) (time.Duration, error) {
	var last time.Duration
	for {
		entries, err := j.admin.Objects(ctx, "workloadentry", "shop", "")
		if err != nil && !errors.Is(err, admin.ErrNotFound) && ctx.Err() == nil {
			return 0, err
		}
		if len(entries) >= n && last == 0 {
			last = time.Since(j.start)
		}
		j.mu.Lock()
		served, failed := len(j.served), errors.Join(j.failed...)
		j.mu.Unlock()
		switch {
		case failed != nil:
			return 0, failed
		case last > 0 && served >= n:
			return last, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("after %s %d of %d workloads are registered and %d have their configuration: %w",
				joinPatience, len(entries), n, served, ctx.Err())
		case <-j.done:
			return 0, j.ended()
		case <-time.After(joinPace):
		}
	}
}

func (j *joining) table(n int, made, registered time.Duration, cpu, memory float64) (section, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.Sort(j.issued)
	slices.Sort(j.served)
	out := section{}
	verdict := "reached"
	if end := max(registered, j.served[n-1]); end > joinTime {
		verdict = "**missed**"
		out.missed++
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	var b strings.Builder
	fmt.Fprintf(&b, "**%d workloads join at once**\n\n| what | median | last | at most | |\n| --- | --: | --: | --- | --- |\n", n)
	fmt.Fprintf(&b, "| has its certificate | %s | %s | | |\n", seconds(j.issued[n/2]), seconds(j.issued[n-1]))
	fmt.Fprintf(&b, "| is registered, an endpoint of its service | | %s | | |\n", seconds(registered))
	fmt.Fprintf(&b, "| has its configuration by mutual TLS | %s | %s | %s | %s |\n", seconds(j.served[n/2]),
		seconds(j.served[n-1]), joinTime, verdict)
	fmt.Fprintf(&b, "\nashored: %.2f s of CPU, %.0f MB at its peak. The tokens were made before, in %s.\n\n", cpu,
		memory, seconds(made))
	out.text = b.String()
	return out, nil
}
