package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"google.golang.org/protobuf/types/known/anypb"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/internal/strictyaml"
	"github.com/ashore-mesh/ashore/internal/testlog"
)

// fromAgent is where Envoy gets a secret: as the control plane says it.
func fromAgent(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: clusterSDS}}}},
		}}}}
}

// mutual makes a listener demand and present certificates of the mesh.
func mutual(t *testing.T, l *listenerv3.Listener) {
	t.Helper()
	socket, err := anypb.New(&tlsv3.DownstreamTlsContext{
		RequireClientCertificate: wrapperspb.Bool(true),
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{fromAgent(secretCertificate)},
			ValidationContextType:          &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{ValidationContextSdsSecretConfig: fromAgent(secretRoots)},
		}})
	if err != nil {
		t.Fatal(err)
	}
	l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: socket}}
}

// resources is the ADS of a control plane that also serves its authority.
func resources(t *testing.T, clusters []*clusterv3.Cluster, listeners []*listenerv3.Listener) (*controlPlane,
	func(*grpc.Server)) {
	t.Helper()
	c := &controlPlane{resources: map[string][]*discoveryv3.Resource{}}
	for _, m := range clusters {
		c.add(t, typeCluster, m.GetName(), m)
	}
	for _, m := range listeners {
		c.add(t, typeListener, m.GetName(), m)
	}
	return c, func(g *grpc.Server) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, c) }
}

// member joins p, and starts the workload's agent.
func member(t *testing.T, p *fakePlane, address string, edit func(*Settings)) (*running, *Identity) {
	t.Helper()
	c := joining(t, p)
	c.Settings.Workload.Addresses = []string{address}
	r, err := Join(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, ownSettings(t, r.Settings.State, edit)), r.Identity
}

// ownSettings are those that a workload runs with after its join.
func ownSettings(t *testing.T, state string, edit func(*Settings)) Settings {
	t.Helper()
	s := Default()
	text, err := os.ReadFile(JoinedSettings(state))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := strictyaml.Decode("own", text, &s); err != nil {
		t.Fatal(err)
	}
	s.State = state
	if edit != nil {
		edit(&s)
	}
	if err := s.Complete(); err != nil {
		t.Fatal(err)
	}
	return s
}

// hello connects to a workload with mutual TLS, mine or none, and returns the serial number that it
// presents.
func hello(at string, mine *Identity, roots *Identity) (serial string, err error) {
	// the chain is looked at by the caller: workloads have no names
	cfg := &tls.Config{InsecureSkipVerify: true, RootCAs: roots.Roots.Pool()}
	if mine != nil {
		cfg.Certificates = []tls.Certificate{*mine.Certificate()}
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: testTimeout}, "tcp", at, cfg)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		return "", err
	}
	buf := make([]byte, 2)
	if _, err := conn.Write([]byte("hi")); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(conn, buf); err != nil {
		return "", err
	}
	return serialText(conn.ConnectionState().PeerCertificates[0]), nil
}

// A workload that joined runs on mutual TLS: a real Envoy presents the issued certificate and
// accepts only callers of the mesh. It presents the next certificate after a renewal, without a
// failed request. It restarts, reports its status, and leaves.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	const address = "127.0.15.20"
	m := newMesh(t, "cluster.local")
	clusters, listeners := tcpForward(t, address+":9443", echoService(t))
	mutual(t, listeners[0])
	plane, register := resources(t, clusters, listeners)
	p := startPlane(t, m, "127.0.15.21:0", register)
	r, first := member(t, p, address, nil)
	r.ready(statusPort)
	r.ready(healthPort)

	caller := m.identity(t, spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "caller"},
		time.Hour)
	stranger := newMesh(t, "cluster.local").identity(t, caller.ID, time.Hour)
	for name, who := range map[string]*Identity{"without a certificate": nil, "of another mesh": stranger} {
		if _, err := hello(address+":9443", who, first); err == nil {
			t.Errorf("a caller %s is served", name)
		}
	}
	seen := []string{}
	eventually(t, "the next certificate", func() error {
		serial, err := hello(address+":9443", caller, first)
		if err != nil {
			t.Fatalf("a request failed, after %v: %v", seen, err)
		}
		if !slices.Contains(seen, serial) {
			seen = append(seen, serial)
			if len(seen) == 1 {
				r.agent.certs.now <- struct{}{} // as if it were time
			}
		}
		if len(seen) < 2 {
			return fmt.Errorf("it presents %v", seen)
		}
		return nil
	})
	if seen[0] != first.Serial() {
		t.Errorf("it presented %s first, issued was %s", seen[0], first.Serial())
	}
	id, joined, err := store{r.s.State}.load()
	if err != nil || id.Serial() != seen[1] || keyHash(id.Key) == keyHash(first.Key) ||
		!joined.Renewed.After(joined.At) {
		t.Errorf("on disk: %v, %v; want %s with a new key", id, err, seen[1])
	}
	if asked := p.requests(); len(asked) != 2 || asked[1].token != "" || len(asked[1].peer) != 2 ||
		serialText(asked[1].peer[0]) != first.Serial() {
		t.Errorf("the renewal was not asked for with the former certificate")
	}
	if got := plane.introduced().GetMetadata().GetFields(); got["AUTO_REGISTER_GROUP"].GetStringValue() != "web" ||
		got["SERVICE_ACCOUNT"].GetStringValue() != "web" || got["NAMESPACE"].GetStringValue() != "shop" {
		t.Errorf("node %v", got)
	}
	wellStatus(t, r, seen[1])
	wantMetrics(t, r)

	// Envoy and agent start again without asking for a certificate.
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	again := start(t, ownSettings(t, r.s.State, nil))
	eventually(t, "the same certificate", func() error {
		serial, err := hello(address+":9443", caller, first)
		if err == nil && serial != seen[1] {
			err = fmt.Errorf("it presents %s, on disk is %s", serial, seen[1])
		}
		return err
	})
	if n := len(p.requests()); n != 2 {
		t.Errorf("%d certificates were asked for, want 2", n)
	}
	leaves(t, again)
}

// wellStatus wants every line, all well, with the latest certificate.
func wellStatus(t *testing.T, r *running, serial string) {
	t.Helper()
	var text strings.Builder
	eventually(t, "a status that is well", func() error {
		report, err := Status(context.Background(), r.s.State)
		if err != nil {
			return err
		}
		text.Reset()
		if err := report.Write(&text); err != nil {
			return err
		}
		if !report.Well || !strings.Contains(text.String(), ", healthy") || report.Serial != serial ||
			report.PID != os.Getpid() {
			return fmt.Errorf("not well:\n%s", text.String())
		}
		return nil
	})
	if lines := strings.Split(strings.TrimSpace(text.String()), "\n"); len(lines) != 10 {
		t.Errorf("want 10 lines:\n%s", text.String())
	}
	for _, want := range []string{"spiffe://cluster.local/ns/shop/sa/web, joined ", serial + " ends in ",
		"version 1.40.0, restarts 0, ready", "shop/web at 127.0.15.20, healthy", "live"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("want %q in:\n%s", want, text.String())
		}
	}
	if info, err := os.Stat(filepath.Join(r.s.State, agentSocket)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("agent socket: %v, %v; want mode 0600", info, err)
	}
	if info, err := os.Stat(r.s.xdsSocket()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("xDS socket: %v, %v; want mode 0600", info, err)
	}
}

// wantMetrics wants the agent's own metrics and Envoy's at the status port.
func wantMetrics(t *testing.T, r *running) {
	t.Helper()
	code, body, err := r.get(http.MethodGet, statusPort, "/metrics")
	if err != nil || code != http.StatusOK {
		t.Fatalf("metrics: %d, %v", code, err)
	}
	for _, want := range []string{"ashore_agent_certificate_expiry_timestamp_seconds 1", "ashore_agent_certificate_renewals_total 1",
		"ashore_agent_xds_connected 1", "ashore_agent_envoy_up 1", "envoy_server_live"} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics are without %q:\n%.3000s", want, body)
		}
	}
}

// leaves makes the workload leave, and wants nothing to be left.
func leaves(t *testing.T, r *running) {
	t.Helper()
	if err := Leave(context.Background(), r.s.State, testTimeout); err != nil {
		t.Fatal(err)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(r.s.State); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
	if _, err := New(Config{Settings: r.s, Log: testlog.New(t)}); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("started again: %v; want that it has not joined", err)
	}
	report, err := Status(context.Background(), r.s.State)
	if err != nil || report.Well || !strings.Contains(report.Lines[0].Text, "has not joined") {
		t.Errorf("status: %+v, %v", report, err)
	}
}
