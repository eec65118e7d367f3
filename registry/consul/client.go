package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

const (
	// longWait is how long Consul holds a query of which nothing changes, and shortWait where a connection is worth more. Consul
	// adds up to a sixteenth.
	longWait, shortWait = 10 * time.Minute, 30 * time.Second
	// askTimeout is how long a query may take besides what it waits for.
	askTimeout = 30 * time.Second
)

// client asks one Consul. Safe for concurrent use.
type client struct {
	o         *Options
	api       *api.Client
	transport *consulhttp.Transport
}

func newClient(o *Options) (*client, error) {
	t, err := consulhttp.New(consulhttp.Config{Address: o.Address, TokenFile: o.TokenFile, TLS: o.TLS, Connections: o.Connections,
		Enterprise: len(o.Namespaces) > 0 || o.Partition != ""})
	if err != nil {
		return nil, err
	}
	// The library takes what is missing here from the environment; the transport takes that out again.
	c, err := api.NewClient(&api.Config{Address: t.Address(), Token: "-", HttpClient: t.Client()})
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	return &client{o: o, api: c, transport: t}, nil
}

// query is one question: about what is at a place, when there is more than index.
type query struct {
	place
	// index is what to wait for more than, for as long as wait; zero: the answer comes at once.
	index  uint64
	wait   time.Duration
	filter string
	// fresh asks the leader, whatever the settings say of others.
	fresh bool
	// within is how long it may take besides what it waits for; zero: askTimeout.
	within time.Duration
}

// answer is what came with an answer.
type answer struct {
	index uint64
	// filtered says that the token may not read all of it.
	filtered bool
	// lost says that the server that answered knows of no leader, so that it may be old.
	lost bool
	// fresh says that it is the leader's.
	fresh bool
	// lag is how old it may be.
	lag time.Duration
	// asked is when it was asked for, at when it began to arrive, and cost how long it took to read.
	asked, at time.Time
	cost      time.Duration
}

// ask lets f ask with the options of a query, and reads what every answer has.
func (c *client) ask(ctx context.Context, q query, f func(*api.QueryOptions) (*api.QueryMeta, error)) (answer, error) {
	within := cmp.Or(q.within, askTimeout)
	timeout := within
	if q.index != 0 {
		timeout += q.wait + q.wait/16
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	asked := time.Now()
	began := asked
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { began = time.Now() }})
	o := &api.QueryOptions{
		Datacenter: q.Datacenter, Namespace: q.Namespace, Partition: q.Partition, Filter: q.filter, WaitIndex: q.index,
		AllowStale: c.o.Reads == readsStale && !q.fresh, RequireConsistent: c.o.Reads == readsConsistent, UseCache: c.o.Reads == readsCached && !q.fresh,
	}
	if q.index != 0 {
		o.WaitTime = q.wait
	}
	meta, err := f(o.WithContext(ctx))
	if errors.Is(err, context.DeadlineExceeded) {
		err = &silence{within, err}
	}
	if err == nil && meta.LastIndex == 0 {
		err = consulhttp.ErrNoIndex
	}
	if err != nil {
		return answer{}, err
	}
	return answer{
		fresh: !o.AllowStale && !o.UseCache,
		index: meta.LastIndex, filtered: meta.ResultsFilteredByACLs, lag: max(0, meta.LastContact),
		lost: o.AllowStale && !meta.KnownLeader, asked: asked, at: began, cost: time.Since(began),
	}, nil
}

// services asks for the names of all services.
func (c *client) services(ctx context.Context, q query) (names []string, a answer, err error) {
	a, err = c.ask(ctx, q, func(o *api.QueryOptions) (*api.QueryMeta, error) {
		o.UseCache = false // the cache of an agent lacks new names for minutes
		all, meta, err := c.api.Catalog().Services(o)
		for name := range all {
			names = append(names, name)
		}
		return meta, err
	})
	return names, a, err
}

// instances asks for those of one service.
func (c *client) instances(ctx context.Context, q query, service string) (list []*api.ServiceEntry, a answer, err error) {
	a, err = c.ask(ctx, q, func(o *api.QueryOptions) (*api.QueryMeta, error) {
		var meta *api.QueryMeta
		list, meta, err = c.api.Health().Service(service, "", false, o)
		return meta, err
	})
	return list, a, err
}

// checks asks for those in a state.
func (c *client) checks(ctx context.Context, q query, state string) (list api.HealthChecks, a answer, err error) {
	a, err = c.ask(ctx, q, func(o *api.QueryOptions) (*api.QueryMeta, error) {
		var meta *api.QueryMeta
		list, meta, err = c.api.Health().State(state, o)
		return meta, err
	})
	return list, a, err
}

// sentinel is the name of a node that there is not.
const sentinel = "ashore-there-is-no-such-node"

// restoration asks for the services of a node that there is not: nothing but the end of the state that it is asked of ends its
// wait, and the end of a node. (A wait for its checks ends with every change of any check.)
// Source: Consul, agent/consul/state/catalog.go (nodeServices, NodeChecks).
func (c *client) restoration(ctx context.Context, q query) (answer, error) {
	q.fresh, q.within = true, beatTimeout
	return c.ask(ctx, q, func(o *api.QueryOptions) (*api.QueryMeta, error) {
		_, meta, err := c.api.Catalog().Node(sentinel, o)
		return meta, err
	})
}

// datacenters asks for the names of all that the agent knows, its own among them.
func (c *client) datacenters(ctx context.Context) ([]string, error) {
	var out []string
	_, err := c.ask(ctx, query{within: beatTimeout}, func(o *api.QueryOptions) (*api.QueryMeta, error) {
		// Catalog().Datacenters takes no context, and would wait for ever.
		_, err := c.api.Raw().Query("/v1/catalog/datacenters", &out, (&api.QueryOptions{}).WithContext(o.Context()))
		return &api.QueryMeta{LastIndex: 1}, err // datacenters have none
	})
	return out, err
}

// explain says what an error of Consul means, and what to do.
func (c *client) explain(err error) string {
	var status api.StatusError
	if !errors.As(err, &status) {
		if s := (*silence)(nil); errors.As(err, &s) {
			return fmt.Sprintf("Consul at %s does not answer within %s: look whether it and its servers are well", c.o.Address, s.within)
		}
		return fmt.Sprintf("Consul at %s cannot be asked: %v%s", c.o.Address, consulhttp.Bare(err), c.o.TLS.Remedy(err))
	}
	said := consulhttp.OneLine(status.Body)
	switch status.Code {
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Sprintf("Consul refuses the token (%d, %s): write a token with node:read and service:read into tokenFile (%s)", status.Code, said, cmp.Or(c.o.TokenFile, "none is set"))
	case http.StatusTooManyRequests:
		return fmt.Sprintf("Consul refuses further requests from this machine (429, %s): it allows a client limits.http_max_conns_per_client connections, 200 by default, "+
			"which all programs of one address share; raise that, lower connections here (%d), or use an https address, where few are needed", said, c.o.Connections)
	case http.StatusNotFound:
		return fmt.Sprintf("Consul at %s does not know what it is asked for (404, %s): is it the address of Consul's HTTP interface?", c.o.Address, said)
	}
	if consulhttp.WantsTLS(status.Code, said) {
		return fmt.Sprintf("Consul at %s speaks HTTPS there: write https:// in address", c.o.Address)
	}
	if c.misfiltered(err) {
		return fmt.Sprintf("Consul at %s does not understand the filter %q (%d, %s): mend filter", c.o.Address, c.o.Filter, status.Code, said)
	}
	return fmt.Sprintf("Consul at %s answers %d (%s): %s", c.o.Address, status.Code, said, remedy(status.Code, said))
}

// misfiltered says that an error is about the option filter, which every question about a service has.
func (c *client) misfiltered(err error) bool {
	var status api.StatusError
	return c.o.Filter != "" && errors.As(err, &status) && strings.Contains(status.Body, notUnderstood)
}

// Words of Consul's. Source: Consul, agent/http_ce.go (parseEntMetaPartition and the others), agent/consul/rpc.go (ErrNoDCPath),
// agent/structs (filters, by github.com/hashicorp/go-bexpr).
const (
	notUnderstood = "boolean expression evaluator"
	ofEnterprise  = "Consul Enterprise feature"
	noPath        = "No path to datacenter"
)

// remedy is what to look at when Consul answers so.
func remedy(code int, said string) string {
	switch {
	case code < 400:
		return "something sends on to elsewhere; is it the address of Consul's HTTP interface?"
	case strings.Contains(said, ofEnterprise):
		return "this Consul is not Enterprise; take partition and namespaces out of the settings"
	case strings.Contains(said, noPath):
		return "look whether the datacenter is called so (datacenters), and its servers are up and joined with those here"
	case code < 500:
		return "it does not take the question; look at what the settings of the source have in it"
	}
	return "look whether its servers have a leader"
}

// busy says that Consul refused for having too many connections or requests.
func busy(err error) bool {
	var status api.StatusError
	return errors.As(err, &status) && status.Code == http.StatusTooManyRequests
}
