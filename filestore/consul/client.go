package consul

import (
	"bytes"
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
	// connections is how many connections to Consul there are at most: one waits for changes, few others are short.
	connections = 16
	// readTime is how long reading a key may take, and writeTime how long writing one.
	readTime, writeTime = 5 * time.Second, 5 * time.Second
	// maxOperations is how many operations a transaction may have. Consul allows 128, and 64 before 1.14.
	maxOperations = 60
	// maxKept bounds how much of a refusal of Consul's is read, in bytes.
	maxKept = 4 << 10
)

// client asks Consul for keys below a prefix. Safe for concurrent use.
type client struct {
	o         *Options
	kv        *api.KV
	transport *consulhttp.Transport
}

func newClient(o *Options) (*client, error) {
	t, err := consulhttp.New(consulhttp.Config{Address: o.Address, TokenFile: o.TokenFile, TLS: o.TLS, Connections: connections, Enterprise: o.Namespace != "" || o.Partition != ""})
	if err != nil {
		return nil, err
	}
	h := t.Client()
	h.Transport = refusals{t}
	// The library takes what is missing here from the environment; the transport takes that out again.
	c, err := api.NewClient(&api.Config{Address: t.Address(), Token: "-", HttpClient: h})
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	return &client{o: o, kv: c.KV(), transport: t}, nil
}

// refusals makes errors of what Consul refuses: the library tells the number of some answers only, and not of transactions.
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
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxKept))
	return nil, errors.Join(api.StatusError{Code: resp.StatusCode, Body: string(said)}, err, resp.Body.Close())
}

func (c *client) key(name string) string { return c.o.Prefix + "/" + name }

func (c *client) query() *api.QueryOptions {
	return &api.QueryOptions{Datacenter: c.o.Datacenter, Namespace: c.o.Namespace, Partition: c.o.Partition}
}

// headRead is what stood at the key head at an index.
type headRead struct {
	raw []byte // nil: there is no such key
	// modified is the index at which the key was written last, and index the one to wait for more than.
	modified, index uint64
}

// head reads the key head. With an index it waits until that is passed, for as long as wait.
func (c *client) head(ctx context.Context, index uint64, wait time.Duration) (headRead, error) {
	q := c.query()
	if index > 0 {
		q.WaitIndex, q.WaitTime = index, wait
	} else {
		q.RequireConsistent = true
		wait = 0
	}
	ctx, cancel := context.WithTimeout(ctx, readTime+wait+wait/16)
	defer cancel()
	pair, meta, err := c.kv.Get(c.key(keyHead), q.WithContext(ctx))
	switch {
	case err != nil:
		return headRead{}, err
	case meta.LastIndex == 0:
		return headRead{}, errNoIndex
	case pair == nil:
		return headRead{index: meta.LastIndex}, nil
	}
	return headRead{raw: append([]byte{}, pair.Value...), modified: pair.ModifyIndex, index: meta.LastIndex}, nil
}

// errNoIndex is about answers that are none of Consul's, which has no index of zero.
// Source: Consul, agent/http.go (setIndex).
var errNoIndex = errors.New("the answer has no X-Consul-Index: is it the address of Consul's HTTP interface, and does nobody between take out headers?")

// stands says whether there is a key, by what Consul holds now.
func (c *client) stands(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	q := c.query()
	q.RequireConsistent = true
	pair, _, err := c.kv.Get(c.key(name), q.WithContext(ctx))
	return pair != nil, err
}

// read reads keys; those that there are not are not in the result.
func (c *client) read(ctx context.Context, names []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		pair, _, err := c.kv.Get(c.key(name), c.query().WithContext(ctx))
		cancel()
		if err != nil {
			return nil, err
		}
		if pair != nil {
			out[name] = pair.Value
		}
	}
	return out, nil
}

// readMany reads keys by few requests.
func (c *client) readMany(ctx context.Context, names []string) (map[string][]byte, error) {
	if len(names) == 1 {
		return c.read(ctx, names)
	}
	ops := make(api.KVTxnOps, len(names))
	for i, name := range names {
		ops[i] = c.op(api.KVGetOrEmpty, name, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	ok, resp, _, err := c.kv.Txn(ops, c.query().WithContext(ctx))
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, refusedOperations(resp)
	}
	out := map[string][]byte{}
	for _, pair := range resp.Results {
		if name, below := strings.CutPrefix(pair.Key, c.o.Prefix+"/"); below && pair.ModifyIndex > 0 {
			out[name] = pair.Value
		}
	}
	return out, nil
}

// op is an operation of a transaction.
func (c *client) op(verb api.KVOp, name string, value []byte) *api.KVTxnOp {
	return &api.KVTxnOp{Verb: verb, Key: c.key(name), Value: value, Namespace: c.o.Namespace, Partition: c.o.Partition}
}

// put writes a key on which nobody else has an eye.
func (c *client) put(ctx context.Context, name string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	w := &api.WriteOptions{Datacenter: c.o.Datacenter, Namespace: c.o.Namespace, Partition: c.o.Partition}
	_, err := c.kv.Put(&api.KVPair{Key: c.key(name), Value: value}, w.WithContext(ctx))
	return err
}

// keys lists those below a name.
func (c *client) keys(ctx context.Context, below string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	all, _, err := c.kv.Keys(c.key(below), "", c.query().WithContext(ctx))
	for i, k := range all {
		all[i] = strings.TrimPrefix(k, c.o.Prefix+"/")
	}
	return all, err
}

// remove deletes keys, each if the guards hold. Errors: errConflict, when one does not.
func (c *client) remove(ctx context.Context, names []string, guards ...*api.KVTxnOp) error {
	for some := range slices.Chunk(names, maxOperations-len(guards)) {
		ops := slices.Clone(guards)
		for _, name := range some {
			ops = append(ops, c.op(api.KVDelete, name, nil))
		}
		if _, _, err := c.transaction(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}

// errConflict says that Consul did not do a transaction, as something is not as it has to be.
var errConflict = errors.New("another replica was faster")

// transaction does operations, all or none. sent says that Consul may have received them: with an error other than errConflict
// and refusals it is then not known whether they were done. modified is the index that they were done at.
func (c *client) transaction(ctx context.Context, ops api.KVTxnOps) (modified uint64, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	var out atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { out.Store(true) }})
	ok, resp, _, err := c.kv.Txn(ops, c.query().WithContext(ctx))
	switch {
	case err != nil:
		return 0, out.Load() && !refused(err), err
	case !ok && slices.ContainsFunc(resp.Errors, func(e *api.TxnError) bool { return strings.Contains(e.What, "Permission denied") }):
		return 0, false, api.StatusError{Code: http.StatusForbidden, Body: refusedOperations(resp).Error()} // elsewhere Consul says so itself
	case !ok:
		return 0, false, fmt.Errorf("%w (%w)", errConflict, refusedOperations(resp))
	}
	for _, r := range resp.Results {
		if r.Key == c.key(keyHead) {
			modified = r.ModifyIndex
		}
	}
	return modified, true, nil
}

// refusedOperations is why a transaction was not done.
func refusedOperations(resp *api.KVTxnResponse) error {
	var all bytes.Buffer
	for _, e := range resp.Errors {
		fmt.Fprintf(&all, "%d: %s; ", e.OpIndex, e.What)
	}
	return errors.New(consulhttp.OneLine(strings.TrimSuffix(all.String(), "; ")))
}

// refused says that Consul has surely not done what it was asked for: it said so before it passed it on to its log.
// Source: Consul, agent/structs/errors.go, agent/txn_endpoint.go.
func refused(err error) bool {
	var status api.StatusError
	if !errors.As(err, &status) {
		return false
	}
	return status.Code < http.StatusInternalServerError || slices.ContainsFunc([]string{"No cluster leader", "No known Consul servers", "Rate limit reached"},
		func(said string) bool { return strings.Contains(status.Body, said) })
}

// declined says that Consul answers and does not do what it was asked for, as for a token that may not have it done.
func declined(err error) bool {
	var status api.StatusError
	return errors.As(err, &status) && status.Code < http.StatusInternalServerError
}

// explain says what an error of Consul means, and what to do.
func (c *client) explain(err error) error {
	var status api.StatusError
	if !errors.As(err, &status) {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the Consul at %s (setting store.address) does not answer in time: look whether it and its servers are well", c.o.Address)
		}
		return fmt.Errorf("the Consul at %s (setting store.address) cannot be asked: %s%s", c.o.Address, consulhttp.Bare(err), c.o.TLS.Remedy(err))
	}
	said := consulhttp.OneLine(status.Body)
	switch status.Code {
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Errorf("the Consul at %s refuses the token (%d, %s): it needs key_prefix %q with the policy write (setting store.tokenFile, %s)", c.o.Address, status.Code, said, c.o.Prefix+"/", orNone(c.o.TokenFile))
	case http.StatusRequestEntityTooLarge:
		return fmt.Errorf("the Consul at %s refuses a value of half a megabyte, which it takes by default (413, %s): do not lower limits.kv_max_value_size and limits.txn_max_req_len", c.o.Address, said)
	case http.StatusTooManyRequests:
		return fmt.Errorf("the Consul at %s refuses further requests from this machine for now (429, %s): see limits.http_max_conns_per_client and limits.request_limits there", c.o.Address, said)
	}
	if consulhttp.WantsTLS(status.Code, said) {
		return fmt.Errorf("the Consul at %s speaks HTTPS there: write https:// in store.address", c.o.Address)
	}
	return fmt.Errorf("the Consul at %s (setting store.address) answers %d (%s): look whether its servers have a leader", c.o.Address, status.Code, said)
}

func orNone(s string) string {
	if s == "" {
		return "none is set"
	}
	return s
}
