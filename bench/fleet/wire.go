package fleet

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The types that a sidecar asks for; EDS are assignments of endpoints.
const (
	cdsType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EDS     = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ldsType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	rdsType = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	// ecdsType are the filters that listeners name and that are fetched on their own: those that
	// policies are made into.
	ecdsType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
)

// The method of aggregated discovery by delta.
const (
	service     = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	deltaMethod = "/" + service + "/DeltaAggregatedResources"
)

// rawCodec carries messages as bytes. A received one is a mem.Buffer, to be freed: a fleet that asks
// the kernel for a megabyte for each response spends more time on that than the server on the response.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case []byte:
		return mem.BufferSlice{mem.SliceBuffer(v)}, nil
	case proto.Message:
		b, err := proto.Marshal(v)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	default:
		return nil, fmt.Errorf("cannot send a %T", v)
	}
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*mem.Buffer)
	if !ok {
		return fmt.Errorf("cannot receive a %T", v)
	}
	*to = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// resource is one resource of a response, in the memory of that: its name and its Any's value.
type resource struct{ name, value []byte }

// response is what counts of a discovery response.
type response struct {
	typeURL, nonce string
	resources      []resource
	removed        []string // names of resources that do not exist
}

// fields calls f for each field of b that has bytes; it ends where b is not a message.
func fields(b []byte, f func(num protowire.Number, data []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return
		}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			f(num, v)
		}
		b = b[n:]
	}
}

// bytesField is field want of a message: its last occurrence.
func bytesField(b []byte, want protowire.Number) (out []byte) {
	fields(b, func(num protowire.Number, d []byte) {
		if num == want {
			out = d
		}
	})
	return out
}

// parse reads a DeltaDiscoveryResponse.
func parse(raw []byte) (r response) {
	fields(raw, func(num protowire.Number, d []byte) {
		switch num {
		case 2:
			r.resources = append(r.resources, resource{bytesField(d, 3), bytesField(bytesField(d, 2), 2)})
		case 4:
			r.typeURL = string(d)
		case 5:
			r.nonce = string(d)
		case 6:
			r.removed = append(r.removed, string(d))
		}
	})
	return r
}
