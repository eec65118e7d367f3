package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// Recording is what a server sent to one proxy, encoded: the whole first answer of each type.
type Recording struct {
	shape Shape
	first map[string][]byte // type URL -> response
}

// Record connects one delta proxy to addr, with a certificate of the authority unless that is nil,
// and keeps what it is sent until it is complete.
func Record(ctx context.Context, addr string, shape Shape, a *Authority) (*Recording, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	secure, err := a.Client(shape, 0)
	if err != nil {
		return nil, err
	}
	st, conn, err := open(ctx, addr, secure, nil)
	if err != nil {
		return nil, err
	}
	rec := &Recording{shape: shape, first: map[string][]byte{}}
	if err := errors.Join(rec.fill(st), conn.Close()); err != nil {
		return nil, fmt.Errorf("record what %s sends: %w", addr, err)
	}
	return rec, nil
}

func (r *Recording) fill(st grpc.ClientStream) error {
	node, err := r.shape.node(0)
	if err != nil {
		return err
	}
	p := NewSimulator().proxy(node, nil, func(time.Duration) {})
	if err := p.begin(st); err != nil {
		return err
	}
	for !p.ready.Load() {
		var raw []byte
		if err := st.RecvMsg(&raw); err != nil {
			return err
		}
		typ := parse(raw).typeURL
		// one type in several responses is one message: repeated fields append
		r.first[typ] = append(r.first[typ], raw...)
		if err := p.handle(st, raw); err != nil {
			return err
		}
	}
	return nil
}

// resources are the recorded resources of a type.
func (r *Recording) resources(typeURL string) (out [][]byte) {
	fields(r.first[typeURL], func(num protowire.Number, d []byte) {
		if num == 2 {
			out = append(out, d)
		}
	})
	return out
}

// change is the least response that a change can cost: those of some resources that contain one of
// some texts, and the marker of the change, as the name of a removed resource, which simulated
// proxies ignore.
func change(typeURL, marker string, resources [][]byte, texts ...string) []byte {
	var out []byte
	for _, d := range resources {
		contains := func(text string) bool { return bytes.Contains(d, []byte(text)) }
		if slices.ContainsFunc(texts, contains) {
			out = appendField(out, 2, d) // resources
		}
	}
	out = appendField(out, 4, []byte(typeURL))
	out = appendField(out, 5, []byte("n")) // nonce
	return appendField(out, 6, []byte(marker))
}

func appendField(b []byte, num protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), value)
}
