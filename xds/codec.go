package xds

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for everything but frames
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

// frame is one encoded message: a response as shared buffers, or a request.
type frame struct {
	in  mem.Buffer      // freed by its reader
	out mem.BufferSlice // never freed: its buffers are plain slices
}

// codec sends and receives frames unchanged, and uses the protobuf codec for the messages of other
// services on the same server.
type codec struct {
	messages encoding.CodecV2
	requests mem.BufferPool
}

var _ encoding.CodecV2 = codec{}

// Name is the content type; Envoy sends none, which means proto.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.out, nil
	}
	return c.messages.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.in = data.MaterializeToBuffer(c.requests)
		return nil
	}
	return c.messages.Unmarshal(data, v)
}

const (
	// maxRequest is the maximum size of one request of any service on the server, in bytes: 20,000
	// long names with their versions and a node fit.
	maxRequest = 4 << 20
	// maxHeaders is the maximum size of the headers of one stream, in bytes.
	maxHeaders = 64 << 10
	// maxStreams is how many streams one connection may have. A proxy has one for everything, and some
	// for single types.
	maxStreams = 32
	// maxIdle is how long a connection may be without a stream.
	maxIdle = 10 * time.Minute
)

// ServerOptions are the required options of a gRPC server that a Server registers with. Other
// services on it are not affected.
func ServerOptions() []grpc.ServerOption {
	// A node has 60 KB and a list of names 100 KB, for which gRPC's own pool takes a megabyte each.
	requests := mem.NewTieredBufferPool(1<<10, 4<<10, 16<<10, 32<<10, 48<<10, 64<<10, 96<<10, 128<<10, 192<<10, 256<<10)
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{messages: encoding.GetCodecV2("proto"), requests: requests}),
		experimental.BufferPool(requests),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		// Windows are fixed, because measuring the connection costs pings. A stream that is not read
		// takes as much memory as the smaller one. gRPC widens it for a larger message, which costs a
		// round trip: clients of state of the world repeat 100 KB of names with each acknowledgement.
		grpc.InitialWindowSize(128 << 10),
		grpc.InitialConnWindowSize(1 << 20),
		// Without TLS, only a connection with something to read has a read buffer.
		grpc.ReadBufferSize(32 << 10),
		// A machine that vanished is noticed within 40 s. A connection without a stream is closed,
		// because its certificate is verified again only with the next stream.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second,
			MaxConnectionIdle: maxIdle}),
		// Agents ping every 10 s, to notice a control plane that hangs; a delayed ping is followed by
		// the next one sooner.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
	}
}
