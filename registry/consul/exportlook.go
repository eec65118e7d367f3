package consul

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// lookGap is how often is looked whether what stands in Consul is what was written, and nothing else has come there, and
	// lookCost how many times as long as it takes that is at least.
	lookGap, lookCost = time.Minute, 500
	// nativesGap is how old the names may be that others have in Consul when one is added.
	nativesGap = 2 * time.Second
)

// look finds what of the owner's stands in Consul, and has everything compared. The check that hangs on the lease is made, or
// mended.
func (w *writer) look(ctx context.Context, session string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	lease, _, err := w.read(ctx)
	if err != nil {
		return err
	}
	if lease == nil || lease.Type != leaseCheckType || lease.Definition.SessionName != session || lease.Status != api.HealthPassing {
		if err := w.bind(ctx, session); err != nil {
			w.there = nil
			return err
		}
		if lease != nil && lease.Type == leaseCheckType && lease.Definition.SessionName != session {
			w.e.retire(ctx, lease.Definition.SessionName)
		}
	}
	for _, name := range w.offers.all() {
		w.dirty[name] = true
	}
	return nil
}

// bind has the check hang on this session, while the lease is its. The check is of no transaction, so what it may have cost one
// who has the lease by now is told afterwards: that one looks once a minute, and binds it again.
func (w *writer) bind(ctx context.Context, session string) error {
	if err := w.e.holds(ctx, w.id); err != nil {
		return err
	}
	if err := w.e.bind(ctx, session); err != nil {
		return err
	}
	return w.e.holds(ctx, w.id)
}

// read reads what of the owner's stands in Consul, and the check that hangs on the lease; others says that something of
// somebody else stands on the node.
func (w *writer) read(ctx context.Context) (lease *api.HealthCheck, others bool, err error) {
	list, _, err := w.e.client.api.Catalog().NodeServiceList(w.e.node, w.e.reads(ctx))
	if err != nil {
		return nil, false, err
	}
	checks, _, err := w.e.client.api.Health().Node(w.e.node, w.e.reads(ctx))
	if err != nil {
		return nil, false, err
	}
	byID := make(map[string]*api.HealthCheck, len(checks))
	for _, c := range checks {
		if c != nil {
			byID[c.CheckID] = c
		}
	}
	w.there = map[string]map[string]exported{}
	if list == nil {
		return byID[leaseCheck], false, nil // there is no such node
	}
	for _, s := range list.Services {
		switch {
		case s == nil:
		case s.Meta[keyOwner] != w.e.cfg.Options.Export.Owner:
			others = true
		default:
			put(w.there, entryIn(s, byID[checkIDOf(s.ID)]))
			w.dirty[s.Service] = true
		}
	}
	return byID[leaseCheck], others, nil
}

func put(to map[string]map[string]exported, e exported) {
	if to[e.name] == nil {
		to[e.name] = map[string]exported{}
	}
	to[e.name][e.id] = e
}

// known sees to it that the names which others have in Consul are known, where one is about to be added.
func (w *writer) known(ctx context.Context) error {
	if w.removes {
		return nil
	}
	adds := func(name string) bool { return len(w.there[name]) == 0 && len(w.offers.offered[name]) > 0 }
	old := w.nativesAt.IsZero() || time.Since(w.nativesAt) > nativesGap && slices.ContainsFunc(slices.Collect(maps.Keys(w.dirty)), adds)
	if !old {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	q := w.e.reads(ctx)
	q.Filter = fmt.Sprintf("%s not in ServiceMeta", quote(keyOwner))
	names, _, err := w.e.client.api.Catalog().Services(q)
	if err != nil {
		return err
	}
	natives := make(map[string]bool, len(names))
	for name := range names {
		natives[strings.ToLower(name)] = true // Consul's DNS does not tell them apart
	}
	for _, list := range []map[string]bool{natives, w.natives} {
		for name := range list {
			if natives[name] != w.natives[name] {
				w.dirty[name] = true
			}
		}
	}
	w.natives, w.nativesAt = natives, time.Now()
	return nil
}
