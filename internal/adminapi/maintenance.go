package adminapi

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry/vip"
)

// Maintenance removes what ashored retains until an operator says so. The fields are set before use.
type Maintenance struct {
	Active   func(source string) bool // the settings have it
	Problems func() []feed.Problem    // of sources
	Accept   func(ctx context.Context, source string) (removed int, err error)
	Records  record.Store
	Record   func(audit.Event)
}

// Routes returns the routes of the calls that m answers.
func (m *Maintenance) Routes() []admin.Route {
	return []admin.Route{
		admin.Handle(admin.CallAcceptRemovals, admin.Operator, m.AcceptRemovals),
		admin.Handle(admin.CallReleaseVIPs, admin.Operator, m.ReleaseVIPs),
	}
}

// AcceptRemovals removes what is active although the source does not supply it any more. Errors:
// admin.ErrNotFound.
func (m *Maintenance) AcceptRemovals(ctx context.Context, r admin.AcceptRequest) (admin.Accepted, error) {
	// Items of a source that is not in the settings any more may still be active.
	retained := func(p feed.Problem) bool { return p.Source == r.Source }
	if !m.Active(r.Source) && !slices.ContainsFunc(m.Problems(), retained) {
		return admin.Accepted{}, admin.NewError(admin.ErrNotFound,
			"there is no source %q: \"ashorectl sources\" lists them", r.Source)
	}
	removed, err := m.Accept(ctx, r.Source)
	recordOutcome(m.Record, audit.Event{Action: audit.RemovalsAccept, Actor: admin.Actor(ctx), Target: r.Source,
		Details: map[string]string{"removed": strconv.Itoa(removed)}}, err)
	return admin.Accepted{Source: r.Source, Removed: removed}, err
}

// ReleaseVIPs releases the virtual IPs of hosts that no replica has used for a week.
func (m *Maintenance) ReleaseVIPs(ctx context.Context, _ admin.None) (admin.ReleasedVIPs, error) {
	hosts, err := vip.Release(ctx, m.Records, time.Now())
	recordOutcome(m.Record, audit.Event{Action: audit.VIPRelease, Actor: admin.Actor(ctx), Target: "virtual IPs",
		Details: map[string]string{"released": strconv.Itoa(len(hosts))}}, err)
	return admin.ReleasedVIPs{Hosts: hosts}, err
}

// maxTail limits how many events of the audit log are read at once.
const maxTail = 10_000

// AuditRoute returns the route of the call that answers from the audit log.
func AuditRoute(log *audit.Log) admin.Route {
	return admin.Handle(admin.CallAudit, admin.Operator,
		func(_ context.Context, q admin.AuditQuery) ([]audit.Event, error) {
			if q.Lines < 0 || q.Lines > maxTail {
				return nil, admin.NewError(admin.ErrInvalid, "%d lines: want a number from 0 to %d", q.Lines, maxTail)
			}
			return log.Tail(q.Lines)
		})
}
