package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

const (
	// syncGap is the least time between two rounds of writes, so that a storm of changes becomes few transactions.
	syncGap = 100 * time.Millisecond
	// readGap is how often the entries in Consul are read and compared.
	readGap = time.Minute
	// maxOps and maxBytes limit a transaction. Source: Consul, agent/txn_endpoint.go (maxTxnOps, 128; 64 before 1.10) and
	// txn_max_req_len (512 KiB).
	maxOps, maxBytes = 62, 256 << 10
)

// exportWriter makes the entries in Consul equal to the exportSet. One goroutine owns it.
type exportWriter struct {
	e   *Exporter
	set *exportSet

	registered map[string]map[string]exported // our entries in Consul, by name and ID; nil: not known
	taken      map[string]bool                // names that somebody else has registered
	refused    map[string]refusal             // by entry ID, until the next read
	dirty      map[string]bool                // names to compare
}

// refusal is why Consul refused an entry.
type refusal struct{ name, why string }

// change is one entry to write or remove. It is written as a whole or not at all.
type change struct {
	name, id string
	ops      api.TxnOps
	size     int
	done     func() // notes in registered that it was written
}

func newExportWriter(e *Exporter) *exportWriter {
	return &exportWriter{e: e, set: newExportSet(&e.cfg.Options, e.cfg.ExportTo), dirty: map[string]bool{}, refused: map[string]refusal{}}
}

// run writes what changed until ctx or the session ends; true after Withdraw, when everything is removed.
func (w *exportWriter) run(ctx context.Context) (withdrawn bool, err error) {
	read := time.NewTicker(readGap)
	defer read.Stop()
	for failures := 0; ; {
		withdrawn, err := w.round(ctx)
		if ctx.Err() != nil || errors.Is(err, errSessionLost) || withdrawn && err == nil {
			return withdrawn, err
		}
		wait := syncGap
		if err != nil {
			failures++
			wait = backoff(failures)
			w.registered = nil // a write may or may not have happened
		} else {
			failures = 0
		}
		w.e.setFailure(err, failures)
		w.report()
		if sleep(ctx, wait) != nil {
			return false, ctx.Err()
		}
		if err != nil {
			continue
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

// round writes all differences once; true after Withdraw.
func (w *exportWriter) round(ctx context.Context) (withdrawn bool, err error) {
	select {
	case <-w.e.withdraw:
		return true, w.remove(ctx)
	default:
	}
	w.e.mu.Lock()
	latest := w.e.latest
	w.e.mu.Unlock()
	w.set.take(latest.services, latest.endpoints)
	maps.Copy(w.dirty, w.set.changed)
	clear(w.set.changed)
	if w.registered == nil {
		if _, err := w.read(ctx); err != nil {
			return false, err
		}
	}
	return false, w.write(ctx)
}

// read reads our entries, the names that somebody else has registered, and nodes of replicas that have stopped. foreign means that
// somebody else's service is on our node.
func (w *exportWriter) read(ctx context.Context) (foreign bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	list, _, err := w.e.client.api.Catalog().NodeServiceList(w.e.node, w.e.reads(ctx))
	if err != nil {
		return false, err
	}
	if list == nil || list.Node == nil {
		return false, fmt.Errorf("the node %q is gone from Consul: %w", w.e.node, errSessionLost)
	}
	checks, _, err := w.e.client.api.Health().Node(w.e.node, w.e.reads(ctx))
	if err != nil {
		return false, err
	}
	byID := make(map[string]*api.HealthCheck, len(checks))
	for _, c := range checks {
		if c != nil {
			byID[c.CheckID] = c
		}
	}
	if err := w.readTaken(ctx); err != nil {
		return false, err
	}
	clear(w.refused)
	w.registered = map[string]map[string]exported{}
	for _, s := range list.Services {
		switch {
		case s == nil:
		case s.Meta[keyOwner] != w.e.cfg.Options.Export.Owner:
			foreign = true
		default:
			w.put(entryIn(s, byID[checkIDOf(s.ID)]))
			w.dirty[s.Service] = true
		}
	}
	for name := range w.set.wanted {
		w.dirty[name] = true
	}
	return foreign, w.e.removeStopped(ctx)
}

func (w *exportWriter) put(e exported) {
	if w.registered[e.name] == nil {
		w.registered[e.name] = map[string]exported{}
	}
	w.registered[e.name][e.id] = e
}

// readTaken reads the names that somebody else has registered: the mesh does not add to their services.
func (w *exportWriter) readTaken(ctx context.Context) error {
	q := w.e.reads(ctx)
	q.Filter = fmt.Sprintf("%s not in ServiceMeta", quote(keyOwner))
	names, _, err := w.e.client.api.Catalog().Services(q)
	if err != nil {
		return err
	}
	taken := make(map[string]bool, len(names))
	for name := range names {
		taken[strings.ToLower(name)] = true // Consul's DNS ignores case
	}
	for _, list := range []map[string]bool{taken, w.taken} {
		for name := range list {
			if taken[name] != w.taken[name] {
				w.dirty[name] = true
			}
		}
	}
	w.taken = taken
	return nil
}

// removeStopped removes the nodes of replicas whose sessions have ended. A replica that comes back registers again.
func (e *Exporter) removeStopped(ctx context.Context) error {
	q := e.reads(ctx)
	q.Filter = fmt.Sprintf("CheckID == %s", quote(sessionCheck))
	q.NodeMeta = map[string]string{keyOwner: e.cfg.Options.Export.Owner}
	checks, _, err := e.client.api.Health().State(api.HealthCritical, q)
	if err != nil {
		return err
	}
	for _, c := range checks {
		if c == nil || c.Node == e.node {
			continue
		}
		if _, err := e.client.api.Catalog().Deregister(&api.CatalogDeregistration{Node: c.Node, Partition: e.cfg.Options.Partition}, e.writes(ctx)); err != nil {
			return err
		}
		e.cfg.Log.Info("removed the entries of a replica that has stopped from Consul", "node", c.Node)
	}
	return nil
}

// remove removes all our entries, and the node unless somebody else's services are on it.
func (w *exportWriter) remove(ctx context.Context) error {
	w.set = newExportSet(&w.e.cfg.Options, w.e.cfg.ExportTo)
	foreign, err := w.read(ctx)
	if err != nil {
		return err
	}
	if err := w.write(ctx); err != nil || foreign {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err = w.e.client.api.Catalog().Deregister(&api.CatalogDeregistration{Node: w.e.node, Partition: w.e.cfg.Options.Partition}, w.e.writes(ctx))
	if err == nil {
		w.e.cfg.Log.Info("removed the mesh's services from Consul", "node", w.e.node)
	}
	return err
}

// write writes all differences of the dirty names, in as few transactions as fit.
func (w *exportWriter) write(ctx context.Context) error {
	adds := func(name string) bool { return len(w.registered[name]) == 0 && len(w.set.wanted[name]) > 0 }
	if slices.ContainsFunc(slices.Collect(maps.Keys(w.dirty)), adds) {
		if err := w.readTaken(ctx); err != nil {
			return err
		}
	}
	var batch []change
	ops, size := 0, 0
	for _, name := range slices.Sorted(maps.Keys(w.dirty)) {
		for _, c := range w.changes(name) {
			if ops+len(c.ops) > maxOps || size+c.size > maxBytes {
				if err := w.send(ctx, batch); err != nil {
					return err
				}
				batch, ops, size = nil, 0, 0
			}
			batch = append(batch, c)
			ops, size = ops+len(c.ops), size+c.size
		}
	}
	if err := w.send(ctx, batch); err != nil {
		return err
	}
	clear(w.dirty)
	return nil
}

// changes returns the differences of one name: additions come first, so that the service is never empty in between.
func (w *exportWriter) changes(name string) []change {
	want := w.set.wanted[name]
	if w.taken[name] {
		want = nil
	}
	var out []change
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if is, ok := w.registered[name][id]; w.refused[id].why == "" && (!ok || !is.equal(want[id])) {
			out = append(out, w.setting(want[id], ok && is.sameService(want[id])))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.registered[name])) {
		if _, stays := want[id]; !stays && w.refused[id].why == "" {
			out = append(out, w.removal(w.registered[name][id]))
		}
	}
	return out
}

// removal removes an entry; Consul removes its check.
func (w *exportWriter) removal(e exported) change {
	return change{name: e.name, id: e.id, size: len(e.id) + len(e.name), ops: api.TxnOps{{Service: &api.ServiceTxnOp{
		Verb: api.ServiceDelete, Node: w.e.node, Service: api.AgentService{ID: e.id, Service: e.name, Partition: w.e.cfg.Options.Partition},
	}}}, done: func() {
		delete(w.registered[e.name], e.id)
		if len(w.registered[e.name]) == 0 {
			delete(w.registered, e.name)
		}
	}}
}

// setting writes an entry and its check, or the check alone.
func (w *exportWriter) setting(e exported, checkOnly bool) change {
	c := change{name: e.name, id: e.id, done: func() { w.put(e) }, size: 512}
	if !checkOnly {
		s := e.service()
		s.Partition = w.e.cfg.Options.Partition
		c.ops = append(c.ops, &api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: w.e.node, Service: s}})
		c.size += sizeOf(s)
	}
	check := e.check(w.e.node)
	check.Partition = w.e.cfg.Options.Partition
	c.ops = append(c.ops, &api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: check}})
	return c
}

// sizeOf is the size of an entry on the wire, in bytes.
func sizeOf(s api.AgentService) int {
	b, err := json.Marshal(s)
	if err != nil {
		return maxBytes // in a transaction of its own, whose error says why
	}
	return len(b)
}

// send writes a batch in one transaction. Consul refuses a transaction as a whole: the changes that it names are left out until the
// next read, and the rest is sent again.
func (w *exportWriter) send(ctx context.Context, batch []change) error {
	for len(batch) > 0 {
		var ops api.TxnOps
		var changeOf []int // by operation
		for i, c := range batch {
			for range c.ops {
				changeOf = append(changeOf, i)
			}
			ops = append(ops, c.ops...)
		}
		refused, err := w.transact(ctx, ops)
		if err != nil {
			return err
		}
		if len(refused) == 0 {
			for _, c := range batch {
				c.done()
			}
			return nil
		}
		for _, r := range refused {
			if r == nil || r.OpIndex < 0 || r.OpIndex >= len(changeOf) {
				return errNoReason
			}
			c := batch[changeOf[r.OpIndex]]
			w.refused[c.id] = refusal{c.name, consulhttp.OneLine(r.What)}
		}
		batch = slices.DeleteFunc(batch, func(c change) bool { return w.refused[c.id].why != "" })
	}
	return nil
}

var errNoReason = errors.New("a transaction was refused without saying why: is it the address of Consul's HTTP interface?")

// transact executes all operations or none; refused are those that Consul does not accept.
func (w *exportWriter) transact(ctx context.Context, ops api.TxnOps) (refused api.TxnErrors, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	w.e.mu.Lock()
	w.e.status.Writes++
	w.e.mu.Unlock()
	ok, resp, _, err := w.e.client.api.Txn().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return nil, err
	case ok:
		return nil, nil
	case len(resp.Errors) == 0:
		return nil, errNoReason
	}
	return resp.Errors, nil
}
