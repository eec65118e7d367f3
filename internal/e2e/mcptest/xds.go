package mcptest

import (
	"context"
	"fmt"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
)

// XDS is a server of MCP over xDS as simple as one can be: every answer of state of the world is
// the whole of a type, and every stream of differences begins with everything.
type XDS struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	// Store is what it serves; required.
	*Store
	// NoDelta has it know no differences, as many servers for Istio do.
	NoDelta bool
	// Nonsense has it answer bytes that are no resources.
	Nonsense bool
	// Silent has it answer nothing.
	Silent bool
	// Cut, when it is more than 0, ends each stream after so many answers.
	Cut int

	notes
}

// Register has g serve it.
func (x *XDS) Register(g *grpc.Server) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, x) }

// body is a resource as it is sent.
func (x *XDS) body(res *mcpv1.Resource) (*anypb.Any, error) {
	if x.Nonsense {
		return &anypb.Any{TypeUrl: "type.googleapis.com/istio.mcp.v1alpha1.Resource", Value: []byte{0xff, 0x01}}, nil
	}
	return anypb.New(res)
}

// cut says that the answer of that number is one too many.
func (x *XDS) cut(answer int) error {
	if x.Cut > 0 && answer > x.Cut {
		return status.Error(codes.Internal, "killed")
	}
	return nil
}

// serve answers the first request of each type of a stream, and sends all types again after a change.
func serve[R request](ctx context.Context, x *XDS, receive func() (R, error), send func(typ string) error) error {
	wake := x.changed.Watch(ctx)
	requests := received(ctx, receive)
	var wanted []string
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			x.noteRequest(r)
			if slices.Contains(wanted, r.GetTypeUrl()) || x.Silent {
				continue
			}
			wanted = append(wanted, r.GetTypeUrl())
			if err := send(r.GetTypeUrl()); err != nil {
				return err
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

// StreamAggregatedResources serves state of the world.
func (x *XDS) StreamAggregatedResources(st discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	answers := 0
	return serve(st.Context(), x, st.Recv, func(typ string) error {
		answers++
		if err := x.cut(answers); err != nil {
			return err
		}
		r := &discoveryv3.DiscoveryResponse{TypeUrl: typ, VersionInfo: fmt.Sprint(answers),
			Nonce: fmt.Sprintf("s%d", answers)}
		for _, res := range x.list(typ) {
			body, err := x.body(res)
			if err != nil {
				return err
			}
			r.Resources = append(r.Resources, body)
		}
		x.noteSent(typ, len(r.Resources))
		return st.Send(r)
	})
}

// DeltaAggregatedResources serves differences. It sends a type when it changed, and in any case the
// first time.
func (x *XDS) DeltaAggregatedResources(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if x.NoDelta {
		return status.Error(codes.Unimplemented, "method DeltaAggregatedResources not implemented")
	}
	has, answers := map[string]map[string]string{}, 0 // versions by type and name
	return serve(st.Context(), x, st.Recv, func(typ string) error {
		r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ, Nonce: fmt.Sprintf("d%d", answers)}
		before, now := has[typ], map[string]string{}
		for _, res := range x.list(typ) {
			name, version := res.Metadata.Name, res.Metadata.Version
			now[name] = version
			if before[name] == version {
				continue
			}
			body, err := x.body(res)
			if err != nil {
				return err
			}
			r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: body})
		}
		for name := range before {
			if _, ok := now[name]; !ok {
				r.RemovedResources = append(r.RemovedResources, name)
			}
		}
		has[typ] = now
		if before != nil && len(r.Resources)+len(r.RemovedResources) == 0 {
			return nil
		}
		answers++
		if err := x.cut(answers); err != nil {
			return err
		}
		x.noteSent(typ, len(r.Resources))
		return st.Send(r)
	})
}
