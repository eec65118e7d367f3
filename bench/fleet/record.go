package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Recording is what a server sent to one proxy, encoded: the whole first answer of each type.
type Recording struct {
	shape Shape
	first map[string][]byte // by type URL
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
	st, conn, err := open(ctx, addr, secure)
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
		var received mem.Buffer
		if err := st.RecvMsg(&received); err != nil {
			return err
		}
		raw := received.ReadOnlyData()
		typ := parse(raw).typeURL
		// one type in several responses is one message: repeated fields append
		r.first[typ] = append(r.first[typ], raw...)
		if err := p.handle(st, raw); err != nil {
			return err
		}
	}
	return nil
}

// change is the least response that a change can cost: those of some resources that contain one of
// some texts, and the marker of the change, as the name of a removed resource, which simulated
// proxies ignore.
func change(typeURL, marker string, resources []*discoveryv3.Resource, texts ...string) ([]byte, error) {
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: "n", RemovedResources: []string{marker}}
	for _, r := range resources {
		contains := func(text string) bool { return bytes.Contains(r.GetResource().GetValue(), []byte(text)) }
		if slices.ContainsFunc(texts, contains) {
			out.Resources = append(out.Resources, r)
		}
	}
	return proto.Marshal(out)
}
