package patch

import (
	"errors"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// newMessage is an empty message of a type that can be patched.
func newMessage(typeURL string) proto.Message {
	switch typeURL {
	case resource.ClusterType:
		return &clusterv3.Cluster{}
	case resource.ListenerType:
		return &listenerv3.Listener{}
	case resource.RouteType:
		return &routev3.RouteConfiguration{}
	}
	return &corev3.TypedExtensionConfig{}
}

// newResource makes the resource of a message, with refs and those to the clusters that it names.
// Errors: Envoy would refuse it.
func newResource(typeURL, name string, m proto.Message, refs []resource.Ref) (*resource.Resource, error) {
	if now := m.(interface{ GetName() string }).GetName(); now == "" || now != name {
		return nil, fmt.Errorf("its name is %q", now)
	}
	refs = slices.Clone(refs)
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		switch last.Step.Kind() {
		case protopath.RootStep, protopath.AnyExpandStep:
			if v, ok := last.Value.Message().Interface().(envoy.Validated); ok {
				return v.Validate()
			}
		case protopath.FieldAccessStep:
			switch fd := last.Step.FieldDescriptor(); fd.Name() {
			case "cluster", "cluster_name":
				if text, ok := last.Value.Interface().(string); ok {
					refs = append(refs, resource.Ref{TypeURL: resource.ClusterType, Name: text})
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, errors.New("it is not valid UTF-8 text")
	}
	return resource.New(typeURL, name, refs, func() []byte { return body }), nil
}
