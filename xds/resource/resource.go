package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Ref names a resource of another type that a resource needs.
type Ref struct{ TypeURL, Name string }

// Resource is one Envoy resource. Immutable; safe for concurrent use.
type Resource struct {
	// Name is unique within its type.
	Name string
	// TypeURL is that of the resource itself, "type.googleapis.com/envoy.config.cluster.v3.Cluster".
	TypeURL string
	// Refs are the resources of other types without which it cannot work: a cluster's load
	// assignment, a listener's route configurations, a route configuration's clusters.
	Refs []Ref

	build func() []byte
	once  sync.Once
	// set by once
	any     []byte
	value   []byte
	version string
}

// New makes a resource whose body, the encoded message, is built on first use by build. Build must
// be pure: the same input gives the same bytes on every replica.
func New(typeURL, name string, refs []Ref, build func() []byte) *Resource {
	return &Resource{Name: name, TypeURL: typeURL, Refs: refs, build: build}
}

// Encode is the deterministic encoding that New's build functions use for whole messages.
// It panics when m cannot be encoded, which no input can cause: strings are checked when they are read.
func Encode(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic("resource: encode " + string(m.ProtoReflect().Descriptor().FullName()) + ": " + err.Error())
	}
	return b
}

// Version is the hash of the body: equal on every replica and after a restart.
func (r *Resource) Version() string {
	r.encode()
	return r.version
}

// Body is the encoded message. Not to be changed.
func (r *Resource) Body() []byte {
	r.encode()
	return r.value
}

// Any is the body wrapped in an encoded google.protobuf.Any. Not to be changed.
func (r *Resource) Any() []byte {
	r.encode()
	return r.any
}

func (r *Resource) encode() {
	r.once.Do(func() {
		body := r.build()
		r.build = nil
		b := make([]byte, 0, len(body)+len(r.TypeURL)+12)
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendString(b, r.TypeURL)
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(body)))
		head := len(b)
		r.any = append(b, body...)
		r.value = r.any[head:]
		sum := sha256.Sum256(r.value)
		r.version = hex.EncodeToString(sum[:8])
	})
}
