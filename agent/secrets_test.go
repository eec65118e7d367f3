package agent

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/testlog"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// secretClient is a client of the secrets of k, over a unix socket.
func secretClient(t *testing.T, k *CertManager) secretv3.SecretDiscoveryServiceClient {
	t.Helper()
	s := newSecrets(k, testlog.New(t))
	path := filepath.Join(stateFolder(t), "s")
	l, err := listenUnix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := newLocalServer()
	s.Register(server)
	go func() { done <- serveLocal(ctx, server, l) }()
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return secretv3.NewSecretDiscoveryServiceClient(conn)
}

// bounded is a context that ends long after any answer.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// certificateOf is the certificate in the secret of a response.
func certificateOf(t *testing.T, resources ...*anypb.Any) (name, serial string) {
	t.Helper()
	if len(resources) != 1 {
		t.Fatalf("%d secrets in one response, want one: Envoy tells of one which it refuses", len(resources))
	}
	var s tlsv3.Secret
	if err := resources[0].UnmarshalTo(&s); err != nil {
		t.Fatal(err)
	}
	text := s.GetTlsCertificate().GetCertificateChain().GetInlineBytes()
	if s.GetName() == secretRoots {
		text = s.GetValidationContext().GetTrustedCa().GetInlineBytes()
	} else if _, err := ca.DecodeKey(s.GetTlsCertificate().GetPrivateKey().GetInlineBytes()); err != nil {
		t.Error(err)
	}
	certs, err := ca.DecodeCertificates(text)
	if err != nil {
		t.Fatal(err)
	}
	return s.GetName(), serialText(certs[0])
}

// Envoy gets the key and the roots on streams of their own, and each again when it changes.
func TestSecrets(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "cluster.local")
	k := kept(t, m, time.Hour)
	client := secretClient(t, k)
	certificate, roots := subscribe(t, client, secretCertificate), subscribe(t, client, secretRoots)
	root := serialText(m.root.Cert)
	if _, serial := certificateOf(t, certificate.receive(t)...); serial != k.Identity().Serial() {
		t.Errorf("certificate %s, want %s", serial, k.Identity().Serial())
	}
	if _, serial := certificateOf(t, roots.receive(t)...); serial != root {
		t.Errorf("root %s, want %s", serial, root)
	}
	certificate.answer(t, "")
	roots.answer(t, "bad root")
	next := m.identity(t, web(), time.Hour)
	if err := k.take(next, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, serial := certificateOf(t, certificate.receive(t)...); serial != next.Serial() {
		t.Errorf("after the renewal: certificate %s, want %s", serial, next.Serial())
	}
	certificate.answer(t, "")
	other := newMesh(t, "cluster.local")
	if err := k.SetRoots([]string{string(ca.EncodeCertificates(m.root.Cert, other.root.Cert))}); err != nil {
		t.Fatal(err)
	}
	roots.receive(t) // after the renewal
	roots.receive(t)
	roots.answer(t, "")
	if resources := subscribe(t, client, "file-cert:x").receive(t); len(resources) != 0 {
		t.Errorf("an unknown name: %v", resources)
	}
}

// A type other than secrets ends the stream.
func TestSecretsType(t *testing.T) {
	t.Parallel()
	client := secretClient(t, kept(t, newMesh(t, "cluster.local"), time.Hour))
	st, err := client.StreamSecrets(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&discoveryv3.DiscoveryRequest{TypeUrl: typeCluster}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("clusters from the secret service: %v", err)
	}
}

// secretSubscription is a stream of Envoy for one secret.
type secretSubscription struct {
	stream secretv3.SecretDiscoveryService_StreamSecretsClient
	names  []string
	last   *discoveryv3.DiscoveryResponse
}

func subscribe(t *testing.T, client secretv3.SecretDiscoveryServiceClient, name string) *secretSubscription {
	t.Helper()
	st, err := client.StreamSecrets(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &secretSubscription{stream: st, names: []string{name}}
	s.answer(t, "")
	return s
}

func (s *secretSubscription) receive(t *testing.T) []*anypb.Any {
	t.Helper()
	var err error
	if s.last, err = s.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return s.last.GetResources()
}

// answer accepts the last response, or rejects it with a message.
func (s *secretSubscription) answer(t *testing.T, message string) {
	t.Helper()
	r := &discoveryv3.DiscoveryRequest{TypeUrl: resource.SecretType, ResourceNames: s.names,
		ResponseNonce: s.last.GetNonce(), VersionInfo: s.last.GetVersionInfo()}
	if message != "" {
		r.ErrorDetail = &rpcstatus.Status{Code: 3, Message: message}
	}
	if err := s.stream.Send(r); err != nil {
		t.Fatal(err)
	}
}
