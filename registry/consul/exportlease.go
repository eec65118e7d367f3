package consul

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

const (
	// leaseCheck is the check of the node that is critical as soon as nobody holds the lease, and with it all entries: Consul's
	// servers themselves set it when the session ends that it names.
	leaseCheck = "ashore-lease"
	// leaseCheckType is the type of such checks. Source: Consul, agent/consul/state (updateSessionCheck), since 1.7.
	leaseCheckType = "session"
	// nodeAddress is that of a node which is none: entries have addresses of their own. Source: RFC 5737.
	nodeAddress = "192.0.2.1"
	// lockDelay is for how long Consul keeps a lock from others after its holder is gone. Each transaction asks for the lock, so
	// that who has lost it writes nothing: none is needed, and zero would mean Consul's 15 seconds.
	lockDelay = time.Millisecond
	// releaseTimeout bounds what is still asked for when the program ends.
	releaseTimeout = 2 * time.Second
	// maxMisses bounds how the waits grow after which is tried again what should have been possible: to some seconds.
	maxMisses = 7
	// lockWait is how long Consul holds the question whether the lease is free.
	lockWait = time.Minute
)

var (
	// errForeign is about a node of the name wanted that is not the owner's.
	errForeign = errors.New("is not this mesh's")
	// errNoSession is about an answer that is none of Consul's.
	errNoSession = errors.New("the answer has no session: is it the address of Consul's HTTP interface?")
	// errOtherStore is about a holder of the lease that is of another mesh.
	errOtherStore = errors.New("and has another store")
	// errLeaseLost is about a lease that Consul has ended.
	errLeaseLost = errors.New("the lease has ended: Consul had not heard of this replica for too long, or its state was restored")
)

// term registers from the beginning of a session until it ends. Errors: errWithdrawn, errLeaseLost, those of Consul.
func (e *shard) term(ctx context.Context) error {
	if err := e.prepare(ctx); err != nil {
		return err
	}
	name := "ashore export " + e.cfg.Options.Export.Owner + " " + rand.Text()
	id, err := e.begin(ctx, name)
	if err != nil {
		return err
	}
	during, end := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		e.renew(during, id, end)
	}()
	held, err := e.hold(during, id)
	if err == nil {
		err = e.serve(during, id, name)
	}
	if cause := context.Cause(during); cause != nil && ctx.Err() == nil {
		err = cause
	}
	end(nil)
	<-renewed
	e.release(ctx, id, held, err)
	return err
}

// prepare sees to it that there is the node, and that it is the owner's.
func (e *shard) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	there, _, err := e.client.api.Catalog().Node(e.node, e.reads(ctx))
	if err != nil {
		return err
	}
	owner := e.cfg.Options.Export.Owner
	if there != nil && there.Node != nil {
		if there.Node.Meta[keyOwner] != owner {
			return fmt.Errorf("the node %q in Consul %w (its metadata has no %s: %s): choose another export.owner, or remove that node", e.node, errForeign, keyOwner, owner)
		}
		return nil
	}
	_, err = e.client.api.Catalog().Register(&api.CatalogRegistration{
		Node: e.node, Address: nodeAddress, NodeMeta: map[string]string{keyOwner: owner}, Partition: e.cfg.Options.Partition,
	}, e.writes(ctx))
	return err
}

// begin begins a session.
func (e *shard) begin(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id, _, err := e.client.api.Session().CreateNoChecks(&api.SessionEntry{
		Name: name, Node: e.node, TTL: e.cfg.Options.Export.Lease.String(), LockDelay: lockDelay, Behavior: api.SessionBehaviorRelease,
	}, e.writes(ctx))
	if err == nil && id == "" {
		err = errNoSession
	}
	return id, err
}

// renew keeps the session until ctx ends, or ends it with errLeaseLost when there is no such session any more. While Consul
// cannot be asked it goes on: nobody knows whether the session is there still.
func (e *shard) renew(ctx context.Context, id string, end context.CancelCauseFunc) {
	gap := e.cfg.Options.Export.Lease / 3
	for sleep(ctx, gap) == nil {
		one, cancel := context.WithTimeout(ctx, gap)
		session, _, err := e.client.api.Session().Renew(id, e.writes(one))
		cancel()
		if err == nil && session == nil {
			end(errLeaseLost)
			return
		}
	}
}

// hold waits until the lease is this replica's; false with an error: it never was.
func (e *shard) hold(ctx context.Context, id string) (bool, error) {
	lease := &api.KVPair{Key: e.cfg.Options.Export.lease(e.number), Value: e.holder(), Session: id}
	var index uint64
	for failures, misses := 0, 0; ; {
		held, err := e.acquire(ctx, lease)
		if held {
			return true, nil
		}
		if err == nil {
			index, err = e.free(ctx, lease.Key, index)
		}
		switch {
		case errors.Is(err, errWithdrawn), ctx.Err() != nil:
			return false, cmp.Or(err, ctx.Err())
		case err != nil:
			failures++
			index = 0
			e.trouble(err, failures)
			if err := sleep(ctx, backoff(failures)); err != nil {
				return false, err
			}
		case index == 0: // it is free, or was a moment ago: the delay of the lock may not be over
			if err := sleep(ctx, lateGap<<min(misses, maxMisses)); err != nil {
				return false, err
			}
			misses++
		default:
			failures, misses = 0, 0
			e.trouble(e.waits(), toldAfter)
		}
	}
}

func (e *shard) acquire(ctx context.Context, lease *api.KVPair) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	held, _, err := e.client.api.KV().Acquire(lease, e.writes(ctx))
	return held, err
}

// free waits until nobody holds the lease, which is zero, or something about it has changed since index. Errors: errWithdrawn, Consul's.
func (e *shard) free(ctx context.Context, key string, index uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout+lockWait+lockWait/16)
	defer cancel()
	ctx, stop := e.unlessWithdrawn(ctx)
	q := e.reads(ctx)
	q.WaitIndex, q.WaitTime = index, lockWait
	lease, meta, err := e.client.api.KV().Get(key, q)
	stop()
	if e.isWithdrawn() {
		return 0, errWithdrawn
	}
	switch {
	case err != nil:
		return 0, err
	case lease == nil || lease.Session == "" || meta.LastIndex < index:
		return 0, nil
	}
	e.waitsFor = string(lease.Value)
	return meta.LastIndex, nil
}

// ofStore parts the name of a replica from that of its store in the value of a lease.
const ofStore = " of the store "

// holder is who holds a lease, as it says of itself there.
func (e *shard) holder() []byte { return []byte(e.cfg.Replica + ofStore + e.cfg.Store) }

// waits tells who registers while this one waits. An error says that it is none that shares a store with it.
func (e *shard) waits() error {
	if e.waitsFor == e.told {
		return e.stranger()
	}
	e.told = e.waitsFor
	replica, _, _ := strings.Cut(e.waitsFor, ofStore)
	e.cfg.Log.Info("another replica registers the mesh's services in Consul: this one waits for the lease", "owner", e.cfg.Options.Export.Owner, "node", e.node, "holder", replica)
	return e.stranger()
}

func (e *shard) stranger() error {
	replica, store, known := strings.Cut(e.waitsFor, ofStore)
	if !known || store == e.cfg.Store {
		return nil
	}
	return fmt.Errorf("%s holds the lease of export.owner %s, %w (%s, here %s): when this one takes over it replaces what is registered; replicas of one mesh share a store, and two meshes have owners of their own",
		replica, e.cfg.Options.Export.Owner, errOtherStore, store, e.cfg.Store)
}

// unlessWithdrawn is a context that ends with Withdraw too, until stop is called.
func (e *shard) unlessWithdrawn(ctx context.Context) (out context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-e.withdraw:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-done }
}

func (e *shard) isWithdrawn() bool {
	select {
	case <-e.withdraw:
		return true
	default:
		return false
	}
}

// holds says, as an error, that the lease is not this replica's any more. Who was stopped for a while believes that it is.
func (e *shard) holds(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	lease, _, err := e.client.api.KV().Get(e.cfg.Options.Export.lease(e.number), e.reads(ctx))
	if err == nil && (lease == nil || lease.Session != id) {
		err = errLeaseLost
	}
	return err
}

// bind has Consul turn all entries critical when the session ends.
func (e *shard) bind(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := e.client.api.Catalog().Register(&api.CatalogRegistration{
		Node: e.node, Address: nodeAddress, SkipNodeUpdate: true, Partition: e.cfg.Options.Partition,
		Checks: api.HealthChecks{{
			Node: e.node, CheckID: leaseCheck, Name: "lease of the mesh's control plane", Type: leaseCheckType, Status: api.HealthPassing,
			Output: "held by " + e.cfg.Replica, Definition: api.HealthCheckDefinition{SessionName: name}, Partition: e.cfg.Options.Partition,
		}},
	}, e.writes(ctx))
	return err
}

// retire ends the session of who had the lease before: nothing hangs on it any more, and it would count as one who waits.
func (e *shard) retire(ctx context.Context, name string) {
	list, _, err := e.client.api.Session().Node(e.node, e.reads(ctx))
	for _, s := range list {
		if s != nil && s.Name == name && err == nil {
			_, err = e.client.api.Session().Destroy(s.ID, e.writes(ctx))
		}
	}
	if err != nil {
		e.cfg.Log.Debug("the session of who registered before was not ended: it ends by itself", "error", consulhttp.Bare(err))
	}
}

// release gives the lease back, so that another replica need not wait for its end. The session stays until it ends by
// itself: what stands in Consul counts for as long as that, or until another one has the lease.
func (e *shard) release(ctx context.Context, id string, held bool, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	var err error
	switch {
	case errors.Is(why, errLeaseLost):
		return
	case held:
		_, _, err = e.client.api.KV().Release(&api.KVPair{Key: e.cfg.Options.Export.lease(e.number), Value: e.holder(), Session: id}, e.writes(ctx))
	default: // nothing hangs on it
		_, err = e.client.api.Session().Destroy(id, e.writes(ctx))
	}
	if err != nil {
		e.cfg.Log.Debug("the lease was not given back: it ends by itself", "error", consulhttp.Bare(err))
	}
}

// others says whether other replicas wait for the lease.
func (e *shard) others(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	list, _, err := e.client.api.Session().Node(e.node, e.reads(ctx))
	for _, s := range list {
		if s != nil && s.ID != id {
			return true, err
		}
	}
	return false, err
}

// reads and writes are the options of what is asked and written. Who writes reads what the leader has.
func (e *shard) reads(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Partition: e.cfg.Options.Partition, RequireConsistent: true}).WithContext(ctx)
}

func (e *shard) writes(ctx context.Context) *api.WriteOptions {
	return (&api.WriteOptions{Partition: e.cfg.Options.Partition}).WithContext(ctx)
}

// denied says that Consul refused for want of permission.
func denied(err error) bool {
	var status api.StatusError
	if errors.As(err, &status) {
		return status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized
	}
	return err != nil && (strings.Contains(err.Error(), "Permission denied") || strings.Contains(err.Error(), "ACL not found"))
}
