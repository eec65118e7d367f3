package mcptest

import (
	"fmt"

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

// StreamAggregatedResources serves state of the world.
func (x *XDS) StreamAggregatedResources(st discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	wake := x.changed.Watch(st.Context())
	requests := received(st.Context(), st.Recv)
	wanted, answers := []string{}, 0
	send := func(typ string) error {
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
	}
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			x.noteRequest(r.Node.GetId(), r.ResponseNonce, r.ErrorDetail.GetMessage(), r.ErrorDetail != nil)
			if r.ResponseNonce == "" && !x.Silent {
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

// deltaStream is one stream of differences.
type deltaStream struct {
	*XDS
	st      discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	has     map[string]map[string]string // versions by type and name
	answers int
}

// DeltaAggregatedResources serves differences.
func (x *XDS) DeltaAggregatedResources(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	if x.NoDelta {
		return status.Error(codes.Unimplemented, "method DeltaAggregatedResources not implemented")
	}
	wake := x.changed.Watch(st.Context())
	requests := received(st.Context(), st.Recv)
	d := &deltaStream{XDS: x, st: st, has: map[string]map[string]string{}}
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			x.noteRequest(r.Node.GetId(), r.ResponseNonce, r.ErrorDetail.GetMessage(), r.ErrorDetail != nil)
			if _, known := d.has[r.TypeUrl]; !known && !x.Silent {
				if err := d.send(r.TypeUrl, true); err != nil {
					return err
				}
			}
		case <-wake:
			for typ := range d.has {
				if err := d.send(typ, false); err != nil {
					return err
				}
			}
		}
	}
}

// send sends what has changed of a type, when that is anything or it is the first answer.
func (d *deltaStream) send(typ string, first bool) error {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ, Nonce: fmt.Sprintf("d%d", d.answers)}
	now := map[string]string{}
	for _, res := range d.list(typ) {
		name, version := res.Metadata.Name, res.Metadata.Version
		now[name] = version
		if d.has[typ][name] == version {
			continue
		}
		body, err := d.body(res)
		if err != nil {
			return err
		}
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: body})
	}
	for name := range d.has[typ] {
		if _, ok := now[name]; !ok {
			r.RemovedResources = append(r.RemovedResources, name)
		}
	}
	d.has[typ] = now
	if !first && len(r.Resources)+len(r.RemovedResources) == 0 {
		return nil
	}
	d.answers++
	if err := d.cut(d.answers); err != nil {
		return err
	}
	d.noteSent(typ, len(r.Resources))
	return d.st.Send(r)
}
