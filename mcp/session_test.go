package mcp

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/mcp/legacypb"
	"github.com/ashore-mesh/ashore/xds/ads"
)

// said shows what a session says, with generated messages: "Gateway/v1 node" asks, "Gateway/v1 ack n1 v1" answers.
func said(t *testing.T, messages []any, states bool) string {
	t.Helper()
	var out []string
	for _, m := range messages {
		switch m := m.(type) {
		case *legacypb.RequestResources:
			out = append(out, show(m.Collection, m.ResponseNonce, "", m.ErrorDetail.GetMessage(), m.ErrorDetail != nil, m.Incremental, false))
		case *frame:
			if states {
				r := &discoveryv3.DiscoveryRequest{}
				decode(t, m.raw, r)
				out = append(out, show(r.TypeUrl, r.ResponseNonce, r.VersionInfo, r.ErrorDetail.GetMessage(), r.ErrorDetail != nil, false, r.Node != nil))
			} else {
				r := &discoveryv3.DeltaDiscoveryRequest{}
				decode(t, m.raw, r)
				if len(r.InitialResourceVersions)+len(r.ResourceNamesSubscribe) > 0 {
					t.Errorf("the request claims or names something: %v", r)
				}
				out = append(out, show(r.TypeUrl, r.ResponseNonce, "", r.ErrorDetail.GetMessage(), r.ErrorDetail != nil, false, r.Node != nil))
			}
		}
	}
	return strings.Join(out, "; ")
}

func show(name, nonce, version, words string, rejected, incremental, node bool) string {
	parts := strings.Split(name, "/")
	text := strings.Join(parts[max(0, len(parts)-2):], "/")
	switch {
	case rejected:
		text += " nack " + nonce + " " + words
	case nonce != "":
		text += " ack " + nonce
	}
	if version != "" {
		text += " " + version
	}
	if incremental {
		text += " incremental"
	}
	if node {
		text += " node"
	}
	return text
}

func decode(t *testing.T, raw []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(raw, m); err != nil {
		t.Fatal(err)
	}
}

func encode(t *testing.T, m proto.Message) *frame {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &frame{raw}
}

// exchange is one answer of a server and what the session makes of it.
type exchange struct {
	message any
	refused string // by the content
	word    string // "whole first 2 -1": what was read
	says    string
	lacking int
}

func (e exchange) run(t *testing.T, s session, states bool) {
	t.Helper()
	if m, ok := e.message.(proto.Message); ok {
		e.message = encode(t, m)
	}
	l, w, replies, err := s.read(e.message)
	if err != nil {
		t.Fatal(err)
	}
	word := ""
	if l != nil {
		if w.whole {
			word += "whole "
		}
		if w.first {
			word += "first "
		}
		word += fmt.Sprintf("%d -%d", len(w.items), len(w.removed))
		replies = append(replies, s.answer(l, w, e.refused)...)
	}
	if word != e.word {
		t.Errorf("read %q, want %q", word, e.word)
	}
	if got := said(t, replies, states); got != e.says {
		t.Errorf("says %q, want %q", got, e.says)
	}
	if got := len(s.lacking()); got != e.lacking {
		t.Errorf("lacks %d kinds, want %d", got, e.lacking)
	}
}

// two are two kinds, of three and one versions.
func two(t *testing.T) []config.KindInfo {
	t.Helper()
	g, _ := config.Info(config.Gateway)
	f, _ := config.Info(config.EnvoyFilter)
	return []config.KindInfo{g, f}
}

const (
	gatewayV1   = "networking.istio.io/v1/Gateway"
	gatewayBeta = "networking.istio.io/v1beta1/Gateway"
	gatewayOld  = "networking.istio.io/v1alpha3/Gateway"
	filterOld   = "networking.istio.io/v1alpha3/EnvoyFilter"
)

func TestStateSession(t *testing.T) {
	t.Parallel()
	node, err := nodeOf("a", "istio-system", "canary")
	if err != nil {
		t.Fatal(err)
	}
	s := newXDSSession(two(t), true, node, ads.Limits{}, never)
	if got := said(t, s.open(), true); got != "v1/Gateway node; v1alpha3/EnvoyFilter" {
		t.Errorf("begins with %q", got)
	}
	one := []*anypb.Any{{TypeUrl: resourceType}}
	reply := func(typeURL, nonce, version string, items []*anypb.Any) *frame {
		return encode(t, &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: nonce, VersionInfo: version, Resources: items})
	}
	for _, e := range []exchange{
		// a name without objects is not the last word: the server may know an older one
		{reply(gatewayV1, "n1", "v1", nil), "", "whole 0 -0", "v1/Gateway ack n1 v1; v1beta1/Gateway", 2},
		{reply(filterOld, "n2", "v1", nil), "", "whole 0 -0", "v1alpha3/EnvoyFilter ack n2 v1", 1},
		{reply(gatewayBeta, "n3", "v1", nil), "", "whole 0 -0", "v1beta1/Gateway ack n3 v1; v1alpha3/Gateway", 1},
		{reply(gatewayOld, "n4", "v1", one), "", "whole 1 -0", "v1alpha3/Gateway ack n4 v1", 0},
		// a refusal says which version was the last good one
		{reply(gatewayOld, "n5", "v2", one), "bad", "whole 1 -0", "v1alpha3/Gateway nack n5 bad v1", 0},
		{reply(gatewayOld, "n6", "v3", one), "", "whole 1 -0", "v1alpha3/Gateway ack n6 v3", 0},
		// without a nonce there is nothing to answer to
		{reply(gatewayV1, "", "v4", one), "", "whole 1 -0", "", 0},
		// what was not asked for is left alone
		{reply("networking.istio.io/v1/Sidecar", "n7", "v1", one), "", "", "", 0},
		{reply("networking.istio.io/v9/Gateway", "n8", "v1", one), "", "", "", 0},
	} {
		e.run(t, s, true)
	}
}

// never says that no name held anything.
func never(string) bool { return false }

// A name that held something is asked for again beside the newer ones, and all of them are waited for.
func TestHeldSession(t *testing.T) {
	t.Parallel()
	s := newXDSSession(two(t), true, nil, ads.Limits{}, func(name string) bool { return name == gatewayBeta })
	if got := said(t, s.open(), true); got != "v1/Gateway; v1beta1/Gateway; v1alpha3/EnvoyFilter" {
		t.Errorf("begins with %q", got)
	}
	one := []*anypb.Any{{TypeUrl: resourceType}}
	reply := func(typeURL, nonce string, items []*anypb.Any) *frame {
		return encode(t, &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: nonce, VersionInfo: "v", Resources: items})
	}
	for _, e := range []exchange{
		{reply(filterOld, "n1", nil), "", "whole 0 -0", "v1alpha3/EnvoyFilter ack n1 v", 1},
		{reply(gatewayV1, "n2", one), "", "whole 1 -0", "v1/Gateway ack n2 v", 1},
		{reply(gatewayBeta, "n3", nil), "", "whole 0 -0", "v1beta1/Gateway ack n3 v", 0},
	} {
		e.run(t, s, true)
	}
	s = newXDSSession(two(t), true, nil, ads.Limits{}, func(name string) bool { return name == gatewayBeta })
	s.open()
	for _, e := range []exchange{
		{reply(gatewayV1, "n1", nil), "", "whole 0 -0", "v1/Gateway ack n1 v", 2},
		{reply(gatewayBeta, "n2", nil), "", "whole 0 -0", "v1beta1/Gateway ack n2 v; v1alpha3/Gateway", 2},
	} {
		e.run(t, s, true)
	}
}

func TestDeltaSession(t *testing.T) {
	t.Parallel()
	s := newXDSSession(two(t), false, []byte{}, ads.Limits{}, never)
	if got := said(t, s.open(), false); got != "v1/Gateway node; v1alpha3/EnvoyFilter" {
		t.Errorf("begins with %q", got)
	}
	one := []*discoveryv3.Resource{{Name: "s/a"}}
	reply := func(typeURL, nonce string, items []*discoveryv3.Resource, removed ...string) *frame {
		return encode(t, &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: nonce, Resources: items, RemovedResources: removed})
	}
	for _, e := range []exchange{
		{reply(gatewayV1, "n1", one), "", "whole first 1 -0", "v1/Gateway ack n1", 1},
		{reply(gatewayV1, "n2", one, "s/b"), "", "1 -1", "v1/Gateway ack n2", 1},
		{reply(gatewayV1, "n3", nil, "s/a"), "", "0 -1", "v1/Gateway ack n3", 1},
		{reply(filterOld, "n4", one), "bad", "whole first 1 -0", "v1alpha3/EnvoyFilter nack n4 bad", 0},
	} {
		e.run(t, s, false)
	}
	if _, _, _, err := s.read(&frame{[]byte{0xff}}); err == nil {
		t.Error("nonsense was read")
	}
}

func TestLegacySession(t *testing.T) {
	t.Parallel()
	const gws, ses = "istio/networking/v1alpha3/gateways", "istio/networking/v1alpha3/serviceentries"
	lists, unknown := collectionsOf([]string{gws, ses})
	if unknown != "" {
		t.Fatal(unknown)
	}
	s := newLegacySession(lists, "a", true, 10)
	if got := said(t, s.open(), false); got != "v1alpha3/gateways incremental; v1alpha3/serviceentries incremental" {
		t.Errorf("begins with %q", got)
	}
	one := []*mcpv1.Resource{{}}
	for _, e := range []exchange{
		{&legacypb.Resources{Collection: triggerCollection}, "", "", `$triggerCollection nack  unsupported collection "$triggerCollection" incremental`, 2},
		{&legacypb.Resources{Collection: gws, Nonce: "1", Resources: one, RemovedResources: []string{"s/x"}}, "", "whole 1 -0", "v1alpha3/gateways ack 1 incremental", 1},
		// the first answer of a collection is all that there is, whatever the source calls it
		{&legacypb.Resources{Collection: ses, Nonce: "2", Resources: one, Incremental: true}, "", "whole first 1 -0", "v1alpha3/serviceentries ack 2 incremental", 0},
		{&legacypb.Resources{Collection: ses, Nonce: "3", Incremental: true, RemovedResources: []string{"s/a"}}, "", "0 -1", "v1alpha3/serviceentries ack 3 incremental", 0},
		{&legacypb.Resources{Collection: gws, Nonce: "4", Resources: one}, "bad", "whole 1 -0", "v1alpha3/gateways nack 4 bad incremental", 0},
	} {
		e.run(t, s, false)
	}
}

// Of the older protocol's messages the same is read as its library reads, and more than fits is refused before it is.
func TestReadBundle(t *testing.T) {
	t.Parallel()
	m := &legacypb.Resources{SystemVersionInfo: "v", Collection: "c", Nonce: "n", Incremental: true, RemovedResources: []string{"s/a", "s/b"},
		Resources: []*mcpv1.Resource{{}, {Metadata: &mcpv1.Metadata{Name: "s/c"}}}}
	m.ProtoReflect().SetUnknown([]byte{0xa0, 0x06, 0x01}) // a field of the future
	raw := encode(t, m).raw
	r, err := readBundle(raw, 4)
	if err != nil {
		t.Fatal(err)
	}
	if r.version != "v" || r.collection != "c" || r.nonce != "n" || !r.incremental || strings.Join(r.removed, " ") != "s/a s/b" || len(r.items) != 2 || len(r.items[0]) != 0 || len(r.items[1]) == 0 {
		t.Errorf("read %+v", r)
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"too many":   {raw, "more than 3 resources"},
		"cut":        {raw[:2], errNotResources.Error()},
		"bytes":      {[]byte{0xff}, errNotResources.Error()},
		"odd text":   {[]byte{5<<3 | 2, 1, 0xff}, "not valid UTF-8"},
		"large text": {encode(t, &legacypb.Resources{Collection: strings.Repeat("x", maxText+1)}).raw, "more than 8192"},
	} {
		if _, err := readBundle(c.raw, 3); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A source says who it is and what it wants in the way that Istio's servers read.
func TestNode(t *testing.T) {
	t.Parallel()
	raw, err := nodeOf("vm-1", "istio-system", "canary")
	if err != nil {
		t.Fatal(err)
	}
	n := &corev3.Node{}
	decode(t, raw, n)
	if n.Id != "sidecar~127.0.0.1~vm-1.istio-system~istio-system.svc.cluster.local" {
		t.Errorf("id is %q", n.Id)
	}
	for name, want := range map[string]string{"GENERATOR": "api", "ISTIO_REVISION": "canary", "NAMESPACE": "istio-system"} {
		if got := n.Metadata.Fields[name].GetStringValue(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// Whatever a server sends, nothing breaks, and what is answered can be sent.
func FuzzMessages(f *testing.F) {
	add := func(m proto.Message) {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	good := gateway("s/a", "1", "a.test")
	body := &anypb.Any{TypeUrl: resourceType, Value: good.raw}
	add(&discoveryv3.DiscoveryResponse{TypeUrl: gatewayV1, Nonce: "n", Resources: []*anypb.Any{body}})
	add(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: gatewayV1, Nonce: "n", Resources: []*discoveryv3.Resource{{Name: "s/a", Resource: body}}, RemovedResources: []string{"s/b"}})
	res := &mcpv1.Resource{}
	if err := proto.Unmarshal(good.raw, res); err != nil {
		f.Fatal(err)
	}
	add(&legacypb.Resources{Collection: "istio/networking/v1alpha3/gateways", Nonce: "1", Resources: []*mcpv1.Resource{res}, Incremental: true})
	f.Fuzz(func(t *testing.T, raw []byte) {
		lists, _ := collectionsOf(nil)
		c := testContent()
		m := &frame{raw}
		for i, s := range []session{newXDSSession(config.Kinds(), true, nil, ads.Limits{}, never), newXDSSession(config.Kinds(), false, nil, ads.Limits{}, never), newLegacySession(lists, "a", true, 1000)} {
			s.open()
			for stream := range uint64(2) {
				l, w, _, err := s.read(m)
				if err != nil || l == nil {
					continue
				}
				v := c.take(*l, w, stream+1, start)
				said(t, s.answer(l, w, v.refusal()), i == 0)
				for _, g := range c.groups() {
					for _, o := range c.update(g).Items {
						if problems, ok := config.Accept(&config.Object{Key: o.Key, Labels: o.Labels, Annotations: o.Annotations, Spec: o.Spec}); !ok {
							t.Errorf("%s counts: %v", o.Key, problems)
						}
					}
				}
				if n := len(v.refusal()); n > 5<<10 {
					t.Errorf("a refusal of %d bytes", n)
				}
			}
		}
	})
}
