package mcp

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// frame is an encoded discovery message. Package xds/ads encodes and decodes it, so that large
// messages are decoded once and without reflection.
type frame struct{ raw []byte }

// codec is a gRPC codec that sends and receives frames unchanged.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("mcp: a %T is not a frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.raw)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("mcp: a %T is not a frame", v)
	}
	f.raw = data.Materialize()
	return nil
}

// Field numbers of envoy.config.core.v3.Node.
const nodeIDField, nodeMetadataField = 1, 3

// encodeNode encodes the envoy.config.core.v3.Node of this client. The ID has Istio's format for
// sidecars. GENERATOR=api requests Istio objects instead of Envoy resources. Source: Istio, pkg/adsc
// and pilot/pkg/xds.
func encodeNode(name, namespace, revision string) ([]byte, error) {
	metadata := map[string]any{
		"GENERATOR": "api", "NAMESPACE": namespace,
		"ISTIO_VERSION": "65536.65536.65536", // Istio's latest version: nothing is converted for old clients
	}
	if revision != "" {
		metadata["ISTIO_REVISION"] = revision
	}
	fields, err := structpb.NewStruct(metadata)
	if err != nil {
		return nil, err
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(fields)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("sidecar~127.0.0.1~%s.%s~%s.svc.cluster.local", name, namespace, namespace)
	b := protowire.AppendString(protowire.AppendTag(nil, nodeIDField, protowire.BytesType), id)
	return protowire.AppendBytes(protowire.AppendTag(b, nodeMetadataField, protowire.BytesType), raw), nil
}
