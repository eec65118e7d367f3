package consul

import (
	"bytes"
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
	// connections is how many connections to Consul there are at most: one waits for changes, few
	// others are short.
	connections = 16
	// readTime is how long reading a key may take, and writeTime how long writing one.
	readTime, writeTime = 5 * time.Second, 5 * time.Second
	// maxOperations is how many operations a transaction may have. Consul allows 128, and 64 before
	// 1.14.
	maxOperations = 60
	// maxKept bounds how much of a refusal of Consul's is read, in bytes.
	maxKept = 4 << 10
)

// client asks Consul for keys below a prefix. Safe for concurrent use.
type client struct {
	o         *Options
	kv        *api.KV
	txn       *api.Txn
	transport *consulhttp.Transport
}

func newClient(o *Options) (*client, error) {
	t, err := consulhttp.New(consulhttp.Config{Address: o.Address, TokenFile: o.TokenFile, TLS: o.TLS,
		Connections: connections, Enterprise: o.Namespace != "" || o.Partition != ""})
	if err != nil {
		return nil, err
	}
	h := t.Client()
	h.Transport = refusals{t}
	// The library takes what is missing here from the environment; the transport takes that out
	// again.
	c, err := api.NewClient(&api.Config{Address: t.Address(), Token: "-", HttpClient: h})
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	return &client{o: o, kv: c.KV(), txn: c.Txn(), transport: t}, nil
}

// refusals makes errors of what Consul refuses: the library tells the number of some answers only,
// and not of transactions.
type refusals struct{ http.RoundTripper }

func (r refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if noted, ok := req.Context().Value(statusKey{}).(*int); ok {
		*noted = resp.StatusCode
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNotFound, http.StatusConflict:
		return resp, nil
	}
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxKept))
	return nil, errors.Join(api.StatusError{Code: resp.StatusCode, Body: string(said)}, err, resp.Body.Close())
}

// statusKey is the key of a context by which the number of an answer is noted: the library does not
// tell it.
type statusKey struct{}

// errNonsense is about answers that Consul does not give.
var errNonsense = errors.New("the answer is none of Consul's: is it the address of its HTTP interface?")

func (c *client) key(name string) string { return c.o.Prefix + "/" + name }

func (c *client) query() *api.QueryOptions {
	return &api.QueryOptions{Datacenter: c.o.Datacenter, Namespace: c.o.Namespace, Partition: c.o.Partition}
}

// latest is a query for what is there now for sure: by default a server that has just come to lead
// may lack what was written before.
// https://developer.hashicorp.com/consul/api-docs/features/consistency
func (c *client) latest() *api.QueryOptions {
	q := c.query()
	q.RequireConsistent = true
	return q
}

// headRead is what stood at the key head at an index.
type headRead struct {
	raw []byte // nil: there is no such key
	// modified is the index at which the key was written last, and index the one to wait for more
	// than.
	modified, index uint64
}

// head reads the key head. With an index it waits until that is passed, for as long as wait.
func (c *client) head(ctx context.Context, index uint64, wait time.Duration) (headRead, error) {
	q := c.latest()
	if index > 0 {
		q = c.query()
		q.WaitIndex, q.WaitTime = index, wait
	} else {
		wait = 0
	}
	ctx, cancel := context.WithTimeout(ctx, readTime+wait+wait/16)
	defer cancel()
	pair, meta, err := c.get(ctx, keyHead, q)
	switch {
	case err != nil:
		return headRead{}, err
	case pair == nil:
		return headRead{index: meta.LastIndex}, nil
	}
	return headRead{raw: append([]byte{}, pair.Value...), modified: pair.ModifyIndex, index: meta.LastIndex}, nil
}

// get reads a key; nil: there is none. Errors: errNonsense.
func (c *client) get(ctx context.Context, name string, q *api.QueryOptions) (*api.KVPair, *api.QueryMeta, error) {
	var status int
	pair, meta, err := c.kv.Get(c.key(name), q.WithContext(context.WithValue(ctx, statusKey{}, &status)))
	switch {
	case err != nil:
		return nil, nil, err
	case meta.LastIndex == 0:
		return nil, nil, consulhttp.ErrNoIndex
	case pair == nil && status != http.StatusNotFound, pair != nil && pair.Key != c.key(name):
		return nil, nil, errNonsense
	}
	return pair, meta, nil
}

// stands says whether there is a key, by what Consul holds now.
func (c *client) stands(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	pair, _, err := c.get(ctx, name, c.latest())
	return pair != nil, err
}

// read reads keys as they are now; those that there are not are not in the result.
func (c *client) read(ctx context.Context, names []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		pair, _, err := c.get(ctx, name, c.latest())
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

// readMany reads keys as they are now, by few requests. Errors: errNonsense.
func (c *client) readMany(ctx context.Context, names []string) (map[string][]byte, error) {
	if len(names) == 1 {
		return c.read(ctx, names)
	}
	ops := make(api.TxnOps, len(names))
	for i, name := range names {
		ops[i] = c.op(api.KVGetOrEmpty, name, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	ok, resp, _, err := c.txn.Txn(ops, c.latest().WithContext(ctx))
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, refusedOperations(resp)
	}
	out := map[string][]byte{}
	for _, name := range names { // Consul tells of each, in any order
		switch pair := resultOf(resp, c.key(name)); {
		case pair == nil:
			return nil, errNonsense
		case pair.ModifyIndex > 0:
			out[name] = pair.Value
		}
	}
	return out, nil
}

// resultOf is what a transaction says of a key; nil: nothing.
func resultOf(resp *api.TxnResponse, key string) *api.KVPair {
	for _, r := range resp.Results {
		if r != nil && r.KV != nil && r.KV.Key == key {
			return r.KV
		}
	}
	return nil
}

// op is an operation of a transaction.
func (c *client) op(verb api.KVOp, name string, value []byte) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: verb, Key: c.key(name), Value: value, Namespace: c.o.Namespace,
		Partition: c.o.Partition}}
}

// put writes a key that there is not, and on which nobody else has an eye. Errors: errNonsense.
func (c *client) put(ctx context.Context, name string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	w := &api.WriteOptions{Datacenter: c.o.Datacenter, Namespace: c.o.Namespace, Partition: c.o.Partition}
	// to be told that it was done
	done, _, err := c.kv.CAS(&api.KVPair{Key: c.key(name), Value: value}, w.WithContext(ctx))
	if err == nil && !done {
		return errNonsense
	}
	return err
}

// keys lists those below a name. Errors: errNonsense.
func (c *client) keys(ctx context.Context, below string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	all, _, err := c.kv.Keys(c.key(below), "", c.query().WithContext(ctx))
	for i, k := range all {
		if !strings.HasPrefix(k, c.key(below)) {
			return nil, errNonsense
		}
		all[i] = strings.TrimPrefix(k, c.o.Prefix+"/")
	}
	return all, err
}

// remove deletes keys, each if the guards hold. Errors: errConflict, when one does not.
func (c *client) remove(ctx context.Context, names []string, guards ...*api.TxnOp) error {
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

// transaction does operations, all or none. sent says that Consul may have received them: with an
// error other than errConflict and refusals it is then not known whether they were done. modified
// is the index at which the head was set, if it was one of them.
func (c *client) transaction(ctx context.Context, ops api.TxnOps) (modified uint64, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	var out atomic.Bool
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { out.Store(true) }})
	ok, resp, _, err := c.txn.Txn(ops, c.query().WithContext(ctx))
	if err != nil {
		return 0, out.Load() && !refused(err), err
	}
	if !ok {
		switch why := refusedOperations(resp); {
		case errors.Is(why, errNonsense):
			return 0, true, why
		case strings.Contains(why.Error(), "Permission denied"):
			// elsewhere Consul says so itself
			return 0, false, api.StatusError{Code: http.StatusForbidden, Body: why.Error()}
		default:
			return 0, false, fmt.Errorf("%w (%w)", errConflict, why)
		}
	}
	if slices.ContainsFunc(ops, func(o *api.TxnOp) bool { return o.KV.Verb == api.KVCAS }) {
		set := resultOf(resp, c.key(keyHead))
		if set == nil || set.ModifyIndex == 0 {
			return 0, true, errNonsense
		}
		modified = set.ModifyIndex
	}
	return modified, true, nil
}

// refusedOperations is why a transaction was not done. Errors: errNonsense, when nothing is said of
// it.
func refusedOperations(resp *api.TxnResponse) error {
	var all bytes.Buffer
	for _, e := range resp.Errors {
		if e != nil && e.What != "" {
			fmt.Fprintf(&all, "%d: %s; ", e.OpIndex, e.What)
		}
	}
	if all.Len() == 0 {
		return errNonsense
	}
	return errors.New(consulhttp.OneLine(strings.TrimSuffix(all.String(), "; ")))
}

// refused says that Consul has surely not done what it was asked for: it said so before it passed
// it on to its log. Source: Consul, agent/structs/errors.go, agent/txn_endpoint.go.
func refused(err error) bool {
	var status api.StatusError
	if !errors.As(err, &status) {
		return false
	}
	return status.Code < http.StatusInternalServerError ||
		slices.ContainsFunc([]string{"No cluster leader", "No known Consul servers", "Rate limit reached"},
			func(said string) bool { return strings.Contains(status.Body, said) })
}

// declined says that Consul takes no write by the token.
func declined(err error) bool {
	return answered(err, http.StatusForbidden, http.StatusUnauthorized)
}

// disliked says that Consul does not take what was written, such as for its size, which says
// nothing of other writes.
func disliked(err error) bool {
	return answered(err, http.StatusBadRequest, http.StatusRequestEntityTooLarge)
}

// answered says that Consul's answer had one of some numbers.
func answered(err error, codes ...int) bool {
	var status api.StatusError
	return errors.As(err, &status) && slices.Contains(codes, status.Code)
}

// explain says what an error of Consul means, and what to do.
func (c *client) explain(err error) error {
	var status api.StatusError
	if !errors.As(err, &status) {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the Consul at %s (setting store.address) does not answer in time: look whether it and its servers are well", c.o.Address)
		}
		return fmt.Errorf("the Consul at %s (setting store.address) cannot be asked: %s%s", c.o.Address,
			consulhttp.Bare(err), c.o.TLS.Remedy(err))
	}
	said := consulhttp.OneLine(status.Body)
	if consulhttp.WantsTLS(status.Code, said) {
		return fmt.Errorf("the Consul at %s speaks HTTPS there: write https:// in store.address", c.o.Address)
	}
	switch status.Code {
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Errorf("the Consul at %s refuses the token (%d, %s): it needs key_prefix %q with the policy write (setting store.tokenFile, %s)", c.o.Address, status.Code, said, c.o.Prefix+"/", cmp.Or(c.o.TokenFile, "none is set"))
	case http.StatusRequestEntityTooLarge:
		return fmt.Errorf("the Consul at %s refuses a value of half a megabyte, which it takes by default (413, %s): do not lower limits.kv_max_value_size and limits.txn_max_req_len", c.o.Address, said)
	case http.StatusBadRequest:
		return fmt.Errorf("the Consul at %s does not understand the request (400, %s): look what stands between, and into its log", c.o.Address, said)
	case http.StatusTooManyRequests:
		return fmt.Errorf("the Consul at %s refuses further requests from this machine for now (429, %s): see limits.http_max_conns_per_client and limits.request_limits there", c.o.Address, said)
	}
	return fmt.Errorf("the Consul at %s (setting store.address) answers %d (%s): look whether its servers have a leader", c.o.Address, status.Code, said)
}
