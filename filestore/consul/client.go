package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
)

const (
	// connections bounds the connections to Consul. Each log has one that waits for changes.
	connections = 16
	// requestTime bounds a request for a key, and listTime one for the entries of a log.
	requestTime, listTime = 5 * time.Second, time.Minute
	// waitTime is how long Consul holds a request that waits for changes.
	waitTime = 30 * time.Second
	// maxOperations bounds a transaction. Consul allows 128 operations, and 64 before 1.14.
	maxOperations = 60
	// maxRefusal bounds how much of a refusal is read, in bytes.
	maxRefusal = 4 << 10
)

// errConflict means that a transaction was not done, because a key is not as it has to be.
var errConflict = errors.New("another replica was faster")

// errForeign means that something other than Consul answered.
var errForeign = errors.New("this is not an answer of Consul: check that the address is that of its HTTP interface")

// client reads and writes keys below a prefix. Safe for concurrent use.
type client struct {
	o         *Options
	kv        *api.KV
	txn       *api.Txn
	transport *consulhttp.Transport
}

func newClient(o *Options) (*client, error) {
	t, err := consulhttp.New(consulhttp.Config{Address: o.Address, TokenFile: o.TokenFile, TLS: o.TLS,
		Connections: connections})
	if err != nil {
		return nil, err
	}
	h := t.Client()
	h.Transport = refusals{t}
	// The library takes what is missing here from the environment. The transport removes it again.
	c, err := api.NewClient(&api.Config{Address: t.Address(), Token: "-", HttpClient: h})
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	return &client{o: o, kv: c.KV(), txn: c.Txn(), transport: t}, nil
}

// refusals turns refusals into an api.StatusError. The library drops the status of transactions.
type refusals struct{ http.RoundTripper }

func (r refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNotFound, http.StatusConflict:
		return resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	return nil, errors.Join(api.StatusError{Code: resp.StatusCode, Body: string(body)}, err, resp.Body.Close())
}

func (c *client) key(name string) string { return c.o.Prefix + "/" + name }

// latest returns a query for what is stored now. By default a server that has just become the
// leader may lack the latest writes.
// https://developer.hashicorp.com/consul/api-docs/features/consistency
func (c *client) latest() *api.QueryOptions {
	q := &api.QueryOptions{}
	q.RequireConsistent = true
	return q
}

// get returns a key; nil if there is none.
func (c *client) get(ctx context.Context, name string) (*api.KVPair, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	pair, meta, err := c.kv.Get(c.key(name), c.latest().WithContext(ctx))
	switch {
	case err != nil:
		return nil, c.explain(err)
	case meta.LastIndex == 0:
		return nil, c.explain(consulhttp.ErrNoIndex)
	}
	return pair, nil
}

// list returns the keys below a folder with their values.
func (c *client) list(ctx context.Context, folder string) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	pairs, _, err := c.kv.List(c.key(folder), c.latest().WithContext(ctx))
	if err != nil {
		return nil, c.explain(err)
	}
	out := make(map[string][]byte, len(pairs))
	for _, p := range pairs {
		out[strings.TrimPrefix(p.Key, c.o.Prefix+"/")] = p.Value
	}
	return out, nil
}

// wait waits until a key changes after an index, for at most waitTime, and returns the next index
// to wait for. With index 0 it does not wait.
func (c *client) wait(ctx context.Context, name string, index uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime+waitTime+waitTime/16) // Consul adds up to a 16th
	defer cancel()
	q := &api.QueryOptions{}
	q.WaitIndex, q.WaitTime = index, waitTime
	_, meta, err := c.kv.Get(c.key(name), q.WithContext(ctx))
	if err != nil {
		return 0, c.explain(err)
	}
	return meta.LastIndex, nil
}

// put writes a key.
func (c *client) put(ctx context.Context, name string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	_, err := c.kv.Put(&api.KVPair{Key: c.key(name), Value: value}, new(api.WriteOptions).WithContext(ctx))
	return err
}

// keys returns the names of the keys below a folder.
func (c *client) keys(ctx context.Context, folder string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	all, _, err := c.kv.Keys(c.key(folder), "", new(api.QueryOptions).WithContext(ctx))
	if err != nil {
		return nil, c.explain(err)
	}
	for i, k := range all {
		all[i] = strings.TrimPrefix(k, c.o.Prefix+"/")
	}
	return all, nil
}

// remove deletes keys.
func (c *client) remove(ctx context.Context, names []string) error {
	for some := range slices.Chunk(names, maxOperations) {
		var ops api.TxnOps
		for _, name := range some {
			ops = append(ops, c.op(api.KVDelete, name, nil, 0))
		}
		if _, _, err := c.transaction(ctx, ops); err != nil {
			return c.explain(err)
		}
	}
	return nil
}

// op is an operation of a transaction. index is for api.KVCAS: the one that the key must have, 0 if
// it must not exist.
func (c *client) op(verb api.KVOp, name string, value []byte, index uint64) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: verb, Key: c.key(name), Value: value, Index: index}}
}

// transaction does all operations or none, and returns the index of the keys that it wrote. If sent
// is true, an error other than errConflict means that they may have been done.
func (c *client) transaction(ctx context.Context, ops api.TxnOps) (index uint64, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	ok, resp, _, err := c.txn.Txn(ops, new(api.QueryOptions).WithContext(ctx))
	if err != nil {
		return 0, connected.Load() && !refused(err), err
	}
	if !ok {
		return 0, false, rejection(resp)
	}
	for _, r := range resp.Results {
		if r != nil && r.KV != nil {
			index = max(index, r.KV.ModifyIndex)
		}
	}
	return index, true, nil
}

// rejection is why Consul rejected a transaction.
func rejection(resp *api.TxnResponse) error {
	for _, e := range resp.Errors {
		if e != nil && strings.Contains(e.What, "Permission denied") {
			return api.StatusError{Code: http.StatusForbidden, Body: e.What}
		}
	}
	return errConflict
}

// refused reports whether Consul refused a request before it wrote anything.
// Source: Consul, agent/structs/errors.go, agent/txn_endpoint.go.
func refused(err error) bool {
	status, ok := errors.AsType[api.StatusError](err)
	return ok && (status.Code < http.StatusInternalServerError ||
		slices.ContainsFunc([]string{"No cluster leader", "No known Consul servers", "Rate limit reached"},
			func(text string) bool { return strings.Contains(status.Body, text) }))
}

// deniesToken reports whether Consul refuses the token.
func deniesToken(err error) bool {
	status, ok := errors.AsType[api.StatusError](err)
	return ok && (status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized)
}

// consulError is an error of Consul, or on the way to it, with what to do.
type consulError string

// Error implements error.
func (e consulError) Error() string { return string(e) }

// explain says what an error means, and what to do.
func (c *client) explain(err error) error {
	at := fmt.Sprintf("the Consul at %s (setting store.address)", c.o.Address)
	status, ok := errors.AsType[api.StatusError](err)
	text := consulhttp.OneLine(status.Body)
	switch {
	case ok && consulhttp.WantsTLS(status.Code, text):
		at += " speaks HTTPS: write https:// in store.address"
	case ok:
		at += fmt.Sprintf(" answers %d (%s): %s", status.Code, text, c.remedy(status.Code))
	case errors.Is(err, context.DeadlineExceeded):
		at += " does not answer in time: check it and its servers"
	default:
		at += fmt.Sprintf(" cannot be reached: %s", c.o.TLS.Explain(err))
	}
	return consulError(at)
}

// remedy is what to do about a status.
func (c *client) remedy(status int) string {
	switch status {
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Sprintf("the token (setting store.tokenFile, %s) needs key_prefix %q with the policy write",
			cmp.Or(c.o.TokenFile, "none is set"), c.o.Prefix+"/")
	case http.StatusRequestEntityTooLarge:
		return "do not lower limits.kv_max_value_size and limits.txn_max_req_len there"
	case http.StatusTooManyRequests:
		return "see limits.http_max_conns_per_client and limits.request_limits there"
	}
	return "check whether its servers have a leader, and the log of a proxy in front of it"
}
