package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/adminapi"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/spiffe"
)

const (
	// healthInterval is the time between two examinations, which read all records.
	healthInterval = 10 * time.Second
	// healthTimeout is how long one may take.
	healthTimeout = 5 * time.Second
)

// authorityHealth reports the state of the certificate authority as problems and metrics. Safe for
// concurrent use.
type authorityHealth struct {
	api *adminapi.API
	jwt *ca.JWTAttestor
	log hclog.Logger

	found atomic.Pointer[findings] // of the last examination; nil before the first
}

// findings are how an authority is. Not to be changed.
type findings struct {
	authority admin.Authority
	// tokens, workloads and revocations are counted by state, state and kind.
	tokens, workloads, revocations map[string]int
	doubled                        []feed.Problem // workloads by whose names several machines go
	unknownPrincipals              []feed.Problem // callers that policies deny and that do not exist
	err                            error
}

// run examines the authority until ctx ends.
func (c *authorityHealth) run(ctx context.Context) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		c.refresh(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *authorityHealth) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	found := c.examine(ctx, time.Now())
	if found.err != nil && !errors.Is(found.err, context.Canceled) {
		c.log.Warn("cannot examine the certificate authority", "error", found.err)
	}
	c.found.Store(&found)
}

// examine reads the state of the authority.
func (c *authorityHealth) examine(ctx context.Context, now time.Time) findings {
	f := findings{tokens: map[string]int{}, workloads: map[string]int{}, revocations: map[string]int{}}
	if f.authority, f.err = c.api.Manager.Show(ctx); f.err != nil {
		return f
	}
	tokens, err := c.api.Ledger.Tokens(ctx)
	if err != nil {
		return findings{err: err}
	}
	list, err := c.api.ListWorkloads(ctx, admin.None{})
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
func (c *authorityHealth) unknownPrincipals(ctx context.Context, authority admin.Authority,
	joined []admin.Workload) []feed.Problem {
	latest := c.api.Published.Context()
	if latest == nil || authority.Kind != ca.SelfSigned {
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
func (c *authorityHealth) problems() []feed.Problem {
	f := c.found.Load()
	if f == nil {
		return nil
	}
	var out []feed.Problem
	if f.err != nil {
		out = append(out, feed.Problem{Severity: feed.Error, Source: "certificate authority", Text: f.err.Error()})
	}
	for _, k := range c.jwt.Failures() {
		p := feed.Problem{Severity: feed.Error, Source: "setting attestors.jwt", Object: k.URL, Since: k.Since, Stale: k.Kept,
			Text: k.Err.Error() + "; no token of its issuer is accepted until they can be read"}
		if k.Kept {
			p.Severity, p.Text = feed.Warning, k.Err.Error()+"; the keys that were read last stay in use"
		}
		out = append(out, p)
	}
	for _, text := range c.api.Ledger.Problems() {
		out = append(out, feed.Problem{Severity: feed.Error, Source: "ledger of workloads", Text: text})
	}
	for _, text := range f.authority.Problems {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: "certificate authority", Text: text})
	}
	return slices.Concat(out, f.doubled, f.unknownPrincipals)
}

// collect reports the last examination. After a failed one only pending revocations are reported.
// Names of metrics are Istio's where it has one.
func (c *authorityHealth) collect(emit emitFunc) {
	emit("ashore_revocations_pending", "Revocations in force on this replica that the store does not have yet.",
		float64(c.api.Ledger.Pending()))
	f := c.found.Load()
	if f == nil || f.err != nil {
		return
	}
	for _, r := range f.authority.Roots {
		if r.State == "signs" {
			emit("citadel_server_root_cert_expiry_timestamp",
				"When the root that signs ends, in seconds since 1970.", seconds(r.NotAfter))
		}
	}
	emit("citadel_server_cert_chain_expiry_timestamp",
		"When the certificate that signs ends, in seconds since 1970.", seconds(f.authority.Signer.NotAfter))
	emit("ashore_ca_server_expiry_timestamp_seconds",
		"When the control plane's own certificate ends, in seconds since 1970.", seconds(f.authority.Server.NotAfter))
	current := cmp.Or(f.authority.Rotation.Step, "none")
	for _, step := range []string{"none", ca.StepDistribute, ca.StepActivate} {
		emit("ashore_ca_rotation_step", "1 for the last completed step of a rotation of the root, or none.",
			truth(step == current), "step", step)
	}
	emit("ashore_ca_rotation_waiting", "What the next step of a rotation waits for.",
		float64(f.authority.Rotation.Count))
	emit("ashore_ca_problems", "Problems of the certificate authority.", float64(len(f.authority.Problems)))
	for _, state := range []string{"unused", "used", "expired"} {
		emit("ashore_join_tokens", "Join tokens, by state.", float64(f.tokens[state]), "state", state)
	}
	for _, state := range []string{"valid", "ended", "revoked"} {
		emit("ashore_workloads", "Joined workloads, by whether their certificate is valid, ended or revoked.",
			float64(f.workloads[state]), "state", state)
	}
	for _, kind := range []ca.RevocationKind{ca.RevokeIdentity, ca.RevokeWorkload, ca.RevokeSerial} {
		emit("ashore_revocations", "Revocations in force, by kind.", float64(f.revocations[string(kind)]),
			"kind", string(kind))
	}
}
