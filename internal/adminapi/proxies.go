package adminapi

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// shortType is the name of a type to operators: "cds", or else the type itself.
func shortType(typeURL string) string { return cmp.Or(xds.ShortType(typeURL), typeURL) }

// proxies are the connected ones. Each is named by its short name unless another has the same.
func (a *API) proxies() []admin.ProxyStatus {
	connected := a.Connected()
	names := map[string]int{} // how many proxies have a short name
	for _, p := range connected {
		names[p.Node.ID]++
	}
	out := make([]admin.ProxyStatus, len(connected))
	for i, p := range connected {
		out[i] = a.proxyStatus(p)
		if names[p.Node.ID] == 1 {
			out[i].ID = p.Node.ID
		}
	}
	return out
}

func (a *API) proxyStatus(p xds.ProxyStatus) admin.ProxyStatus {
	out := admin.ProxyStatus{ID: p.ID, Node: p.ID, Kind: "sidecar", Namespace: p.Node.Namespace,
		Agent: p.Agent, Envoy: p.Envoy, Peer: p.Peer, Connected: p.Connected, Identity: p.Who.Identity.String(),
		Serial: p.Who.Serial, Expires: p.Who.Expires, Bundle: p.Bundle, Delta: p.Delta, Types: []admin.TypeStatus{}}
	if p.Node.Type == push.Router {
		out.Kind = "router"
	}
	for _, t := range p.Types {
		out.Types = append(out.Types, a.typeStatus(t))
	}
	if len(p.Types) > 0 && !slices.ContainsFunc(p.Types, func(t xds.TypeStatus) bool { return !t.Objects }) {
		out.Kind = admin.Reader
	}
	return out
}

func (a *API) typeStatus(t xds.TypeStatus) admin.TypeStatus {
	out := admin.TypeStatus{Type: shortType(t.TypeURL), Resources: t.Resources, AcknowledgedAt: t.AcknowledgedAt,
		State: t.State(), Latest: t.Latest, InFlight: t.Pending, Rejections: t.Rejections, Everything: t.Everything}
	if t.Objects {
		out.Objects = path.Base(t.TypeURL) // networking.istio.io/v1/VirtualService, core/v1alpha1/MeshConfig
	}
	if !t.Everything {
		out.Subscribed = t.Subscribed
	}
	for _, r := range t.Rejected {
		one := admin.Rejection{Time: r.At, Resource: r.Name, Version: r.Version, Error: r.Message}
		for i, p := range r.Patches {
			one.Patches = append(one.Patches, admin.Patch{Object: p.Object.Key.String(), Field: p.Field, Changed: i < r.Changed,
				Origin: a.origin(p.Object)})
		}
		out.Rejected = append(out.Rejected, one)
	}
	if t.Rejection != nil && len(out.Rejected) == 0 { // the culprit is not found yet
		out.Rejected = []admin.Rejection{{Error: t.Rejection.Message}}
	}
	return out
}

// dumpOf returns the resources of one type with their content in JSON.
func dumpOf(t xds.TypeDump) (admin.DumpType, error) {
	out := admin.DumpType{Type: shortType(t.TypeURL), TypeURL: t.TypeURL, Resources: []admin.DumpResource{}}
	for _, r := range t.Resources {
		body, err := bodyJSON(r.Name, r.Any())
		if err != nil {
			return out, fmt.Errorf("show %s: %w", r.Name, err)
		}
		out.Resources = append(out.Resources, admin.DumpResource{Name: r.Name, Version: r.Version(), Bytes: len(r.Body()),
			Body: body})
	}
	return out, nil
}

// bodyJSON is a resource in protobuf's JSON. A type that this program does not know is shown as its
// bytes. Of a secret only the certificates are shown.
func bodyJSON(name string, a *anypb.Any) (json.RawMessage, error) {
	switch a.TypeUrl {
	case resource.SecretType:
		public, err := xds.PublicSecret(a)
		if err != nil {
			return nil, err
		}
		return protojson.Marshal(public)
	case resource.NameTableType:
		m, err := newNameTable()
		if err == nil {
			err = proto.Unmarshal(a.Value, m)
		}
		if err != nil {
			return nil, err
		}
		return protojson.Marshal(m)
	}
	b, err := protojson.Marshal(a)
	if err != nil {
		return json.Marshal(map[string]string{"@type": a.TypeUrl, "value": base64.StdEncoding.EncodeToString(a.Value)})
	}
	return b, nil
}

// nameTable describes the type of Istio's name table, which has no Go type outside Istio.
// Source: Istio, pkg/dns/proto/nds.proto.
const nameTable = `
name: "nds.proto"  package: "istio.networking.nds.v1"  syntax: "proto3"
message_type {
  name: "NameTable"
  field { name: "table"  number: 1  label: LABEL_REPEATED  type: TYPE_MESSAGE
    type_name: ".istio.networking.nds.v1.NameTable.TableEntry" }
  nested_type {
    name: "NameInfo"
    field { name: "ips"  number: 1  label: LABEL_REPEATED  type: TYPE_STRING }
    field { name: "registry"  number: 2  label: LABEL_OPTIONAL  type: TYPE_STRING }
    field { name: "shortname"  number: 3  label: LABEL_OPTIONAL  type: TYPE_STRING }
    field { name: "namespace"  number: 4  label: LABEL_OPTIONAL  type: TYPE_STRING }
    field { name: "alt_hosts"  number: 5  label: LABEL_REPEATED  type: TYPE_STRING }
  }
  nested_type {
    name: "TableEntry"
    options { map_entry: true }
    field { name: "key"  number: 1  label: LABEL_OPTIONAL  type: TYPE_STRING }
    field { name: "value"  number: 2  label: LABEL_OPTIONAL  type: TYPE_MESSAGE
      type_name: ".istio.networking.nds.v1.NameTable.NameInfo" }
  }
}`

// newNameTable returns an empty name table.
func newNameTable() (proto.Message, error) {
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(nameTable), &file); err != nil {
		return nil, err
	}
	d, err := protodesc.NewFile(&file, protoregistry.GlobalFiles)
	if err != nil {
		return nil, err
	}
	return dynamicpb.NewMessage(d.Messages().ByName("NameTable")), nil
}
