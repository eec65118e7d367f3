package adminapi

import (
	"context"
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/registry/vip"
)

// AcceptRemovals removes what is active although the source does not supply it any more. Errors:
// admin.ErrNotFound.
func (a *API) AcceptRemovals(ctx context.Context, r admin.AcceptRequest) (admin.Accepted, error) {
	removed, err := a.Assembler.AcceptRemovals(ctx, r.Source)
	// Items of a source that is not in the settings any more may still be active.
	if _, known := a.Settings.Source(r.Source); err == nil && removed == 0 && !known {
		return admin.Accepted{}, notFound("there is no source %q: \"ashorectl sources\" lists them", r.Source)
	}
	a.record(ctx, audit.RemovalsAccept, r.Source, err, "removed", strconv.Itoa(removed))
	return admin.Accepted{Source: r.Source, Removed: removed}, err
}

// ReleaseVIPs releases the virtual IPs of hosts that no replica has used for a week.
func (a *API) ReleaseVIPs(ctx context.Context, _ admin.None) (admin.ReleasedVIPs, error) {
	hosts, err := vip.Release(ctx, a.Records, time.Now())
	a.record(ctx, audit.VIPRelease, "virtual IPs", err, "released", strconv.Itoa(len(hosts)))
	return admin.ReleasedVIPs{Hosts: hosts}, err
}

// maxTail limits how many events of the audit log are read at once.
const maxTail = 10_000

// ReadAudit returns the latest events of the audit log, 10,000 at most.
func (a *API) ReadAudit(_ context.Context, q admin.AuditQuery) ([]audit.Event, error) {
	return a.AuditTail(min(q.Lines, maxTail))
}
