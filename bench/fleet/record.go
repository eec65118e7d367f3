package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
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
	st, conn, err := open(ctx, addr, true, secure, nil)
	if err != nil {
		return nil, err
	}
	rec := &Recording{shape: shape, first: map[string][]byte{}}
	if err := errors.Join(rec.fill(st), conn.Close()); err != nil {
		return nil, fmt.Errorf("record what %s sends: %w", addr, err)
	}
	return rec, nil
}

// Sizes are the bytes recorded of each type.
func (r *Recording) Sizes() map[string]int {
	out := map[string]int{}
	for typ, b := range r.first {
		out[typ] = len(b)
	}
	return out
}

func (r *Recording) fill(st grpc.ClientStream) error {
	node, err := r.shape.node(0, newExtensions())
	if err != nil {
		return err
	}
	p := &proxy{node: node, delta: true, refs: newRefs(), onReady: func(time.Duration) {},
		current: new(atomic.Pointer[watch])}
	if err := p.begin(st); err != nil {
		return err
	}
	for !p.ready.Load() {
		var raw []byte
		if err := st.RecvMsg(&raw); err != nil {
			return err
		}
		typ := parse(raw, true).typeURL
		// one type in several responses is one message: repeated fields append
		r.first[typ] = append(r.first[typ], raw...)
		if err := p.handle(st, raw); err != nil {
			return err
		}
	}
	return nil
}

// withEndpoint is the response that one more v1 endpoint of service i must cost: its recorded
// assignments, each with that endpoint.
func (r *Recording) withEndpoint(i int, ip string) ([]byte, error) {
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: edsType, Nonce: "n"}
	for _, res := range parse(r.first[edsType], true).resources {
		parts := strings.Split(string(res.name), "|")
		if len(parts) != 4 || parts[3] != r.shape.host(i) || parts[2] != "" && parts[2] != "v1" {
			continue
		}
		var cla endpointv3.ClusterLoadAssignment
		if err := proto.Unmarshal(res.value, &cla); err != nil {
			return nil, fmt.Errorf("recorded assignment %s: %w", res.name, err)
		}
		if len(cla.GetEndpoints()) == 0 || len(cla.GetEndpoints()[0].GetLbEndpoints()) == 0 {
			continue
		}
		group := cla.GetEndpoints()[0]
		ep := proto.CloneOf(group.GetLbEndpoints()[0])
		ep.GetEndpoint().GetAddress().GetSocketAddress().Address = ip
		group.LbEndpoints = append(group.LbEndpoints, ep)
		body, err := anypb.New(&cla)
		if err != nil {
			return nil, err
		}
		out.Resources = append(out.Resources, &discoveryv3.Resource{Name: string(res.name), Version: "1",
			Resource: body})
	}
	return proto.Marshal(out)
}

// withRoute is the response that a changed route must cost: the recorded route configurations, with
// the marker in one more field.
func (r *Recording) withRoute(marker string) []byte {
	b := append([]byte(nil), r.first[rdsType]...)
	b = protowire.AppendTag(b, 6, protowire.BytesType) // removed_resources, which a simulated proxy ignores
	return protowire.AppendString(b, marker)
}

// withPolicy is the response that a changed policy of the whole mesh must cost: the recorded
// filters that it is in, with the marker in one more field.
func (r *Recording) withPolicy(marker string) ([]byte, error) {
	var recorded, out discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(r.first[ecdsType], &recorded); err != nil {
		return nil, fmt.Errorf("recorded filters: %w", err)
	}
	// a simulated proxy ignores what is removed
	out.TypeUrl, out.Nonce, out.RemovedResources = ecdsType, "n", []string{marker}
	for _, res := range recorded.GetResources() {
		if bytes.Contains(res.GetResource().GetValue(), []byte(firstPolicy)) {
			out.Resources = append(out.Resources, res)
		}
	}
	return proto.Marshal(&out)
}
