package relay

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for everything but frames
	"google.golang.org/grpc/mem"
)

// Frame is one message as bytes.
type Frame struct{ Data []byte }

// Codec passes frames through, and encodes all other messages by the protobuf codec.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ messages encoding.CodecV2 }

// Name is the content type. Envoy sends none, which means proto.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*Frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.Data)}, nil
	}
	return c.messages.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*Frame); ok {
		f.Data = data.Materialize()
		return nil
	}
	return c.messages.Unmarshal(data, v)
}

// receiver is the receiving end of a stream.
type receiver interface{ RecvMsg(any) error }

// receive returns a channel with the messages of a stream. It is closed when the stream ends or stop
// is closed. Then err has the reason.
func receive(stream receiver, stop <-chan struct{}) (messages <-chan []byte, err *error) {
	out, err := make(chan []byte), new(error)
	go func() {
		defer close(out)
		for {
			f := &Frame{}
			if *err = stream.RecvMsg(f); *err != nil {
				return
			}
			select {
			case out <- f.Data:
			case <-stop:
				return
			}
		}
	}()
	return out, err
}
