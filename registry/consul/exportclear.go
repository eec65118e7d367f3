package consul

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

// clear removes everything of the owner's, unless another replica waits to take over.
func (w *writer) clear(ctx context.Context) error {
	for failures := 0; ; {
		err := w.cleared(ctx)
		if err == nil {
			return errWithdrawn
		}
		if ctx.Err() != nil || errors.Is(err, errLeaseLost) {
			return err
		}
		failures++
		w.e.trouble(err, failures)
		if err := sleep(ctx, backoff(failures)); err != nil {
			return err
		}
	}
}

func (w *writer) cleared(ctx context.Context) error {
	if !w.e.former {
		if others, err := w.e.others(ctx, w.id); err != nil || others {
			return err
		}
	}
	w.removes, w.refused = true, nil
	_, foreign, err := w.read(ctx)
	if err != nil {
		return err
	}
	if err := w.write(ctx); err != nil {
		return err
	}
	if len(w.refused) > 0 {
		return nil // the end of the lease is theirs
	}
	last := &api.TxnOp{Node: &api.NodeTxnOp{Verb: api.NodeDelete, Node: api.Node{Node: w.e.node, Address: nodeAddress, Partition: w.e.cfg.Options.Partition}}}
	if foreign { // what is somebody else's stays, and the node with it
		last = &api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckDelete, Check: api.HealthCheck{Node: w.e.node, CheckID: leaseCheck, Partition: w.e.cfg.Options.Partition}}}
	}
	x := w.e.cfg.Options.Export
	ops := api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVCheckSession, Key: x.lease(w.e.number), Session: w.id, Partition: w.e.cfg.Options.Partition}},
		{KV: &api.KVTxnOp{Verb: api.KVDelete, Key: x.lease(w.e.number), Partition: w.e.cfg.Options.Partition}},
		last,
	}
	refused, err := w.transact(ctx, ops)
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("the node %q is not given up by Consul: %s", w.e.node, consulhttp.OneLine(refused[0].What))
	}
	if err == nil {
		w.e.cfg.Log.Info("what the mesh had registered on a node is removed from Consul", "owner", x.Owner, "node", w.e.node)
	}
	return err
}
