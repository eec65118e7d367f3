package xds_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/ashore-mesh/ashore/internal/audit"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/xds"
	"github.com/ashore-mesh/ashore/xds/resource"
	"github.com/ashore-mesh/ashore/xds/xdstest"
)

// question asks as istioctl does: its client (pkg/adsc) has a nonce in its first request, and does
// not acknowledge answers.
func question(t *testing.T, p *plane, cert *tls.Certificate, typeURL string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}}
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := node(t, map[string]any{"GENERATOR": "event", "NAMESPACE": "istio-system", "SERVICE_ACCOUNT": "default"})
	if err := st.Send(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: typeURL, ResourceNames: names,
		ResponseNonce: time.Now().String()}); err != nil && !errors.Is(err, io.EOF) { // Recv says why it ended
		t.Fatal(err)
	}
	return st.Recv()
}

func someSecret(t *testing.T) *resource.Resource {
	t.Helper()
	text := func(s string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(s)}}
	}
	s := &tlsv3.Secret{Name: "key", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: text("the certificate"), PrivateKey: text("very private")}}}
	return resource.New(resource.SecretType, "key", nil, func() []byte { return resource.Encode(s) })
}

// Identities of the root namespace are answered as Istio answers istioctl, and private keys are in
// no answer. Other identities, and other questions, get an error.
func TestIstioctl(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	events := make(chan audit.Event, 100)
	p := newSecurePlane(t, a, func(c *xds.Config) {
		c.MayDebug = func(id spiffe.ID) bool { return id.Namespace == "istio-system" }
		c.Replica, c.Audit = "plane-1", func(e audit.Event) { events <- e }
	})
	p.publish(append(serving("a", 1), someSecret(t), xdstest.Listener("l", 80, "r"))...)
	proxy := call(t, p, a.web())
	if err := proxy.connects(node(t, map[string]any{"NAMESPACE": "shop", "ASHORE_VERSION": "v7"})); err != nil {
		t.Fatal(err)
	}
	proxy.says(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.SecretType, ResourceNamesSubscribe: []string{"key"}})
	if _, err := proxy.hears(resource.SecretType); err != nil {
		t.Fatal(err)
	}
	proxy.ask(nil, resource.ListenerType) // and does not answer
	if _, err := proxy.Recv(); err != nil {
		t.Fatal(err)
	}
	istioctl := a.issue("istio-system", "default", time.Hour, time.Now())

	r, err := question(t, p, &istioctl, "istio.io/debug/syncz")
	if err != nil || len(r.Resources) != 1 || !strings.Contains(r.ControlPlane.GetIdentifier(), `"ID":"plane-1"`) {
		t.Fatalf("syncz: %v, %v", r, err)
	}
	var c statusv3.ClientConfig
	if err := r.Resources[0].UnmarshalTo(&c); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, x := range c.GenericXdsConfigs {
		states[x.TypeUrl] = x.ConfigStatus.String()
	}
	if version := c.Node.Metadata.Fields["ISTIO_VERSION"].GetStringValue(); version != "v7" ||
		states[resource.SecretType] != "SYNCED" || states[resource.ListenerType] != "STALE" {
		t.Errorf("syncz: %v", &c)
	}

	r, err = question(t, p, &istioctl, "istio.io/debug/config_dump", c.Node.Id)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, section := range r.Resources {
		kinds = append(kinds, strings.TrimPrefix(section.TypeUrl, "type.googleapis.com/envoy.admin.v3."))
		if bytes.Contains(section.Value, []byte("very private")) {
			t.Errorf("%s has a private key", section.TypeUrl)
		}
	}
	if want := []string{"BootstrapConfigDump", "ClustersConfigDump", "ListenersConfigDump", "ScopedRoutesConfigDump",
		"RoutesConfigDump", "SecretsConfigDump", "EcdsConfigDump"}; !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
	var clusters adminv3.ClustersConfigDump
	if err := r.Resources[1].UnmarshalTo(&clusters); err != nil || len(clusters.DynamicActiveClusters) != 1 {
		t.Errorf("clusters %v, %v", &clusters, err)
	}

	for name, want := range map[string]string{
		"syncz": `"configStatus":"STALE"`,
		"config_dump?include_eds&proxyID=" + c.Node.Id: "EndpointsConfigDump",
	} {
		r, err := question(t, p, &istioctl, "istio.io/debug", name)
		if err != nil || len(r.Resources) != 1 {
			t.Errorf("%s: %v, %v", name, r, err)
			continue
		}
		var text bytes.Buffer // protobuf's JSON has spaces at random
		if err := json.Compact(&text, r.Resources[0].Value); err != nil || !strings.Contains(text.String(), want) ||
			strings.Contains(text.String(), "dmVyeSBwcml2YXRl") { // "very private" in base64
			t.Errorf("%s: %s (%v), want %s", name, text.String(), err, want)
		}
	}
	revoked := a.issue("istio-system", "default", time.Hour, time.Now().Add(-2*time.Hour))
	for _, tc := range []struct {
		name    string
		who     *tls.Certificate
		typeURL string
		names   []string
		want    codes.Code
	}{
		{"a workload", a.web(), "istio.io/debug/syncz", nil, codes.PermissionDenied},
		{"an expired certificate", &revoked, "istio.io/debug/syncz", nil, codes.Unauthenticated},
		{"no proxy", &istioctl, "istio.io/debug/config_dump", []string{"nobody"}, codes.NotFound},
		{"no name", &istioctl, "istio.io/debug/config_dump", nil, codes.InvalidArgument},
		{"an unknown type", &istioctl, "istio.io/debug/ndsz", nil, codes.Unimplemented},
		{"an unknown name", &istioctl, "istio.io/debug", []string{"ndsz"}, codes.Unimplemented},
	} {
		if r, err := question(t, p, tc.who, tc.typeURL, tc.names...); status.Code(err) != tc.want {
			t.Errorf("%s: got %v, %v, want %v", tc.name, r, err, tc.want)
		}
	}
	var refused, read int
	for len(events) > 0 {
		switch e := <-events; {
		case e.Action == audit.DumpRead && e.Outcome == audit.Refused:
			refused++
		case e.Action == audit.DumpRead && strings.Contains(e.Target, "config_dump"):
			read++
		}
	}
	if refused == 0 || read == 0 {
		t.Errorf("the audit log has %d refusals and %d dumps", refused, read)
	}
}

// Without a certificate nobody may ask, on a plaintext connection either.
func TestIstioctlWithoutIdentity(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, "127.0.0.1:0", func(c *xds.Config) { c.MayDebug = func(spiffe.ID) bool { return true } })
	p.publish(serving("a", 1)...)
	l := call(t, p, nil)
	l.ask(node(t, map[string]any{}), "istio.io/debug/syncz")
	if code := l.ended(); code != codes.Unauthenticated {
		t.Errorf("got %v", code)
	}
}

// gRPC clients without an Envoy are told that they are not supported.
func TestProxylessIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, "127.0.0.1:0", nil)
	p.publish(serving("a", 1)...)
	err := call(t, p, nil).connects(node(t, map[string]any{"GENERATOR": "grpc"}))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "not supported yet") {
		t.Errorf("got %v", err)
	}
}

// Istio's client takes a MeshConfig without acknowledging it. It counts as up to date.
func TestMeshConfigOfReaders(t *testing.T) {
	t.Parallel()
	p := newPlane(t, nil, "127.0.0.1:0", func(c *xds.Config) { c.Objects = meshLibrary{} })
	p.publish(serving("a", 1)...)
	l := call(t, p, nil)
	l.ask(node(t, map[string]any{}), "core/v1alpha1/MeshConfig")
	if _, err := l.Recv(); err != nil {
		t.Fatal(err)
	}
	if types := p.server.Proxies()[0].Types; len(types) != 1 || types[0].State() != "SYNCED" || !types[0].Latest {
		t.Errorf("got %+v", types)
	}
}

// meshLibrary has a MeshConfig for everybody.
type meshLibrary struct{}

func (meshLibrary) Knows(typeURL string) bool { return typeURL == "core/v1alpha1/MeshConfig" }

func (m meshLibrary) Set(typeURL string) (resource.Set, bool) {
	return resource.Set{}, m.Knows(typeURL)
}

func (meshLibrary) May(spiffe.ID) error { return nil }
