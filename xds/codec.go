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

// frame is one message as bytes: a response leaves as shared buffers, a request is read where it
// lies.
type frame struct {
	in  mem.Buffer      // freed by who reads it
	out mem.BufferSlice // never freed: its buffers are plain slices
}

// codec passes frames through and leaves all other messages, those of other services on the same
// server, to the protobuf codec.
type codec struct {
	messages encoding.CodecV2
	requests mem.BufferPool
}

var _ encoding.CodecV2 = codec{}

// Name is what travels as content type; Envoy sends none, which means proto.
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
	// maxRequest bounds one request of any service on the server, in bytes: 20,000 long names with
	// their versions and a node fit.
	maxRequest = 4 << 20
	// maxHeaders bounds the headers of one stream.
	maxHeaders = 64 << 10
	// maxStreams bounds the streams of one connection. A proxy has one for everything, and some for
	// single types.
	maxStreams = 32
	// maxIdle is how long a connection may have no stream.
	maxIdle = 10 * time.Minute
)

// ServerOptions are what a gRPC server that a Server registers with has to be made with. Other
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
		// Fixed windows, since measuring the connection costs pings. A stream that is not read,
		// such as a call for a certificate that waits, holds as much as the smaller one. For a
		// larger message that is read gRPC widens it, which costs an answer: clients of state of
		// the world repeat 100 KB of names with each acknowledgement.
		grpc.InitialWindowSize(128 << 10),
		grpc.InitialConnWindowSize(1 << 20),
		// Only a connection that has something to read holds a buffer for it; without TLS, that is.
		grpc.ReadBufferSize(32 << 10),
		// A machine that vanished is noticed within 40 s. A connection on which nothing is asked,
		// as after a stream was refused, is closed: nobody's certificate is looked at again before
		// somebody asks.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second,
			MaxConnectionIdle: maxIdle}),
		// Agents ping each 10 s, to notice a control plane that hangs; a ping may come sooner after
		// one that was held up on its way.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
	}
}
