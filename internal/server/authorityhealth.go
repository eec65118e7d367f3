package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

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
	// ofAuthority is the source of problems of the authority.
	ofAuthority = "certificate authority"
)

// authorityHealth reports the state of the certificate authority as problems and metrics, so that
// neither waits for the store. Safe for concurrent use.
type authorityHealth struct {
	api   *adminapi.API
	found atomic.Pointer[findings] // of the last examination
}

// findings are the state of an authority.
type findings struct {
	problems  []feed.Problem
	status    *admin.Authority // nil: it could not be read
	workloads map[string]int   // by state
}

func newAuthorityHealth(api *adminapi.API) *authorityHealth {
	h := &authorityHealth{api: api}
	h.found.Store(&findings{})
	return h
}

// run examines the authority until ctx ends.
func (h *authorityHealth) run(ctx context.Context) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		h.found.Store(h.examine(ctx, time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// examine reads the state of the authority.
func (h *authorityHealth) examine(ctx context.Context, now time.Time) *findings {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	status, err1 := h.api.Manager.Show(ctx)
	list, err2 := h.api.ListWorkloads(ctx, admin.None{})
	if err := errors.Join(err1, err2); err != nil {
		return &findings{problems: problemsOf(ofAuthority, feed.Error, err.Error())}
	}
	f := &findings{problems: problemsOf(ofAuthority, feed.Warning, status.Problems...), status: &status,
		workloads: map[string]int{}}
	for _, w := range list.Workloads {
		state := "ended"
		if n := len(w.Leaves); n > 0 && w.Leaves[n-1].NotAfter.After(now) {
			state = "valid"
		}
		if w.Revoked {
			state = "revoked"
		}
		f.workloads[state]++
	}
	f.problems = append(f.problems, h.unknownPrincipals(ctx, status, list.Workloads)...)
	return f
}

// unknownPrincipals are the callers that policies deny and that do not exist. Below a root that is
// plugged in, or that of a signer, others may issue certificates too.
func (h *authorityHealth) unknownPrincipals(ctx context.Context, status admin.Authority,
	joined []admin.Workload) []feed.Problem {
	latest := h.api.Published()
	if latest == nil || status.Kind != ca.SelfSigned || h.api.Settings.CA.Signer.Name != "" {
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
func (h *authorityHealth) problems() []feed.Problem { return h.found.Load().problems }

// collect reports the last examination. After a failed one only pending revocations are reported.
// Names of metrics are Istio's where it has one.
func (h *authorityHealth) collect(emit emitFunc) {
	emit("ashore_revocations_pending", "Revocations in force on this replica that the store does not have yet.",
		float64(h.api.Ledger.Pending()))
	f := h.found.Load()
	if f.status == nil {
		return
	}
	for _, r := range f.status.Roots {
		if r.State == "signs" {
			emit("citadel_server_root_cert_expiry_timestamp",
				"When the root that signs ends, in seconds since 1970.", seconds(r.NotAfter))
		}
	}
	emit("citadel_server_cert_chain_expiry_timestamp",
		"When the certificate that signs ends, in seconds since 1970.", seconds(f.status.Signer.NotAfter))
	emit("ashore_ca_server_expiry_timestamp_seconds",
		"When the control plane's own certificate ends, in seconds since 1970.", seconds(f.status.Server.NotAfter))
	for _, state := range []string{"valid", "ended", "revoked"} {
		emit("ashore_workloads", "Joined workloads, by whether their certificate is valid, ended or revoked.",
			float64(f.workloads[state]), "state", state)
	}
}
