package consul

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"
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
)

const errSessionLost = answerError("the session has ended: Consul received no renewal from this replica in time, " +
	"or its state was restored")

// session registers the node and keeps the entries current during one session. It returns true once
// everything is withdrawn.
func (e *Exporter) session(ctx context.Context) (withdrawn bool, err error) {
	id, err := e.begin(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.renew(ctx, id) })
	group.Go(func() (err error) {
		defer cancel()
		withdrawn, err = (&exportWriter{e: e}).run(ctx)
		return err
	})
	err = group.Wait()
	return withdrawn, err
}

// begin registers the node, begins a session, and binds the check of the node to it.
func (e *Exporter) begin(ctx context.Context) (session string, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	owner, partition := e.cfg.Options.Export.Owner, e.cfg.Options.Partition
	catalog := e.client.api.Catalog()
	node, _, err := catalog.Node(e.node, e.reads(ctx))
	if err != nil {
		return "", err
	}
	if node != nil && node.Node != nil && node.Node.Meta[keyOwner] != owner {
		return "", answerError(fmt.Sprintf("the node %q in Consul belongs to somebody else (its metadata has no %s: %s): "+
			"choose another export.owner, or remove that node", e.node, keyOwner, owner))
	}
	register := &api.CatalogRegistration{
		Node: e.node, Address: nodeAddress, NodeMeta: map[string]string{keyOwner: owner}, Partition: partition,
	}
	if _, err := catalog.Register(register, e.writes(ctx)); err != nil {
		return "", err
	}
	// A check is bound to a session by the session's name.
	name := fmt.Sprintf("ashore export %s %d", e.node, time.Now().UnixNano())
	session, _, err = e.client.api.Session().CreateNoChecks(&api.SessionEntry{
		Name: name, Node: e.node, TTL: e.cfg.Options.Export.Lease.String(), Behavior: api.SessionBehaviorRelease,
	}, e.writes(ctx))
	if err != nil {
		return "", err
	}
	if session == "" {
		return "", errNotConsul
	}
	register.Checks = api.HealthChecks{{
		Node: e.node, CheckID: sessionCheck, Name: "session of the mesh's control plane", Type: sessionCheckType,
		Status: api.HealthPassing, Output: "renewed by " + e.cfg.Replica,
		Definition: api.HealthCheckDefinition{SessionName: name}, Partition: partition,
	}}
	_, err = catalog.Register(register, e.writes(ctx))
	return session, err
}

// renew keeps the session alive until ctx ends. It continues while Consul does not answer: the
// session may still be valid. It returns errSessionLost if Consul does not have the session.
func (e *Exporter) renew(ctx context.Context, id string) error {
	interval := e.cfg.Options.Export.Lease / 3
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		renewal, cancel := context.WithTimeout(ctx, interval)
		session, _, err := e.client.api.Session().Renew(id, e.writes(renewal))
		cancel()
		if err == nil && session == nil {
			return errSessionLost
		}
	}
}

// removeStopped removes the nodes of replicas whose sessions have ended. A replica that comes back
// registers again.
func (e *Exporter) removeStopped(ctx context.Context) error {
	q := e.reads(ctx)
	q.Filter = fmt.Sprintf("CheckID == %s", quote(sessionCheck))
	q.NodeMeta = map[string]string{keyOwner: e.cfg.Options.Export.Owner}
	checks, _, err := e.client.api.Health().State(api.HealthCritical, q)
	if err != nil {
		return err
	}
	for _, c := range checks {
		switch {
		case c == nil:
			return errNotConsul
		case c.Node == e.node:
			continue
		}
		if err := e.removeNode(ctx, c.Node); err != nil {
			return err
		}
		e.cfg.Log.Info("removed the entries of a replica that has stopped from Consul", "node", c.Node)
	}
	return nil
}

// removeNode removes a node with all its entries.
func (e *Exporter) removeNode(ctx context.Context, node string) error {
	d := &api.CatalogDeregistration{Node: node, Partition: e.cfg.Options.Partition}
	_, err := e.client.api.Catalog().Deregister(d, e.writes(ctx))
	return err
}

// reads returns options for reads. A writer reads what the leader has.
func (e *Exporter) reads(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Partition: e.cfg.Options.Partition, RequireConsistent: true}).WithContext(ctx)
}

func (e *Exporter) writes(ctx context.Context) *api.WriteOptions {
	return (&api.WriteOptions{Partition: e.cfg.Options.Partition}).WithContext(ctx)
}
