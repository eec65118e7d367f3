package patch

import (
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

// newResource makes the resource of a message. Errors: Envoy would refuse it. Messages that are
// wrapped in it are checked where they are made: by inspect, or by edit.
func newResource(typeURL, name string, m proto.Message, refs []resource.Ref) (*resource.Resource, error) {
	if now := m.(interface{ GetName() string }).GetName(); now == "" || now != name {
		return nil, fmt.Errorf("its name is %q", now)
	}
	if err := envoy.CheckAll(m.(envoy.Validated)); err != nil {
		return nil, err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return resource.New(typeURL, name, refs, func() []byte { return body }), nil
}

// inspect returns the clusters that the value of a patch names. merges says that the value is a part
// of a message. Errors: Envoy would refuse it.
func inspect(value proto.Message, merges bool) (refs []resource.Ref, err error) {
	return refs, protorange.Range(value.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		switch last.Step.Kind() {
		case protopath.RootStep, protopath.AnyExpandStep:
			if v, ok := last.Value.Message().Interface().(envoy.Validated); ok && !(merges && isPart(p.Path)) {
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
}

// isPart reports whether what is merged at a path is merged into what is there. Elements of lists
// and maps are whole.
func isPart(path protopath.Path) bool {
	return !slices.ContainsFunc(path, func(s protopath.Step) bool {
		return s.Kind() == protopath.ListIndexStep || s.Kind() == protopath.MapIndexStep
	})
}
