package mcp_test

import (
	"context"
	"fmt"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// xdsServer is a server of MCP over xDS as simple as one can be: every answer of state of the world is the whole of a type,
// and every stream of differences begins with everything.
type xdsServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	*store
	noDelta  bool // as many servers for Istio are
	nonsense bool // answers bytes that are no resources
	cut      int  // > 0: ends the stream after so many answers

	note  sync.Mutex
	nacks []string
	acks  int
	nodes []string
	sent  map[string]int // resources by type
}

func (x *xdsServer) noted(f func()) {
	x.note.Lock()
	defer x.note.Unlock()
	f()
}

// heard notes an answer.
func (x *xdsServer) heard(node, nonce, words string, rejected bool) {
	x.noted(func() {
		if node != "" {
			x.nodes = append(x.nodes, node)
		}
		switch {
		case rejected:
			x.nacks = append(x.nacks, words)
		case nonce != "":
			x.acks++
		}
	})
}

// received are the messages of a stream, until it ends.
func received[T any](ctx context.Context, receive func() (*T, error)) <-chan *T {
	out := make(chan *T)
	go func() {
		defer close(out)
		for {
			m, err := receive()
			if err != nil {
				return
			}
			select {
			case out <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (x *xdsServer) StreamAggregatedResources(st discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	wake, stop := x.watch()
	defer stop()
	requests := received(st.Context(), st.Recv)
	wanted, answers := []string{}, 0
	send := func(typ string) error {
		answers++
		if x.cut > 0 && answers > x.cut {
			return status.Error(codes.Internal, "killed")
		}
		r := &discoveryv3.DiscoveryResponse{TypeUrl: typ, VersionInfo: fmt.Sprint(answers), Nonce: fmt.Sprintf("s%d", answers)}
		for _, res := range x.list(typ) {
			body, err := anypb.New(res)
			if err != nil {
				return err
			}
			if x.nonsense {
				body = &anypb.Any{TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: []byte{0xff, 0x01}}
			}
			r.Resources = append(r.Resources, body)
		}
		x.noted(func() { x.count(typ, len(r.Resources)) })
		return st.Send(r)
	}
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			x.heard(r.Node.GetId(), r.ResponseNonce, r.ErrorDetail.GetMessage(), r.ErrorDetail != nil)
			if r.ResponseNonce == "" {
				wanted = append(wanted, r.TypeUrl)
				if err := send(r.TypeUrl); err != nil {
					return err
				}
			}
		case <-wake:
			for _, typ := range wanted {
				if err := send(typ); err != nil {
					return err
				}
			}
		}
	}
}

func (x *xdsServer) count(typ string, n int) {
	if x.sent == nil {
		x.sent = map[string]int{}
	}
	x.sent[typ] += n
}

func (x *xdsServer) DeltaAggregatedResources(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if x.noDelta {
		return status.Error(codes.Unimplemented, "method DeltaAggregatedResources not implemented")
	}
	wake, stop := x.watch()
	defer stop()
	requests := received(st.Context(), st.Recv)
	has, answers := map[string]map[string]string{}, 0
	send := func(typ string, first bool) error {
		r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ, Nonce: fmt.Sprintf("d%d", answers)}
		now := map[string]string{}
		for _, res := range x.list(typ) {
			name, version := res.Metadata.Name, res.Metadata.Version
			now[name] = version
			if has[typ][name] == version {
				continue
			}
			body, err := anypb.New(res)
			if err != nil {
				return err
			}
			if x.nonsense {
				body = &anypb.Any{TypeUrl: body.TypeUrl, Value: []byte{0xff, 0x01}}
			}
			r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: proto.CloneOf(body)})
		}
		for name := range has[typ] {
			if _, ok := now[name]; !ok {
				r.RemovedResources = append(r.RemovedResources, name)
			}
		}
		has[typ] = now
		if !first && len(r.Resources)+len(r.RemovedResources) == 0 {
			return nil
		}
		if answers++; x.cut > 0 && answers > x.cut {
			return status.Error(codes.Internal, "killed")
		}
		x.noted(func() { x.count(typ, len(r.Resources)) })
		return st.Send(r)
	}
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			x.heard(r.Node.GetId(), r.ResponseNonce, r.ErrorDetail.GetMessage(), r.ErrorDetail != nil)
			if _, known := has[r.TypeUrl]; !known {
				if err := send(r.TypeUrl, true); err != nil {
					return err
				}
			}
		case <-wake:
			for typ := range has {
				if err := send(typ, false); err != nil {
					return err
				}
			}
		}
	}
}
