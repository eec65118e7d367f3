package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// maxOps is how many operations a transaction has at most besides the first, and maxBytes how large it is about. Source:
// Consul, agent/txn_endpoint.go (maxTxnOps, 128; 64 before 1.10), txn_max_req_len (512 KiB).
const maxOps, maxBytes = 62, 256 << 10

// change is what belongs together: it is written as a whole or not at all.
type change struct {
	name string
	ops  api.TxnOps
	size int
	done func()
}

// write writes what differs, a transaction at a time.
func (w *writer) write(ctx context.Context) error {
	if err := w.known(ctx); err != nil {
		return err
	}
	var batch []change
	ops, size := 0, 0
	flush := func() error {
		err := w.send(ctx, batch)
		batch, ops, size = nil, 0, 0
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.dirty)) {
		for _, c := range w.changes(name) {
			if ops+len(c.ops) > maxOps || size+c.size > maxBytes {
				if err := flush(); err != nil {
					return err
				}
			}
			batch = append(batch, c)
			ops, size = ops+len(c.ops), size+c.size
		}
	}
	if err := flush(); err != nil {
		return err
	}
	clear(w.dirty)
	return nil
}

// changes are what to do about a name.
func (w *writer) changes(name string) []change {
	if w.refused[name] != "" {
		return nil
	}
	want := w.offers.offered[name]
	if w.removes || w.natives[name] {
		want = nil
	}
	var out []change
	for _, id := range slices.Sorted(maps.Keys(w.there[name])) {
		if _, stays := want[id]; !stays {
			out = append(out, w.removal(w.there[name][id]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if is, ok := w.there[name][id]; !ok || !is.equal(want[id]) {
			out = append(out, w.setting(want[id], ok && is.sameService(want[id])))
		}
	}
	return out
}

// removal removes an entry, and with it its check.
func (w *writer) removal(e exported) change {
	return change{name: e.name, size: len(e.id) + len(e.name), ops: api.TxnOps{{Service: &api.ServiceTxnOp{
		Verb: api.ServiceDelete, Node: w.e.node, Service: api.AgentService{ID: e.id, Service: e.name, Partition: w.e.cfg.Options.Partition},
	}}}, done: func() {
		delete(w.there[e.name], e.id)
		if len(w.there[e.name]) == 0 {
			delete(w.there, e.name)
		}
	}}
}

// setting writes an entry with its check; healthAlone: the entry stands there, and is another in health alone.
func (w *writer) setting(e exported, healthAlone bool) change {
	c := change{name: e.name, done: func() { put(w.there, e) }, size: 512}
	if !healthAlone {
		s := e.service()
		s.Partition = w.e.cfg.Options.Partition
		c.ops = append(c.ops, &api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: w.e.node, Service: s}})
		for _, t := range e.tags {
			c.size += len(t)
		}
		for k, v := range e.meta {
			c.size += len(k) + len(v)
		}
	}
	check := e.check(w.e.node)
	check.Partition = w.e.cfg.Options.Partition
	c.ops = append(c.ops, &api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: check}})
	return c
}

// send writes a batch in one transaction, which holds only as long as the lease does. What Consul refuses of it is left out
// and told, and the rest is written.
func (w *writer) send(ctx context.Context, batch []change) error {
	for len(batch) > 0 {
		ops := api.TxnOps{{KV: &api.KVTxnOp{Verb: api.KVCheckSession, Key: w.e.cfg.Options.Export.lease(w.e.number), Session: w.id, Partition: w.e.cfg.Options.Partition}}}
		owner := []int{-1} // whose each operation is
		for i, c := range batch {
			for range c.ops {
				owner = append(owner, i)
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
			if r.OpIndex <= 0 || r.OpIndex >= len(owner) {
				return fmt.Errorf("%w (%s)", errLeaseLost, consulhttp.OneLine(r.What))
			}
			w.refuse(batch[owner[r.OpIndex]].name, consulhttp.OneLine(r.What))
		}
		batch = slices.DeleteFunc(batch, func(c change) bool { return w.refused[c.name] != "" })
	}
	return nil
}

// transact does all or nothing; refused is what Consul has against parts of it.
func (w *writer) transact(ctx context.Context, ops api.TxnOps) (refused api.TxnErrors, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	w.sent++
	ok, resp, _, err := w.e.client.api.Txn().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return nil, err
	case ok:
		return nil, nil
	case len(resp.Errors) == 0:
		return nil, errors.New("a transaction was not done, and Consul did not say why")
	}
	return resp.Errors, nil
}

// refuse leaves a name out until the next look.
func (w *writer) refuse(name, why string) {
	if w.refused == nil {
		w.refused = map[string]string{}
	}
	w.refused[name] = why
}
