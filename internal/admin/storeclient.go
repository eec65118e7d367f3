package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// Stored asks for the objects of the store; see Stores.
func (c *Client) Stored(ctx context.Context, kind, namespace, name string) ([]Object, error) {
	return get[[]Object](ctx, c, storePaths+"objects",
		url.Values{"kind": {kind}, "namespace": {namespace}, "name": {name}})
}

// History asks for past writes of the store; see Stores.
func (c *Client) History(ctx context.Context, r HistoryRequest) (StoreHistory, error) {
	q := url.Values{"limit": {strconv.Itoa(r.Limit)}, "differences": {strconv.FormatBool(r.Differences)},
		"all": {strconv.FormatBool(r.All)}}
	if r.Ref != nil {
		q.Set("kind", r.Ref.Kind)
		q.Set("namespace", r.Ref.Namespace)
		q.Set("name", r.Ref.Name)
	}
	return get[StoreHistory](ctx, c, storePaths+"history", q)
}

// Apply writes the objects of files; see Stores.
func (c *Client) Apply(ctx context.Context, p Pieces, o StoreOptions) (Written, error) {
	return writePieces(ctx, c, "apply", p, o)
}

// Delete deletes objects; see Stores.
func (c *Client) Delete(ctx context.Context, p Pieces, o StoreOptions) (Written, error) {
	return writePieces(ctx, c, "delete", p, o)
}

// Rollback brings back what was; see Stores.
func (c *Client) Rollback(ctx context.Context, r RollbackRequest, o StoreOptions) (Written, error) {
	return ask[Written](ctx, c, http.MethodPost, storePath("rollback", o), o.query(), r)
}

// storePath is where to write, or to see what would be written.
func storePath(name string, o StoreOptions) string {
	if o.Preview {
		name = "preview/" + name
	}
	return storePaths + name
}

// query is o as storeOptions reads it.
func (o StoreOptions) query() url.Values {
	return url.Values{"at": {o.At}, "force": {strconv.FormatBool(o.Force)},
		"missingOK": {strconv.FormatBool(o.MissingOK)}}
}

// writePieces sends pieces as they come. Nothing is sent to a server that refuses who asks.
func writePieces(ctx context.Context, c *Client, name string, p Pieces, o StoreOptions) (Written, error) {
	from, to := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		to.CloseWithError(sendPieces(to, p)) // the transport sees the error
	}()
	defer func() {
		_ = from.Close() // whoever still sends is to end
		<-sent
	}()
	return ask[Written](ctx, c, http.MethodPost, storePath(name, o), o.query(), streamed{from})
}

// streamed is a question that is sent as it is.
type streamed struct{ io.Reader }

// sendPieces writes pieces as JSON, one after another.
func sendPieces(w io.Writer, p Pieces) error {
	out := json.NewEncoder(w)
	for piece, err := range p {
		if err == nil {
			err = out.Encode(piece)
		}
		if err != nil {
			return &unsent{err}
		}
	}
	return nil
}

// unsent is why the pieces of a question could not be had, or sent.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

// unsentBy is the error of whoever supplied the pieces; nil: it was none.
func unsentBy(err error) error {
	if u, ok := errors.AsType[*unsent](err); ok && !errors.Is(u.error, io.ErrClosedPipe) {
		return u.error
	}
	return nil
}
