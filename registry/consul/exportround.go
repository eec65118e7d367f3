package consul

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/task"
)

const (
	// sessionCheck is the check of the node. Consul's servers turn it critical when the session
	// ends, and all entries with it.
	sessionCheck = "ashore-session"
	// sessionCheckType is the type of such checks, since 1.7.
	// Source: Consul, agent/consul/state (updateSessionCheck).
	sessionCheckType = "session"
	// nodeAddress is a documentation address: nothing listens on the node itself. Source: RFC 5737.
	nodeAddress = "192.0.2.1"
	// readGap is how often the entries in Consul are read and compared.
	readGap = 30 * time.Second
	// maxChanges limits a transaction. Each change takes up to two operations, and Consul accepts
	// 64 of them before 1.10. 31 entries fit in its 512 KiB limit. Source: Consul,
	// agent/txn_endpoint.go (maxTxnOps), txn_max_req_len.
	maxChanges = 31
)

// reconcile writes the differences to the wanted entries, or removes the node. It stops early if
// the session must be renewed; the next round continues.
func (e *Exporter) reconcile(ctx context.Context, withdrawn bool) error {
	ctx, cancel := context.WithTimeout(ctx, e.renewGap()+queryTimeout)
	defer cancel()
	if err := e.renewSession(ctx); err != nil {
		return err
	}
	if withdrawn || time.Since(e.lastRead) >= readGap {
		if err := e.read(ctx); err != nil {
			return err
		}
	}
	if withdrawn {
		return e.removeNode(ctx, e.node)
	}
	if e.session == "" {
		if err := e.createSession(ctx); err != nil {
			return err
		}
	}
	return e.write(ctx)
}

// read loads this replica's entries and the service names of other owners, which are never exported
// to.
func (e *Exporter) read(ctx context.Context) error {
	owner, catalog := e.cfg.Options.Export.Owner, e.client.api.Catalog()
	list, _, err := catalog.NodeServiceList(e.node, e.readOptions(ctx))
	if err != nil {
		return err
	}
	checks, _, err := e.client.api.Health().Node(e.node, e.readOptions(ctx))
	if err != nil {
		return err
	}
	q := e.readOptions(ctx)
	q.Filter = quote(keyOwner) + " not in ServiceMeta"
	names, _, err := catalog.Services(q)
	if err != nil {
		return err
	}
	e.registered, e.taken, e.refused = map[string]*exportEntry{}, map[string]bool{}, map[string]string{}
	for name := range names {
		e.taken[strings.ToLower(name)] = true // Consul's DNS ignores case
	}
	if list != nil && list.Node != nil {
		if list.Node.Meta[keyOwner] != owner {
			return answerError(fmt.Sprintf("the node %q in Consul is not owned by this mesh (its metadata has no %s: %s): "+
				"choose another export.owner, or remove that node", e.node, keyOwner, owner))
		}
		for _, s := range list.Services {
			if s != nil && s.Meta[keyOwner] == owner {
				e.registered[s.ID] = &exportEntry{service: *s}
			}
		}
	}
	for _, c := range checks {
		if c != nil && e.registered[c.ServiceID] != nil {
			e.registered[c.ServiceID].check = *c
		}
	}
	e.lastRead = time.Now()
	return e.removeStopped(ctx)
}

// renewSession renews the session if due. If Consul no longer has it (expired, or a restored
// snapshot), entries are read again.
func (e *Exporter) renewSession(ctx context.Context) error {
	if e.session == "" || time.Since(e.lastRenewed) < e.renewGap() {
		return nil
	}
	renewed, _, err := e.client.api.Session().Renew(e.session, e.writeOptions(ctx))
	switch {
	case err != nil:
		return err
	case renewed == nil:
		e.session, e.lastRead = "", time.Time{}
	default:
		e.lastRenewed = time.Now()
	}
	return nil
}

// createSession registers our node with a check that is bound to a new session.
func (e *Exporter) createSession(ctx context.Context) error {
	// A check is bound to a session by the session's name.
	name := fmt.Sprintf("ashore export %s %d", e.node, time.Now().UnixNano())
	partition := e.cfg.Options.Partition
	_, err := e.client.api.Catalog().Register(&api.CatalogRegistration{
		Node: e.node, Address: nodeAddress, NodeMeta: map[string]string{keyOwner: e.cfg.Options.Export.Owner},
		Checks: api.HealthChecks{{
			Node: e.node, CheckID: sessionCheck, Name: "session of the mesh's control plane", Type: sessionCheckType,
			Status: api.HealthPassing, Output: "renewed by " + e.cfg.Replica,
			Definition: api.HealthCheckDefinition{SessionName: name}, Partition: partition,
		}},
		Partition: partition,
	}, e.writeOptions(ctx))
	if err != nil {
		return err
	}
	e.session, _, err = e.client.api.Session().CreateNoChecks(&api.SessionEntry{
		Name: name, Node: e.node, TTL: e.cfg.Options.Export.Lease.String(), Behavior: api.SessionBehaviorRelease,
	}, e.writeOptions(ctx))
	if err == nil && e.session == "" {
		return errNotConsul
	}
	e.lastRenewed = time.Now()
	return err
}

// removeStopped removes the nodes of replicas whose sessions have ended. A replica that comes back
// registers again.
func (e *Exporter) removeStopped(ctx context.Context) error {
	q := e.readOptions(ctx)
	q.Filter = "CheckID == " + quote(sessionCheck)
	q.NodeMeta = map[string]string{keyOwner: e.cfg.Options.Export.Owner}
	checks, _, err := e.client.api.Health().State(api.HealthCritical, q)
	if err != nil {
		return err
	}
	for _, c := range checks {
		if c == nil || c.Node == e.node {
			continue
		}
		if err := e.removeNode(ctx, c.Node); err != nil {
			return err
		}
		e.cfg.Log.Info("removed the entries of a replica that has stopped from Consul", "node", c.Node)
	}
	return nil
}

// exportChange sets or removes one entry.
type exportChange struct {
	entry  *exportEntry
	remove bool
}

// write writes the differences between the entries in Consul and those that are wanted.
func (e *Exporter) write(ctx context.Context) error {
	for batch := range slices.Chunk(e.changes(), maxChanges) {
		if time.Since(e.lastRenewed) >= e.renewGap() {
			task.Poke(e.wake) // another round
			return nil
		}
		if err := e.send(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the differences. Additions come first, so that no service is empty in between.
// Entries rejected since the last read are skipped.
func (e *Exporter) changes() (out []exportChange) {
	e.mu.Lock()
	mesh := e.mesh
	e.mu.Unlock()
	var wanted map[string]*exportEntry
	wanted, e.conflicts = e.entries(mesh)
	for id, entry := range wanted {
		if is := e.registered[id]; is == nil || !is.equal(entry) {
			out = append(out, exportChange{entry, false})
		}
	}
	for id, entry := range e.registered {
		if wanted[id] == nil {
			out = append(out, exportChange{entry, true})
		}
	}
	return slices.DeleteFunc(out, func(c exportChange) bool { return e.refused[c.entry.service.Service] != "" })
}

// send writes one transaction. If Consul rejects it, the operations it names are marked rejected
// and the next round writes the others.
func (e *Exporter) send(ctx context.Context, batch []exportChange) error {
	var ops api.TxnOps
	names := map[int]string{} // of the service, by operation
	for _, c := range batch {
		service, check := c.entry.service, c.entry.check
		service.Partition, check.Partition, check.Node = e.cfg.Options.Partition, e.cfg.Options.Partition, e.node
		set := &api.ServiceTxnOp{Verb: api.ServiceSet, Node: e.node, Service: service}
		names[len(ops)], names[len(ops)+1] = service.Service, service.Service
		ops = append(ops, &api.TxnOp{Service: set})
		if c.remove {
			set.Verb = api.ServiceDelete // with its check
			continue
		}
		ops = append(ops, &api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: check}})
	}
	e.writes.Add(1)
	ok, resp, _, err := e.client.api.Txn().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return err
	case !ok && len(resp.Errors) == 0:
		return errNotConsul
	case !ok:
		task.Poke(e.wake) // another round
		for _, r := range resp.Errors {
			if r != nil {
				e.refused[names[r.OpIndex]] = consulhttp.OneLine(r.What)
			}
		}
		return nil
	}
	for _, c := range batch {
		if c.remove {
			delete(e.registered, c.entry.service.ID)
		} else {
			e.registered[c.entry.service.ID] = c.entry
		}
	}
	return nil
}

// removeNode removes a node with all its entries.
func (e *Exporter) removeNode(ctx context.Context, node string) error {
	d := &api.CatalogDeregistration{Node: node, Partition: e.cfg.Options.Partition}
	_, err := e.client.api.Catalog().Deregister(d, e.writeOptions(ctx))
	return err
}

// readOptions returns options for consistent reads.
func (e *Exporter) readOptions(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Partition: e.cfg.Options.Partition, RequireConsistent: true}).WithContext(ctx)
}

func (e *Exporter) writeOptions(ctx context.Context) *api.WriteOptions {
	return (&api.WriteOptions{Partition: e.cfg.Options.Partition}).WithContext(ctx)
}
