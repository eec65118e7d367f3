package agent

import (
	"fmt"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// The secrets that Envoy subscribes to, by Istio's names.
const (
	secretCertificate = "default" // the workload's key and certificates
	secretRoots       = "ROOTCA"  // the trust bundle
)

// secrets is Envoy's secret discovery service (state of the world). Envoy opens one stream for each
// secret and does not change its names.
type secrets struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	certs *CertManager
	log   hclog.Logger
}

func newSecrets(k *CertManager, log hclog.Logger) *secrets {
	return &secrets{certs: k, log: log.Named("sds")}
}

// Register adds the service to a server.
func (s *secrets) Register(g *grpc.Server) { secretv3.RegisterSecretDiscoveryServiceServer(g, s) }

// StreamSecrets sends the secrets that the first request names, again after each change of the
// identity. Envoy ignores a secret that has not changed.
func (s *secrets) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	first, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case first.GetTypeUrl() != resource.SecretType:
		return status.Errorf(codes.InvalidArgument, "type %.200q is not served here, %s is", first.GetTypeUrl(),
			resource.SecretType)
	}
	go func() { // until the stream ends
		for r, err := stream.Recv(); err == nil; r, err = stream.Recv() {
			if e := r.GetErrorDetail(); e != nil {
				s.log.Error("envoy rejects its certificate or the roots: restart this agent, or join again",
					"error", e.GetMessage())
			}
		}
	}()
	changed := s.certs.Watch(stream.Context())
	for nonce := 1; ; nonce++ {
		response, err := secretsOf(s.certs.Identity(), first.GetResourceNames())
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		response.Nonce = strconv.Itoa(nonce)
		response.VersionInfo = response.GetNonce()
		if err := stream.Send(response); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// secretsOf returns a response with the named secrets of an identity.
func secretsOf(id *Identity, names []string) (*discoveryv3.DiscoveryResponse, error) {
	key, err := ca.EncodeKey(id.Key)
	if err != nil {
		return nil, fmt.Errorf("encode the key: %w", err)
	}
	out := &discoveryv3.DiscoveryResponse{TypeUrl: resource.SecretType}
	for _, secret := range []*tlsv3.Secret{
		{Name: secretCertificate, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(ca.EncodeCertificates(id.Chain...)), PrivateKey: inline(key)}}},
		{Name: secretRoots, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inline(id.Roots.PEM())}}},
	} {
		if !slices.Contains(names, secret.GetName()) {
			continue
		}
		packed, err := anypb.New(secret)
		if err != nil {
			return nil, fmt.Errorf("encode a secret: %w", err)
		}
		out.Resources = append(out.Resources, packed)
	}
	return out, nil
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
