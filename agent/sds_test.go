package agent

import (
	"context"
	"errors"
	"fmt"
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
)

// secretClient is a client of the secrets of k, over a unix socket.
func secretClient(t *testing.T, k *Keeper) (secretv3.SecretDiscoveryServiceClient, *secrets) {
	t.Helper()
	s := newSecrets(k, testlog.New(t))
	path := filepath.Join(stateFolder(t), "s")
	l, err := listenUnix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serveLocal(ctx, newLocalServer(s), l) }()
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
	return secretv3.NewSecretDiscoveryServiceClient(conn), s
}

// bounded is a context that ends long after any answer.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

// In both forms of the protocol Envoy gets the key and the roots when it asks, a new certificate alone when that changed, and
// all of it again when somebody pushes.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%v", delta), func(t *testing.T) {
			t.Parallel()
			m := newMesh(t, "cluster.local")
			k := kept(t, m, time.Hour)
			client, _ := secretClient(t, k)
			receive, acknowledge := deltaSecrets(t, client)
			if !delta {
				receive, acknowledge = stateSecrets(t, client)
			}
			expect := func(what string, want map[string]string) {
				t.Helper()
				got := map[string]string{}
				for range len(want) {
					name, serial := receive()
					got[name] = serial
					acknowledge()
				}
				for name, serial := range want {
					if got[name] != serial {
						t.Errorf("%s: %v, want %v", what, got, want)
					}
				}
			}
			root := serialText(m.root.Cert)
			expect("the first", map[string]string{secretCertificate: k.Identity().Serial(), secretRoots: root})
			next := m.identity(t, web(), time.Hour)
			if err := k.take(next, time.Now()); err != nil {
				t.Fatal(err)
			}
			expect("a new certificate", map[string]string{secretCertificate: next.Serial()})
			// What is on its way counts as pushed, and the last acknowledgement may be late: pushed until both came again.
			seen := map[string]bool{}
			_, end := contextUntil(t, func() bool { k.Push(); return false })
			for len(seen) < 2 {
				name, _ := receive()
				seen[name] = true
				acknowledge()
			}
			end()
		})
	}
}

// deltaSecrets asks for both secrets.
func deltaSecrets(t *testing.T, client secretv3.SecretDiscoveryServiceClient) (receive func() (name, serial string), acknowledge func()) {
	t.Helper()
	st, err := client.DeltaSecrets(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	nonce := ""
	send := func(r *discoveryv3.DeltaDiscoveryRequest) {
		t.Helper()
		r.TypeUrl = secretType
		if err := st.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{secretCertificate, secretRoots}})
	return func() (string, string) {
			t.Helper()
			r, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			nonce = r.GetNonce()
			var all []*anypb.Any
			for _, x := range r.GetResources() {
				all = append(all, x.GetResource())
			}
			return certificateOf(t, all...)
		}, func() {
			t.Helper()
			send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: nonce})
		}
}

// stateSecrets asks for both secrets, in the form of the protocol without differences.
func stateSecrets(t *testing.T, client secretv3.SecretDiscoveryServiceClient) (receive func() (name, serial string), acknowledge func()) {
	t.Helper()
	st, err := client.StreamSecrets(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	var last *discoveryv3.DiscoveryResponse
	send := func() {
		t.Helper()
		r := &discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{secretCertificate, secretRoots}, ResponseNonce: last.GetNonce(), VersionInfo: last.GetVersionInfo()}
		if err := st.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	send()
	return func() (string, string) {
		t.Helper()
		if last, err = st.Recv(); err != nil {
			t.Fatal(err)
		}
		return certificateOf(t, last.GetResources()...)
	}, send
}

// What Envoy refuses is known, with its words; a type that is not a secret ends the stream; a name that nobody has is
// answered as one that does not exist.
func TestSecretsRefused(t *testing.T) {
	t.Parallel()
	k := kept(t, newMesh(t, "cluster.local"), time.Hour)
	client, s := secretClient(t, k)
	st, err := client.DeltaSecrets(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType, ResourceNamesSubscribe: []string{secretCertificate, "file-cert:x"}}); err != nil {
		t.Fatal(err)
	}
	var removed []string
	for range 2 {
		r, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if removed = append(removed, r.GetRemovedResources()...); len(r.GetResources()) == 0 {
			continue
		}
		if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType, ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Code: 3, Message: "bad key"}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(removed) != 1 || removed[0] != "file-cert:x" {
		t.Errorf("removed %v, want the name that nobody has", removed)
	}
	eventually(t, "the refusal is known", func() error {
		if words := s.Refusal(); words != "bad key" {
			return fmt.Errorf("refused: %q", words)
		}
		return nil
	})
	if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType, ResourceNamesSubscribe: []string{secretRoots}}); err != nil {
		t.Fatal(err)
	}
	r, err := st.Recv()
	if err != nil {
		t.Fatal(err)
	}
	// the third request is taken in when the second is answered
	if err := errors.Join(st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType, ResponseNonce: r.GetNonce()}),
		st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secretType, ResourceNamesSubscribe: []string{"file-cert:y"}})); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	if words := s.Refusal(); words != "bad key" {
		t.Errorf("refused once the roots were acknowledged: %q", words)
	}
	if err := st.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeCluster}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("clusters from the secrets' service: %v", err)
	}
}
