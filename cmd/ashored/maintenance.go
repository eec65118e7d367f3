package main

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

// maintenance implements admin.Maintenance.
type maintenance struct {
	named    func(setting string) (source string, ok bool)
	problems func() []feed.Problem // of sources
	accept   func(ctx context.Context, source string) (removed int, err error)
	records  record.Store
	audit    func(audit.Event)
}

var _ admin.Maintenance = (*maintenance)(nil)

// AcceptRemovals implements admin.Maintenance.
func (m *maintenance) AcceptRemovals(ctx context.Context, r admin.AcceptRequest, who string) (admin.Accepted, error) {
	source, ok := m.named(r.Source)
	if !ok && slices.ContainsFunc(m.problems(), func(p feed.Problem) bool { return p.Source == r.Source }) {
		source, ok = r.Source, true // not in the settings any more, but its items are still active
	}
	if !ok {
		return admin.Accepted{}, admin.NewError(admin.ErrNotFound,
			fmt.Sprintf("there is no source %q: \"ashorectl sources\" lists them", r.Source))
	}
	removed, err := m.accept(ctx, source)
	m.record(audit.RemovalsAccept, who, source, map[string]string{"removed": strconv.Itoa(removed)}, err)
	return admin.Accepted{Source: source, Removed: removed}, err
}

// ReleaseVIPs implements admin.Maintenance.
func (m *maintenance) ReleaseVIPs(ctx context.Context, who string) (admin.ReleasedVIPs, error) {
	hosts, err := vip.Release(ctx, m.records, time.Now())
	m.record(audit.VIPRelease, who, "virtual IPs", map[string]string{"released": strconv.Itoa(len(hosts))}, err)
	return admin.ReleasedVIPs{Hosts: hosts}, err
}

func (m *maintenance) record(action, who, target string, details map[string]string, err error) {
	e := audit.Event{Action: action, Actor: who, Target: target, Details: details}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, err.Error()
	}
	m.audit(e)
}
