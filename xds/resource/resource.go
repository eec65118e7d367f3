package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Ref names a resource of another type that a resource needs.
type Ref struct{ TypeURL, Name string }

// Resource is one Envoy resource. Immutable; safe for concurrent use.
type Resource struct {
	// Name is unique within its type.
	Name string
	// TypeURL is that of the resource itself,
	// "type.googleapis.com/envoy.config.cluster.v3.Cluster".
	TypeURL string
	// Refs are the resources of other types without which it cannot work: a cluster's load
	// assignment, a listener's route configurations and filters, a route configuration's clusters,
	// the cluster that a filter asks, the filter to which another one leaves requests.
	Refs []Ref
	// Guards are what a policy filter refuses, or asks a provider about, as opaque texts. A version
	// that lacks one of them permits more. Set before first use.
	Guards []string
	// Patches made or changed it, in this order. Set before first use.
	Patches []*Patch

	build func() []byte
	once  sync.Once
	// set by once; state and value are the ends of entry
	entry   []byte
	state   []byte
	value   []byte
	version string
}

// New makes a resource whose body, the encoded message, is built on first use by build. Build must
// be pure: the same input gives the same bytes on every replica.
func New(typeURL, name string, refs []Ref, build func() []byte) *Resource {
	return &Resource{Name: name, TypeURL: typeURL, Refs: refs, build: build}
}

// Encode is the deterministic encoding that New's build functions use for whole messages. It panics
// when m cannot be encoded, which no input can cause: strings are checked when they are read.
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

// Any is the body with its type.
func (r *Resource) Any() *anypb.Any { return &anypb.Any{TypeUrl: r.TypeURL, Value: r.Body()} }

// Entry is one encoded element of DeltaDiscoveryResponse.resources, tag included: name, version and
// body. Not to be changed.
func (r *Resource) Entry() []byte {
	r.encode()
	return r.entry
}

// StateEntry is one encoded element of DiscoveryResponse.resources, tag included: the body alone.
// Not to be changed.
func (r *Resource) StateEntry() []byte {
	r.encode()
	return r.state
}

// Numbers of the fields that an entry is made of. Both kinds of response carry their resources in
// field 2, and so does the Resource of a delta response carry its body: one encoding serves all.
const (
	fieldResources = 2 // DeltaDiscoveryResponse.resources, DiscoveryResponse.resources
	fieldVersion   = 1 // Resource.version
	fieldBody      = 2 // Resource.resource
	fieldName      = 3 // Resource.name
	fieldTypeURL   = 1 // Any.type_url
	fieldValue     = 2 // Any.value
)

// encode lays the resource out once: the value at the end of its Any, the Any at the end of the
// entry.
func (r *Resource) encode() {
	r.once.Do(func() {
		body := r.build()
		r.build = nil
		sum := sha256.Sum256(body)
		r.version = hex.EncodeToString(sum[:8])

		sizeAny := sizeField(fieldTypeURL, len(r.TypeURL)) + sizeField(fieldValue, len(body))
		size := sizeField(fieldName, len(r.Name)) + sizeField(fieldVersion, len(r.version)) + sizeField(fieldBody,
			sizeAny)
		total := sizeField(fieldResources, size)

		b := make([]byte, 0, total)
		b = appendHead(b, fieldResources, size)
		b = append(appendHead(b, fieldName, len(r.Name)), r.Name...)
		b = append(appendHead(b, fieldVersion, len(r.version)), r.version...)
		b = appendHead(b, fieldBody, sizeAny)
		b = append(appendHead(b, fieldTypeURL, len(r.TypeURL)), r.TypeURL...)
		b = append(appendHead(b, fieldValue, len(body)), body...)

		r.entry = b
		r.state = b[total-sizeField(fieldBody, sizeAny):]
		r.value = b[total-len(body):]
	})
}

// appendHead appends the tag and length of a field of n bytes.
func appendHead(b []byte, field protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
}

// sizeField is the size of a field of n bytes, tag and length included.
func sizeField(field protowire.Number, n int) int {
	return protowire.SizeTag(field) + protowire.SizeBytes(n)
}
