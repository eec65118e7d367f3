package adminapi

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/record"
	"github.com/ashore-mesh/ashore/registry/vip"
)

// Maintenance implements admin.Maintenance. The fields are set before use.
type Maintenance struct {
	// Named returns a source by its name in the settings.
	Named    func(setting string) (source string, ok bool)
	Problems func() []feed.Problem // of sources
	Accept   func(ctx context.Context, source string) (removed int, err error)
	Records  record.Store
	Record   func(audit.Event)
}

var _ admin.Maintenance = (*Maintenance)(nil)

// AcceptRemovals implements admin.Maintenance.
func (m *Maintenance) AcceptRemovals(ctx context.Context, r admin.AcceptRequest, who string) (admin.Accepted, error) {
	source, ok := m.Named(r.Source)
	if !ok && slices.ContainsFunc(m.Problems(), func(p feed.Problem) bool { return p.Source == r.Source }) {
		source, ok = r.Source, true // not in the settings any more, but its items are still active
	}
	if !ok {
		return admin.Accepted{}, admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("there is no source %q: \"ashorectl sources\" lists them", r.Source))
	}
	removed, err := m.Accept(ctx, source)
	m.note(audit.RemovalsAccept, who, source, map[string]string{"removed": strconv.Itoa(removed)}, err)
	return admin.Accepted{Source: source, Removed: removed}, err
}

// ReleaseVIPs implements admin.Maintenance.
func (m *Maintenance) ReleaseVIPs(ctx context.Context, who string) (admin.ReleasedVIPs, error) {
	hosts, err := vip.Release(ctx, m.Records, time.Now())
	m.note(audit.VIPRelease, who, "virtual IPs", map[string]string{"released": strconv.Itoa(len(hosts))}, err)
	return admin.ReleasedVIPs{Hosts: hosts}, err
}

func (m *Maintenance) note(action, who, target string, details map[string]string, err error) {
	e := audit.Event{Action: action, Actor: who, Target: target, Details: details}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, err.Error()
	}
	m.Record(e)
}
