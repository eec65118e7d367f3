package patch

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// merge merges the value of a patch into m. Errors: Envoy would refuse a message that is wrapped in m.
func merge(m proto.Message, p *patch) error {
	value := proto.Clone(p.value) // its parts become parts of m
	how := &merger{replacesLists: p.operation == networking.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST}
	if c, ok := m.(*clusterv3.Cluster); ok {
		how.mergeSocket(c, value.(*clusterv3.Cluster))
	}
	how.merge(m.ProtoReflect(), value.ProtoReflect())
	return how.err
}

// merger merges messages as protobuf does, with these exceptions: a duration, number or other plain
// value replaces the former one; the configuration of a filter or transport socket is merged into
// that of the same type.
// Source: Istio, pkg/proto/merge, which does the same for durations alone.
type merger struct {
	// replacesLists says that a list replaces the former one; else it is appended.
	replacesLists bool
	// err is what Envoy would refuse.
	err error
}

func (m *merger) merge(dst, src protoreflect.Message) {
	src.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList():
			list := dst.Mutable(fd).List()
			if m.replacesLists {
				list.Truncate(0)
			}
			for i := range v.List().Len() {
				list.Append(v.List().Get(i))
			}
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				dst.Mutable(fd).Map().Set(k, v)
				return true
			})
		case isExtension(dst) && fd.Name() == "typed_config":
			m.mergeTyped(dst, fd, v)
		case !dst.Has(fd) || isValue(fd.Message()) || isOtherSocket(dst.Get(fd), v, fd):
			dst.Set(fd, v)
		default:
			m.merge(dst.Mutable(fd).Message(), v.Message())
		}
		return true
	})
}

// isValue reports whether values of a type are replaced as a whole; nil is the type of texts and
// numbers.
func isValue(md protoreflect.MessageDescriptor) bool {
	return md == nil || md.ParentFile().Package() == "google.protobuf" && md.Name() != "Struct"
}

const socketType = "envoy.config.core.v3.TransportSocket"

// isOtherSocket reports whether a and b are transport sockets of different names.
func isOtherSocket(a, b protoreflect.Value, fd protoreflect.FieldDescriptor) bool {
	if fd.Message().FullName() != socketType {
		return false
	}
	name := fd.Message().Fields().ByName("name")
	return a.Message().Get(name).String() != b.Message().Get(name).String()
}

// isExtension reports whether m is a filter or a transport socket, which has a typed configuration.
func isExtension(m protoreflect.Message) bool {
	switch m.Descriptor().FullName() {
	case socketType, "envoy.config.listener.v3.Filter", "envoy.config.listener.v3.ListenerFilter",
		"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter":
		return true
	}
	return false
}

// mergeTyped merges the typed configuration of an extension. It changes nothing if the patch has
// another type, or if Envoy gets the configuration by extension discovery.
func (m *merger) mergeTyped(dst protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	if !dst.Has(fd) {
		if dst.WhichOneof(fd.ContainingOneof()) == nil {
			dst.Set(fd, v)
		}
		return
	}
	a, errA := dst.Get(fd).Message().Interface().(*anypb.Any).UnmarshalNew()
	b, errB := v.Message().Interface().(*anypb.Any).UnmarshalNew()
	if errA != nil || errB != nil || envoy.TypeURL(a) != envoy.TypeURL(b) {
		return
	}
	m.merge(a.ProtoReflect(), b.ProtoReflect())
	if v, ok := a.(envoy.Validated); ok && m.err == nil {
		m.err = v.Validate()
	}
	dst.Set(fd, protoreflect.ValueOfMessage(envoy.Packed(a).ProtoReflect()))
}

// mergeSocket merges the transport socket of a patch into that one of the sockets of c, among which
// Envoy chooses, which has its name. Source: Istio, mergeTransportSocketCluster.
func (m *merger) mergeSocket(c, patch *clusterv3.Cluster) {
	socket := patch.TransportSocket
	if socket == nil || len(c.TransportSocketMatches) == 0 {
		return
	}
	patch.TransportSocket = nil
	for _, choice := range c.TransportSocketMatches {
		if choice.GetTransportSocket().GetName() == socket.Name {
			m.merge(choice.TransportSocket.ProtoReflect(), socket.ProtoReflect())
			return
		}
	}
}
