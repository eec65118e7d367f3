package config

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Problem is what is wrong with an object or a file; see feed.Problem.
type Problem = feed.Problem

// Kind is the name of a kind as operators write it, "VirtualService".
type Kind string

// The kinds of Istio's API.
const (
	VirtualService        Kind = "VirtualService"
	DestinationRule       Kind = "DestinationRule"
	Gateway               Kind = "Gateway"
	ServiceEntry          Kind = "ServiceEntry"
	WorkloadEntry         Kind = "WorkloadEntry"
	WorkloadGroup         Kind = "WorkloadGroup"
	Sidecar               Kind = "Sidecar"
	EnvoyFilter           Kind = "EnvoyFilter"
	ProxyConfig           Kind = "ProxyConfig"
	PeerAuthentication    Kind = "PeerAuthentication"
	RequestAuthentication Kind = "RequestAuthentication"
	AuthorizationPolicy   Kind = "AuthorizationPolicy"
	Telemetry             Kind = "Telemetry"
	WasmPlugin            Kind = "WasmPlugin"
	TrafficExtension      Kind = "TrafficExtension"
)

// Key identifies an object in the whole mesh.
type Key struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String is "VirtualService shop/web", for people only.
func (k Key) String() string { return fmt.Sprintf("%s %s/%s", k.Kind, k.Namespace, k.Name) }

// ParseKey reads what String writes; what is nothing of that kind gives the zero Key.
func ParseKey(s string) Key {
	kind, name, _ := strings.Cut(s, " ")
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		return Key{}
	}
	return Key{Kind: Kind(kind), Namespace: namespace, Name: name}
}

// Compare orders by kind, namespace, name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Origin is where an object was read.
type Origin struct {
	// Source is the name of the source, "files", "consul:dc1".
	Source string
	// File and Line are where its document begins; empty and zero when it is not from a file.
	File string
	Line int
}

// Object is one piece of configuration. It is immutable and can be shared. Equal
// objects of successive versions of a source keep one pointer, so that the pointer is the version.
type Object struct {
	Key
	// Labels and Annotations are the metadata of the same names; may be nil.
	Labels, Annotations map[string]string
	// Created decides precedence among equals: the older wins. Zero when the source does not know.
	Created time.Time
	// Origin is where it was read.
	Origin Origin
	// Revision is the source's version of it; empty when the source has none.
	Revision string
	// Spec is the kind's protobuf of istio.io/api (all versions of a kind read as one), never nil.
	Spec proto.Message
	// Hash is of everything above that has an effect: labels, annotations, created and spec.
	// Equal hashes mean that the older pointer is kept.
	Hash uint64
}
