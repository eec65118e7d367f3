package consul

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

const (
	// catalogWait and instancesWait limit how long Consul holds a query when nothing changes. That
	// of catalogs is short, so that a server that hangs is detected.
	catalogWait, instancesWait = 30 * time.Second, 10 * time.Minute
	// queryTimeout and catalogTimeout limit the response time of a query, in addition to the wait.
	queryTimeout, catalogTimeout = 30 * time.Second, 10 * time.Second
	// maxConnections is less than the 200 that Consul allows one client address by default.
	maxConnections = 150
)

// client sends queries to one Consul. Safe for concurrent use.
type client struct {
	o         *Options
	api       *api.Client
	transport *consulhttp.Transport
	// shared reports whether requests are multiplexed (HTTP/2). False before the first response.
	shared func() bool
	needs  string // the permissions of the token
}

func newClient(o *Options, needs string) (*client, error) {
	t, err := consulhttp.New(consulhttp.Config{
		Address: o.Address, TokenFile: o.TokenFile, TLS: o.TLS, Connections: maxConnections,
		Enterprise: len(o.Namespaces) > 0 || o.Partition != "",
	})
	if err != nil {
		return nil, err
	}
	// api.NewClient reads CONSUL_* variables; Token "-" and the transport override them.
	c, err := api.NewClient(&api.Config{Address: t.Address(), Token: "-", HttpClient: t.Client()})
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	return &client{o: o, api: c, transport: t, shared: t.Shared, needs: needs}, nil
}

// query describes a query.
type query struct {
	place
	// index, if not zero, makes the query block until the data is newer or wait ends.
	index  uint64
	filter string
}

// answer describes an answer.
type answer struct {
	// index is the index for the next query.
	index uint64
	// filtered is whether the ACL token hides some of the data.
	filtered bool
	// size is the number of instances or names.
	size int
}

// send calls f with the options of q and validates the response metadata. A blocking query takes up
// to wait; timeout is added to it.
func (c *client) send(
	ctx context.Context, q query, wait, timeout time.Duration, f func(*api.QueryOptions) (*api.QueryMeta, error),
) (answer, error) {
	if q.index != 0 {
		timeout += wait + wait/16 // Consul adds up to a sixteenth at random
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o := &api.QueryOptions{
		Datacenter: q.Datacenter, Namespace: q.Namespace, Partition: q.Partition, Filter: q.filter,
		AllowStale: c.o.Reads == readsStale,
	}
	if q.index != 0 {
		o.WaitIndex, o.WaitTime = q.index, wait
	}
	meta, err := f(o.WithContext(ctx))
	switch {
	case err != nil:
		return answer{}, err
	case meta.LastIndex == 0:
		return answer{}, consulhttp.ErrNoIndex
	}
	return answer{index: meta.LastIndex, filtered: meta.ResultsFilteredByACLs}, nil
}

// services returns the names of all services.
func (c *client) services(ctx context.Context, q query) (names []string, a answer, err error) {
	a, err = c.send(ctx, q, catalogWait, catalogTimeout, func(o *api.QueryOptions) (*api.QueryMeta, error) {
		all, meta, err := c.api.Catalog().Services(o)
		for name := range all {
			names = append(names, name)
		}
		return meta, err
	})
	a.size = len(names)
	return names, a, err
}

// instances returns the instances of one service, with their checks.
func (c *client) instances(ctx context.Context, q query, service string) ([]*api.ServiceEntry, answer, error) {
	var list []*api.ServiceEntry
	a, err := c.send(ctx, q, instancesWait, queryTimeout, func(o *api.QueryOptions) (*api.QueryMeta, error) {
		var err error
		var meta *api.QueryMeta
		list, meta, err = c.api.Health().Service(service, "", false, o)
		return meta, err
	})
	a.size = len(list)
	if err == nil && !complete(list) {
		return nil, answer{}, errNotConsul
	}
	return list, a, err
}

// complete reports whether no required field is missing.
func complete(list []*api.ServiceEntry) bool {
	return !slices.ContainsFunc(list, func(e *api.ServiceEntry) bool {
		return e == nil || e.Node == nil || e.Service == nil || slices.Contains(e.Checks, nil)
	})
}

// datacenters returns the names of all datacenters that the agent knows, its own among them.
func (c *client) datacenters(ctx context.Context) (names []string, err error) {
	_, err = c.send(ctx, query{}, 0, catalogTimeout, func(o *api.QueryOptions) (*api.QueryMeta, error) {
		// Catalog().Datacenters takes no context, so it has no timeout. The list has no index.
		_, err := c.api.Raw().Query("/v1/catalog/datacenters", &names, (&api.QueryOptions{}).WithContext(o.Context()))
		return &api.QueryMeta{LastIndex: 1}, err
	})
	return names, err
}
