package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// writeGap is the minimum time between two rounds of writes. It turns many changes into few
	// transactions.
	writeGap = 100 * time.Millisecond
	// readGap is how often the entries in Consul are read and compared.
	readGap = time.Minute
	// maxChanges limits a transaction. Each change takes up to two operations, and Consul accepts
	// 64 of them before 1.10. 31 entries are smaller than its limit of 512 KiB. Source: Consul,
	// agent/txn_endpoint.go (maxTxnOps), txn_max_req_len.
	maxChanges = 31
)

// exportWriter makes the entries of this replica in Consul equal to the wanted ones. One goroutine
// owns it.
type exportWriter struct {
	e *Exporter

	wanted    map[string]*exportedService // by name in Consul
	conflicts []feed.Problem              // services that cannot be registered

	registered map[string]*exportEntry // our entries in Consul, by ID; nil: not known
	taken      map[string]bool         // names that somebody else has registered
	refused    map[string]refusal      // by entry ID, until the next read
}

// refusal is why Consul refused an entry.
type refusal struct{ name, reason string }

// exportChange sets or removes one entry, as a whole or not at all.
type exportChange struct {
	entry  *exportEntry
	remove bool
	ops    api.TxnOps
}

// run writes what changed until ctx or the session ends. It returns true once Withdraw was called
// and everything is removed.
func (w *exportWriter) run(ctx context.Context) (withdrawn bool, err error) {
	read := time.NewTicker(readGap)
	defer read.Stop()
	for failures := 0; ; {
		withdrawn, err := w.round(ctx)
		if ctx.Err() != nil || errors.Is(err, errSessionLost) || withdrawn && err == nil {
			return withdrawn, err
		}
		if err != nil {
			failures++
			w.registered = nil // a write may or may not have happened
			w.e.fail(err, failures, w.problems()...)
			if sleep(ctx, backoff(failures)) != nil {
				return false, ctx.Err()
			}
			continue
		}
		failures = 0
		w.e.report(w.problems(), len(w.registered))
		if sleep(ctx, writeGap) != nil {
			return false, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-w.e.withdraw:
		case <-w.e.wake:
		case <-read.C:
			w.registered = nil
		}
	}
}

// round writes all differences once. It returns true if Withdraw was called.
func (w *exportWriter) round(ctx context.Context) (withdrawn bool, err error) {
	select {
	case <-w.e.withdraw:
		return true, w.remove(ctx)
	default:
	}
	mesh := w.e.published()
	set := exportSet{&w.e.cfg.Options, w.e.cfg.ExportTo}
	w.wanted, w.conflicts = set.services(mesh.services, mesh.endpoints, w.wanted)
	if w.registered == nil {
		if _, err := w.read(ctx); err != nil {
			return false, err
		}
	}
	return false, w.write(ctx)
}

// remove removes all our entries, and the node unless somebody else's services are on it.
func (w *exportWriter) remove(ctx context.Context) error {
	w.wanted, w.conflicts = nil, nil
	othersServices, err := w.read(ctx)
	if err != nil {
		return err
	}
	if err := w.write(ctx); err != nil || othersServices {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := w.e.removeNode(ctx, w.e.node); err != nil {
		return err
	}
	w.e.cfg.Log.Info("removed the mesh's services from Consul", "node", w.e.node)
	return nil
}

// read reads our entries and the names that somebody else has registered. It removes nodes of
// replicas that have stopped. othersServices is whether somebody else's service is on our node.
func (w *exportWriter) read(ctx context.Context) (othersServices bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*queryTimeout)
	defer cancel()
	list, _, err := w.e.client.api.Catalog().NodeServiceList(w.e.node, w.e.reads(ctx))
	if err != nil {
		return false, err
	}
	if list == nil || list.Node == nil {
		return false, fmt.Errorf("the node %q is not in Consul: %w", w.e.node, errSessionLost)
	}
	checks, _, err := w.e.client.api.Health().Node(w.e.node, w.e.reads(ctx))
	if err != nil {
		return false, err
	}
	if slices.Contains(list.Services, nil) || slices.Contains(checks, nil) {
		return false, errNotConsul
	}
	if err := w.readTaken(ctx); err != nil {
		return false, err
	}
	byID := make(map[string]api.HealthCheck, len(checks))
	for _, c := range checks {
		byID[c.CheckID] = *c
	}
	w.refused = map[string]refusal{}
	w.registered = map[string]*exportEntry{}
	for _, s := range list.Services {
		if s.Meta[keyOwner] != w.e.cfg.Options.Export.Owner {
			othersServices = true
			continue
		}
		w.registered[s.ID] = &exportEntry{service: *s, check: byID[checkIDOf(s.ID)]}
	}
	return othersServices, w.e.removeStopped(ctx)
}

// readTaken reads the names that somebody else has registered. The mesh does not add to their
// services.
func (w *exportWriter) readTaken(ctx context.Context) error {
	q := w.e.reads(ctx)
	q.Filter = fmt.Sprintf("%s not in ServiceMeta", quote(keyOwner))
	names, _, err := w.e.client.api.Catalog().Services(q)
	if err != nil {
		return err
	}
	w.taken = make(map[string]bool, len(names))
	for name := range names {
		w.taken[strings.ToLower(name)] = true // Consul's DNS ignores case
	}
	return nil
}

// write writes all differences, in as few transactions as fit.
func (w *exportWriter) write(ctx context.Context) error {
	changes := w.changes()
	if w.addsName(changes) {
		if err := w.readTaken(ctx); err != nil {
			return err
		}
		changes = w.changes()
	}
	for batch := range slices.Chunk(changes, maxChanges) {
		if err := w.send(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the differences. Entries are set before others are removed, so that no service is
// empty in between.
func (w *exportWriter) changes() (out []exportChange) {
	for name, s := range w.wanted {
		for id, e := range s.entries {
			is := w.registered[id]
			switch {
			case w.taken[name] || is == e:
			case is != nil && is.equal(e):
				w.registered[id] = e // the next comparison is one of pointers
			default:
				out = append(out, w.setting(e, is))
			}
		}
	}
	for id, e := range w.registered {
		if s := w.wanted[e.service.Service]; s == nil || s.entries[id] == nil || w.taken[e.service.Service] {
			out = append(out, w.removal(e))
		}
	}
	return slices.DeleteFunc(out, w.isRefused)
}

// isRefused reports whether Consul refused a change of this entry since the last read.
func (w *exportWriter) isRefused(c exportChange) bool {
	return w.refused[c.entry.service.ID] != refusal{}
}

// addsName reports whether a change adds the first entry of a service.
func (w *exportWriter) addsName(changes []exportChange) bool {
	if len(changes) == 0 {
		return false
	}
	names := map[string]bool{}
	for _, e := range w.registered {
		names[e.service.Service] = true
	}
	return slices.ContainsFunc(changes, func(c exportChange) bool {
		return !c.remove &&
			!names[c.entry.service.Service]
	})
}

// setting returns the change that sets an entry and its check, or the check alone if nothing else
// differs from is.
func (w *exportWriter) setting(e, is *exportEntry) exportChange {
	c := exportChange{entry: e}
	service, check := e.service, e.check
	service.Partition, check.Partition = w.e.cfg.Options.Partition, w.e.cfg.Options.Partition
	check.Node = w.e.node
	if is == nil || !is.sameService(e) {
		c.ops = append(c.ops, &api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: w.e.node,
			Service: service}})
	}
	c.ops = append(c.ops, &api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: check}})
	return c
}

// removal returns the change that removes an entry. Consul removes its check.
func (w *exportWriter) removal(e *exportEntry) exportChange {
	s := api.AgentService{ID: e.service.ID, Service: e.service.Service, Partition: w.e.cfg.Options.Partition}
	op := &api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceDelete, Node: w.e.node, Service: s}}
	return exportChange{entry: e, remove: true, ops: api.TxnOps{op}}
}

// send writes a batch in one transaction. Consul refuses a transaction as a whole. The changes that
// it names are left out until the next read, and the rest is sent again.
func (w *exportWriter) send(ctx context.Context, batch []exportChange) error {
	for len(batch) > 0 {
		var ops api.TxnOps
		var changeOf []exportChange // by operation
		for _, c := range batch {
			for _, op := range c.ops {
				ops, changeOf = append(ops, op), append(changeOf, c)
			}
		}
		refused, err := w.transact(ctx, ops)
		if err != nil {
			return err
		}
		if len(refused) == 0 {
			w.written(batch)
			return nil
		}
		for _, r := range refused {
			if r == nil || r.OpIndex < 0 || r.OpIndex >= len(changeOf) {
				return errNotConsul
			}
			s := changeOf[r.OpIndex].entry.service
			w.refused[s.ID] = refusal{s.Service, consulhttp.OneLine(r.What)}
		}
		batch = slices.DeleteFunc(batch, w.isRefused)
	}
	return nil
}

// written notes that Consul has accepted changes.
func (w *exportWriter) written(batch []exportChange) {
	for _, c := range batch {
		if c.remove {
			delete(w.registered, c.entry.service.ID)
		} else {
			w.registered[c.entry.service.ID] = c.entry
		}
	}
}

// transact executes all operations or none. refused are those that Consul does not accept.
func (w *exportWriter) transact(ctx context.Context, ops api.TxnOps) (refused api.TxnErrors, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	w.e.countWrite()
	ok, resp, _, err := w.e.client.api.Txn().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return nil, err
	case ok:
		return nil, nil
	case len(resp.Errors) == 0:
		return nil, errNotConsul
	}
	return resp.Errors, nil
}

// problems lists the services that are not registered, and why.
func (w *exportWriter) problems() []feed.Problem {
	list := slices.Clone(w.conflicts)
	counts := map[refusal]int{}
	for _, r := range w.refused {
		counts[r]++
	}
	for r, n := range counts {
		text := fmt.Sprintf("%d of its entries are not written, Consul refuses them (%s)", n, r.reason)
		if strings.Contains(r.reason, "Permission denied") {
			text += ": give the token in tokenFile service:write for it, or exclude it by export.except"
		}
		list = append(list, feed.Problem{Severity: feed.Warning, Object: "Consul service " + r.name, Text: text})
	}
	for name, s := range w.wanted {
		if w.taken[name] {
			list = append(list, notRegistered(s.service, "somebody else has registered a service %q; "+
				"set export.name, or exclude it by export.except", name))
		}
	}
	return list
}
