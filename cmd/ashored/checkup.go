package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

const (
	// checkupAge is how old may be what metrics are told: to know it all records are read.
	checkupAge = 10 * time.Second
	// checkupTime is how long that may take.
	checkupTime = 5 * time.Second
)

// checkup tells metrics and problems how an authority is. Safe for concurrent use.
type checkup struct {
	identity                                *identity
	root, chain, server, step, waiting      *prometheus.Desc
	problem, tokens, workloads, revocations *prometheus.Desc
	unkept, failing                         *prometheus.Desc

	mu    sync.Mutex
	at    time.Time // guarded by mu
	found findings  // guarded by mu
}

// findings are how an authority is. Not to be changed.
type findings struct {
	authority ca.Status
	// tokens, workloads and revocations are counted by state, state and kind.
	tokens, workloads, revocations map[string]int
	doubled                        []feed.Problem // workloads by whose names several machines go
	unknownPrincipals              []feed.Problem // callers that policies deny and that do not exist
	err                            error
}

// newCheckup makes one. Names are Istio's where it has one.
func newCheckup(id *identity) *checkup {
	desc := prometheus.NewDesc
	return &checkup{
		identity: id,
		root: desc("citadel_server_root_cert_expiry_timestamp",
			"When the root that signs ends, in seconds since 1970.", nil, nil),
		chain: desc("citadel_server_cert_chain_expiry_timestamp",
			"When the certificate that signs ends, in seconds since 1970.", nil, nil),
		server: desc("ashore_ca_server_expiry_timestamp_seconds",
			"When the control plane's own certificate ends, in seconds since 1970.", nil, nil),
		step: desc("ashore_ca_rotation_step",
			"1 for the step of a rotation of the root that was done last; none: no rotation goes on.", []string{"step"}, nil),
		waiting: desc("ashore_ca_rotation_waiting", "What the next step of a rotation waits for.", nil, nil),
		problem: desc("ashore_ca_problems", "What an operator should see to in the certificate authority.", nil,
			nil),
		tokens: desc("ashore_join_tokens", "Join tokens, by state.", []string{"state"}, nil),
		workloads: desc("ashore_workloads",
			"Workloads that joined, by whether their certificate is valid, ended or revoked.", []string{"state"}, nil),
		revocations: desc("ashore_revocations", "Revocations in force, by kind.", []string{"kind"}, nil),
		unkept:      desc("ashore_revocations_unkept", "Revocations in force that the store does not have.", nil, nil),
		failing:     desc("ashore_ledger_failing", "1 while the ledger of workloads cannot be written.", nil, nil),
	}
}

// forget has the next look be a new one: an operator asks, who may just have mended something.
func (c *checkup) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// look is how the authority is, or was a moment ago.
func (c *checkup) look() findings {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.at) > checkupAge {
		ctx, cancel := context.WithTimeout(context.Background(), checkupTime)
		defer cancel()
		c.at, c.found = now, c.examine(ctx, now)
		if c.found.err != nil {
			c.identity.log.Warn("how the certificate authority is cannot be told", "error", c.found.err)
		}
	}
	return c.found
}

// examine looks anew.
func (c *checkup) examine(ctx context.Context, now time.Time) findings {
	f := findings{tokens: map[string]int{}, workloads: map[string]int{}, revocations: map[string]int{}}
	if f.authority, f.err = c.identity.manager.Show(ctx); f.err != nil {
		return f
	}
	tokens, err := c.identity.ledger.Tokens(ctx)
	if err != nil {
		return findings{err: err}
	}
	list, err := operators{identity: c.identity}.ListWorkloads(ctx)
	if err != nil {
		return findings{err: err}
	}
	for _, t := range tokens {
		f.tokens[t.State(now)]++
	}
	for _, w := range list.Workloads {
		state := "ended"
		if n := len(w.Leaves); n > 0 && w.Leaves[n-1].NotAfter.After(now) {
			state = "valid"
		}
		if w.Revoked {
			state = "revoked"
		}
		f.workloads[state]++
		if w.Warning != "" {
			f.doubled = append(f.doubled, feed.Problem{Severity: feed.Warning, Source: "workloads", Object: w.Name,
				Text: w.Warning})
		}
	}
	for _, r := range list.Revocations {
		f.revocations[r.Kind]++
	}
	f.unknownPrincipals = c.unknownPrincipals(ctx, f.authority, list.Workloads)
	return f
}

// unknownPrincipals are the callers that policies deny and that do not exist. Below a root that is
// plugged in others may issue certificates too.
func (c *checkup) unknownPrincipals(ctx context.Context, authority ca.Status, joined []admin.Workload) []feed.Problem {
	latest := c.identity.context()
	if latest == nil || authority.Source != ca.SelfSigned {
		return nil
	}
	var ids []spiffe.ID
	for _, w := range joined {
		if id, err := spiffe.Parse(w.Identity); err == nil {
			ids = append(ids, id)
		}
	}
	return analyze.Problems(analyze.UnknownPrincipals(ctx, latest, ids))
}

// problems are what an operator should see to.
func (c *checkup) problems() []feed.Problem {
	f := c.look()
	var out []feed.Problem
	if f.err != nil {
		out = append(out, feed.Problem{Severity: feed.Error, Source: "certificate authority", Text: f.err.Error()})
	}
	for _, k := range c.identity.jwt.Failures() {
		p := feed.Problem{Severity: feed.Error, Source: "setting attestors.jwt", Object: k.Issuer, Stale: k.Kept,
			Text: k.Err.Error() + "; no token of this issuer is accepted until its keys can be read"}
		if k.Kept {
			p.Severity, p.Text = feed.Warning, k.Err.Error()+"; the keys that were read last stay in use"
		}
		out = append(out, p)
	}
	for _, text := range c.identity.ledger.Problems() {
		out = append(out, feed.Problem{Severity: feed.Error, Source: "ledger of workloads", Text: text})
	}
	for _, text := range f.authority.Problems {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: "certificate authority", Text: text})
	}
	return slices.Concat(out, f.doubled, f.unknownPrincipals)
}

// Describe implements prometheus.Collector.
func (c *checkup) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.root, c.chain, c.server, c.step, c.waiting, c.problem, c.tokens, c.workloads,
		c.revocations, c.unkept, c.failing} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. What cannot be told is not there.
func (c *checkup) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.unkept, float64(c.identity.ledger.Unkept()))
	gauge(c.failing, map[bool]float64{true: 1}[c.identity.ledger.Failing()])
	f := c.look()
	if f.err != nil {
		return
	}
	for _, r := range f.authority.Roots {
		if r.Role == "signs" {
			gauge(c.root, seconds(r.NotAfter))
		}
	}
	gauge(c.chain, seconds(f.authority.Signer.NotAfter))
	gauge(c.server, seconds(f.authority.Server.NotAfter))
	at := string(f.authority.Rotation.Step)
	if at == "" {
		at = "none"
	}
	for _, step := range []string{"none", string(ca.StepPrepare), string(ca.StepDistribute), string(ca.StepActivate)} {
		gauge(c.step, map[bool]float64{true: 1}[step == at], step)
	}
	gauge(c.waiting, float64(f.authority.Rotation.Count))
	gauge(c.problem, float64(len(f.authority.Problems)))
	counted := func(d *prometheus.Desc, have map[string]int, states ...string) {
		for _, s := range states {
			gauge(d, float64(have[s]), s)
		}
	}
	counted(c.tokens, f.tokens, "unused", "used", "expired", "revoked")
	counted(c.workloads, f.workloads, "valid", "ended", "revoked")
	counted(c.revocations, f.revocations, string(ca.RevokeIdentity), string(ca.RevokeWorkload), string(ca.RevokeSerial))
}

// seconds are those since 1970.
func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
