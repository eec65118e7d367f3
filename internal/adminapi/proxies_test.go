package adminapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/ads"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// field is one field of an encoded message.
func field(num protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), body)
}

// A dump shows every resource as JSON, also of types that have no Go type, and of a secret only its
// name.
func TestBodyJSON(t *testing.T) {
	t.Parallel()
	text, err := proto.Marshal(wrapperspb.String("hello"))
	if err != nil {
		t.Fatal(err)
	}
	bytesOf := func(s string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(s)}}
	}
	secret, err := proto.Marshal(&tlsv3.Secret{Name: "s", Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: bytesOf("cert"), PrivateKey: bytesOf("private key")}}})
	if err != nil {
		t.Fatal(err)
	}
	info := append(field(1, []byte("240.240.0.1")), field(2, []byte("External"))...)
	table := field(1, append(field(1, []byte("web.shop")), field(2, info)...))
	for _, tc := range []struct {
		name, typeURL string
		body          []byte
		want          string
	}{
		{"known", "type.googleapis.com/google.protobuf.StringValue", text, `{"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "hello"}`},
		{"unknown", "type.googleapis.com/nobody.knows.It", []byte{1, 2}, `{"@type": "type.googleapis.com/nobody.knows.It", "value": "AQI="}`},
		{"name table", resource.NameTableType, table, `{"table": {"web.shop": {"ips": ["240.240.0.1"], "registry": "External"}}}`},
		{"secret", resource.SecretType, secret, `{"@type": "` + resource.SecretType + `", "name": "s", "tlsCertificate": ` +
			`{"certificateChain": {"inlineBytes": "Y2VydA=="}, "privateKey": {"inlineString": "[redacted]"}}}`},
	} {
		got, err := bodyJSON(tc.name, &anypb.Any{TypeUrl: tc.typeURL, Value: tc.body})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if !sameJSON(t, got, []byte(tc.want)) {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	if _, err := bodyJSON("", &anypb.Any{TypeUrl: resource.NameTableType, Value: []byte{0xff}}); err == nil {
		t.Error("no error for a name table of bad bytes")
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return reflect.DeepEqual(x, y)
}

// What the delivery protocol knows reaches the operator.
func TestTypeStatus(t *testing.T) {
	t.Parallel()
	in := xds.TypeStatus{TypeURL: resource.ListenerType, Resources: 4,
		Status: ads.Status{Subscribed: 3, Rejections: 2, Pending: 1,
			Rejected: []ads.Rejected{{Name: "0.0.0.0_80", Version: "1",
				Message: "no such filter"}}, Rejection: &ads.Rejection{Message: "whole response"}}}
	got := (&API{}).typeStatus(in)
	if got.Type != "lds" || got.Subscribed != 3 || got.Resources != 4 || got.InFlight != 1 || got.Rejections != 2 ||
		got.Everything {
		t.Errorf("status %+v", got)
	}
	if len(got.Rejected) != 1 || got.Rejected[0].Resource != "0.0.0.0_80" || got.Rejected[0].Error != "no such filter" {
		t.Errorf("rejected %+v, want the culprit", got.Rejected)
	}
	in.Rejected, in.Everything = nil, true
	if got = (&API{}).typeStatus(in); len(got.Rejected) != 1 || got.Rejected[0].Error != "whole response" ||
		got.Subscribed != 0 || !got.Everything {
		t.Errorf("status %+v, want the response that was rejected, and no names", got)
	}
}

// A proxy goes by its short name unless another has the same.
func TestShortNames(t *testing.T) {
	t.Parallel()
	node := func(id, short string, typ push.NodeType) xds.ProxyStatus {
		return xds.ProxyStatus{ID: id, Node: push.Node{ID: short, Type: typ, Namespace: "shop"}}
	}
	a := &API{Connected: func() []xds.ProxyStatus {
		return []xds.ProxyStatus{node("sidecar~1~a~x", "a", push.Sidecar), node("sidecar~2~b~x", "b", push.Sidecar),
			node("router~3~b~x", "b", push.Router)}
	}}
	got := a.proxies()
	for i, want := range []string{"a", "sidecar~2~b~x", "router~3~b~x"} {
		if got[i].ID != want {
			t.Errorf("proxy %d is called %q, want %q", i, got[i].ID, want)
		}
	}
	if got[2].Kind != "router" || got[0].Kind != "sidecar" {
		t.Errorf("kinds %q and %q", got[2].Kind, got[0].Kind)
	}
}

// Who asks for configuration objects alone is a reader, under whichever names of the kinds.
func TestReaderStatus(t *testing.T) {
	t.Parallel()
	of := func(names ...string) (out []xds.TypeStatus) {
		for _, n := range names {
			out = append(out, xds.TypeStatus{TypeURL: n, Objects: strings.Count(n, "/") == 2})
		}
		return out
	}
	for name, tc := range map[string]struct {
		types  []xds.TypeStatus
		reader bool
		kinds  string
	}{
		"a reader":          {of("networking.istio.io/v1/Gateway", "networking.istio.io/v1alpha3/Gateway", "core/v1alpha1/MeshConfig"), true, "Gateway Gateway MeshConfig"},
		"a proxy":           {of(resource.ClusterType), false, ""},
		"both":              {of(resource.ClusterType, "networking.istio.io/v1/Gateway"), false, " Gateway"},
		"neither":           {nil, false, ""},
		"of no known types": {of("example.com/Foo"), false, ""},
	} {
		got := (&API{}).proxyStatus(xds.ProxyStatus{ID: "sidecar~1~a~x", Types: tc.types})
		var kinds []string
		for _, ty := range got.Types {
			kinds = append(kinds, ty.Objects)
		}
		if (got.Kind == admin.Reader) != tc.reader || strings.Join(kinds, " ") != tc.kinds {
			t.Errorf("%s: the kind is %q, of %q", name, got.Kind, kinds)
		}
	}
}
