package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ashore-mesh/ashore/agent"
	"github.com/ashore-mesh/ashore/bench/fleet"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/task"
)

// groupFile is a WorkloadGroup, and a service whose endpoints are the workloads that join it.
const groupFile = `apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata:
  name: web
  namespace: shop
  annotations: {ashore.io/allow-addresses: 10.200.0.0/16} # all connect from loopback
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
	// joinTarget is how long all joins may take; joinTimeout is how long they are waited for.
	joinTarget  = time.Minute
	joinTimeout = 5 * time.Minute
	// joinPoll is how often is asked who is registered: the answer is large.
	joinPoll = 500 * time.Millisecond
	// tokenCallers ask for join tokens at once, as operators' scripts do.
	tokenCallers = 8
)

// joining are workloads that join at once.
type joining struct {
	*process
	admin  *admin.Client
	dir    string // state folders of the workloads
	tokens []admin.Token
}

// join measures how long workloads need to join: each makes its key with the agent's own code,
// proves itself by a token of its own, keeps its identity on disk, connects by mutual TLS, is
// registered and gets its configuration.
func (b *bench) join(ctx context.Context) (string, error) {
	say("\n%d workloads join", b.joins)
	m, err := b.newMesh(b.shape)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.Dir, "group.yaml"), []byte(groupFile), 0o600)
	}
	if err != nil {
		return "", err
	}
	p, err := b.startAshored(ctx, m, true) // with an authority of its own
	if err != nil {
		return "", err
	}
	defer p.stop()
	dir, err := os.MkdirTemp("/dev/shm", "bench") // in life each workload has a disk of its own
	if err != nil {
		return "", err
	}
	j := &joining{process: p, admin: admin.NewClient(p.socket), dir: dir, tokens: make([]admin.Token, b.joins)}
	text, err := j.measure(ctx)
	return text, errors.Join(err, os.RemoveAll(dir))
}

func (j *joining) measure(ctx context.Context) (string, error) {
	began := time.Now()
	if err := j.makeTokens(ctx); err != nil {
		return "", err
	}
	made := time.Since(began)
	before, err := fleet.CostOf(j.pid())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	n, simulator := len(j.tokens), fleet.NewSimulator()
	// when each workload had its certificate, and when each had its configuration
	issued, served := make(chan time.Duration, n), make(chan time.Duration, n)
	start := time.Now()
	for i := range n {
		g.Go(func() error {
			node, secure, err := j.one(ctx, i)
			if err != nil {
				return fmt.Errorf("workload %d: %w", i, err)
			}
			issued <- time.Since(start)
			simulator.Run(ctx, j.addr, node, secure, func(time.Duration) { served <- time.Since(start) })
			return nil
		})
	}
	if err = j.registered(ctx); err != nil {
		cancel()
	}
	registered := time.Since(start)
	certificates, configurations := collect(ctx, issued), collect(ctx, served)
	after, costErr := fleet.CostOf(j.pid())
	if err == nil && len(configurations) < n {
		err = fmt.Errorf("%d of %d workloads have their configuration: %w", len(configurations), n, context.Cause(ctx))
	}
	cancel()
	if err := errors.Join(err, g.Wait(), costErr); err != nil {
		return "", err
	}
	t := newTable(fmt.Sprintf("%d workloads join at once", n), "what", "median:", "last:", "at most", "")
	t.row("has its certificate", seconds(certificates[n/2]), seconds(certificates[n-1]), "", "")
	t.row("is registered, an endpoint of its service", "", seconds(registered), "", "")
	t.row("has its configuration by mutual TLS", seconds(configurations[n/2]), seconds(configurations[n-1]),
		joinTarget.String(), judge(max(registered, configurations[n-1]) <= joinTarget))
	return t.String() + fmt.Sprintf(
		"ashored: %.2f s of CPU, %.0f MB at its peak. The tokens were made before, in %s.\n\n", after.CPU-before.CPU,
		after.PeakMB, seconds(made)), nil
}

// makeTokens asks ashored for join tokens as ashorectl does.
func (j *joining) makeTokens(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(tokenCallers)
	for i := range j.tokens {
		g.Go(func() (err error) {
			j.tokens[i], err = admin.Send(ctx, j.admin, admin.CallCreateToken, admin.TokenRequest{Group: joinGroup})
			return err
		})
	}
	return g.Wait()
}

// one makes workload i join, and returns how its Envoy introduces itself and connects.
func (j *joining) one(ctx context.Context, i int) (*corev3.Node, *tls.Config, error) {
	t := j.tokens[i]
	c := agent.JoinConfig{Settings: agent.Default(), Group: t.Group, Token: t.Token, Log: hclog.NewNullLogger(),
		Hash: t.Join[slices.Index(t.Join, "--ca-hash")+1]}
	c.Settings.XDS.Addresses = []string{j.addr}
	c.Settings.State = filepath.Join(j.dir, fmt.Sprint("w", i))
	c.Settings.Workload.Name = fmt.Sprint("web-", i)
	c.Settings.Workload.Addresses = []string{fmt.Sprintf("10.200.%d.%d", i>>8, i&0xff)}
	r, err := agent.Join(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	k, err := agent.NewCertManager(agent.CertManagerConfig{Dir: r.Settings.State, Addresses: r.Settings.XDS.Addresses,
		Name: r.Settings.Workload.Name, Log: c.Log})
	if err != nil {
		return nil, nil, err
	}
	node, err := nodeOf(r.Settings)
	return node, k.ClientTLS(), err
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
	err = protojson.Unmarshal(b.Node, n)
	delete(n.GetMetadata().GetFields(), "ASHORE_STREAM") // one stream for everything: it registers the workload too
	return n, err
}

// registered waits until ashored has all of them as workloads.
func (j *joining) registered(ctx context.Context) error {
	for {
		entries, err := admin.Send(ctx, j.admin, admin.CallObjects,
			admin.ObjectQuery{Kind: "workloadentry", Namespace: "shop"})
		if err != nil && !errors.Is(err, admin.ErrNotFound) {
			return err
		}
		if len(entries) >= len(j.tokens) {
			return nil
		}
		if !task.Sleep(ctx, joinPoll) {
			return fmt.Errorf("%d of %d workloads are registered: %w", len(entries), len(j.tokens), context.Cause(ctx))
		}
	}
}

// collect returns as many times as fit into a channel, sorted, or fewer when ctx ends.
func collect(ctx context.Context, times <-chan time.Duration) (all []time.Duration) {
	for len(all) < cap(times) && ctx.Err() == nil {
		select {
		case d := <-times:
			all = append(all, d)
		case <-ctx.Done():
		}
	}
	slices.Sort(all)
	return all
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
