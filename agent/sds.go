package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// The secrets that Envoy subscribes to, by Istio's names.
const (
	secretCertificate = "default" // the workload's key and certificates
	secretRoots       = "ROOTCA"  // the trust bundle
)

// secrets is Envoy's secret discovery service, state of the world. Envoy opens one stream for each
// secret.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	keeper *Keeper
	log    hclog.Logger

	mu       sync.Mutex
	rejected map[string]string // guarded by mu: Envoy's message by the name of the secret that it rejected last
}

func newSecrets(k *Keeper, log hclog.Logger) *secrets {
	return &secrets{keeper: k, log: log.Named("sds"), rejected: map[string]string{}}
}

// Register adds the service to a server.
func (s *secrets) Register(g *grpc.Server) { secretv3.RegisterSecretDiscoveryServiceServer(g, s) }

// Rejected is why Envoy rejects a secret, empty when it accepts all of them.
func (s *secrets) Rejected() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.rejected)) {
		return s.rejected[name]
	}
	return ""
}

// note records Envoy's answer to a response with these secrets; message is empty when it accepted
// them.
func (s *secrets) note(names []string, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if delete(s.rejected, name); message != "" {
			s.rejected[name] = message
		}
	}
}

// StreamSecrets sends the secrets that Envoy subscribes to, and each of them again when it changes.
func (s *secrets) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	changed, forget := s.keeper.Changed()
	defer forget()
	requests, ended := make(chan *discoveryv3.DiscoveryRequest), make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	var names []string
	var last discoveryv3.DiscoveryResponse
	defer func() { s.note(names, "") }()
	for nonce := 1; ; {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-changed:
		case r := <-requests:
			if r.GetTypeUrl() != resource.SecretType {
				return status.Errorf(codes.InvalidArgument, "type %.200q is not served here, %s is", r.GetTypeUrl(),
					resource.SecretType)
			}
			if r.GetResponseNonce() != last.GetNonce() {
				continue // the answer to an earlier response
			}
			message := ""
			if e := r.GetErrorDetail(); e != nil {
				message = cmp.Or(e.GetMessage(), "Envoy gave no reason")
				s.log.Error("envoy rejects its certificate or the roots", "error", message)
			}
			s.note(names, message)
			if !slices.Equal(names, r.GetResourceNames()) {
				names, last.VersionInfo = r.GetResourceNames(), ""
			}
		}
		next, err := secretsOf(s.keeper.Identity(), names)
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		if len(names) == 0 || next.GetVersionInfo() == last.GetVersionInfo() {
			continue
		}
		next.Nonce = strconv.Itoa(nonce)
		nonce++
		last.Nonce, last.VersionInfo = next.GetNonce(), next.GetVersionInfo()
		if err := stream.Send(next); err != nil {
			return err
		}
	}
}

// secretsOf is a response with the named secrets of an identity. The version is a hash of the
// content.
func secretsOf(id *Identity, names []string) (*discoveryv3.DiscoveryResponse, error) {
	key, err := ca.EncodeKey(id.Key)
	if err != nil {
		return nil, fmt.Errorf("encode the key: %w", err)
	}
	out, sum := &discoveryv3.DiscoveryResponse{TypeUrl: resource.SecretType}, sha256.New()
	for _, secret := range []*tlsv3.Secret{
		{Name: secretCertificate, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(ca.EncodeCertificates(id.Chain...)), PrivateKey: inline(key)}}},
		{Name: secretRoots, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inline(ca.EncodeCertificates(id.Roots...))}}},
	} {
		if !slices.Contains(names, secret.GetName()) {
			continue
		}
		packed, err := pack(secret)
		if err != nil {
			return nil, err
		}
		out.Resources = append(out.Resources, packed)
		sum.Write(packed.GetValue())
	}
	out.VersionInfo = hex.EncodeToString(sum.Sum(nil))
	return out, nil
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// pack puts a message into an Any.
func pack(m proto.Message) (*anypb.Any, error) {
	a, err := anypb.New(m)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return a, nil
}
