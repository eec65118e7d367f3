package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// maxOps is how many operations a transaction has at most besides the first, and maxBytes how large it is about. Source:
// Consul, agent/txn_endpoint.go (maxTxnOps, 128; 64 before 1.10), txn_max_req_len (512 KiB).
const maxOps, maxBytes = 62, 256 << 10

// change is what belongs together: it is written as a whole or not at all.
type change struct {
	name, id string // of the entry
	ops      api.TxnOps
	size     int
	done     func()
}

// refusal is what Consul has against a change of an entry.
type refusal struct{ name, why string }

// errNoReason is about a transaction that was not done.
var errNoReason = errors.New("a transaction was not done, and Consul did not say why: is it the address of Consul's HTTP interface?")

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

// changes are what to do about a name: what comes before what goes, so that nobody finds it empty between two transactions.
func (w *writer) changes(name string) []change {
	want := w.offers.offered[name]
	if w.removes || w.natives[name] {
		want = nil
	}
	var out []change
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if is, ok := w.there[name][id]; w.refused[id].why == "" && (!ok || !is.equal(want[id])) {
			out = append(out, w.setting(want[id], ok && is.sameService(want[id])))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.there[name])) {
		if _, stays := want[id]; !stays && w.refused[id].why == "" {
			out = append(out, w.removal(w.there[name][id]))
		}
	}
	return out
}

// removal removes an entry, and with it its check.
func (w *writer) removal(e exported) change {
	return change{name: e.name, id: e.id, size: len(e.id) + len(e.name), ops: api.TxnOps{{Service: &api.ServiceTxnOp{
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
	c := change{name: e.name, id: e.id, done: func() { put(w.there, e) }, size: 512}
	if !healthAlone {
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

// sizeOf is how large an entry is when it is sent, in bytes.
func sizeOf(s api.AgentService) int {
	b, err := json.Marshal(s)
	if err != nil {
		return maxBytes // alone: Consul's client says why
	}
	return len(b)
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
		if tooLarge(err) {
			return w.sendLess(ctx, batch, err)
		}
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
			if r == nil || r.OpIndex <= 0 || r.OpIndex >= len(owner) {
				return notDone(r)
			}
			w.refuse(batch[owner[r.OpIndex]], consulhttp.OneLine(r.What))
		}
		batch = slices.DeleteFunc(batch, func(c change) bool { return w.refused[c.id].why != "" })
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
		return nil, errNoReason
	}
	return resp.Errors, nil
}

// notDone is why nothing of a transaction was done: an error that is about no change of it.
func notDone(r *api.TxnError) error {
	if r == nil {
		return errNoReason
	}
	return fmt.Errorf("%w (%s)", errLeaseLost, consulhttp.OneLine(r.What))
}

// sendLess writes halves of a batch that is more than Consul takes at once. A change that is too large by itself is refused.
func (w *writer) sendLess(ctx context.Context, batch []change, why error) error {
	if len(batch) == 1 {
		w.refuse(batch[0], consulhttp.OneLine(why.Error()))
		return nil
	}
	half := len(batch) / 2
	if err := w.send(ctx, slices.Clone(batch[:half])); err != nil {
		return err
	}
	return w.send(ctx, batch[half:])
}

// tooLarge says that Consul takes less at once (limits.txn_max_req_len). Its client leaves the status of a transaction to the
// text. Source: Consul, agent/txn_endpoint.go (convertOps).
func tooLarge(err error) bool {
	return err != nil && strings.Contains(err.Error(), "too large, max size")
}

// refuse leaves an entry as it stands until the next look.
func (w *writer) refuse(c change, why string) {
	if w.refused == nil {
		w.refused = map[string]refusal{}
	}
	if w.refused[c.id].why == "" { // what is said first is the cause
		w.refused[c.id] = refusal{c.name, why}
	}
}
