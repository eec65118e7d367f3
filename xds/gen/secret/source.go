package secret

import (
	"cmp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

const (
	// systemRoots stands for the machine's own trusted authorities. Source: Istio,
	// FileRootSystemCACert: "file-root:system".
	systemRoots = "system"
	// systemRootsFile is their file on Debian, Ubuntu, Alpine, SUSE and Arch. On other distributions
	// caCertificates has to name the file.
	systemRootsFile = "/etc/ssl/certs/ca-certificates.crt"
	// unavailable is a secret that nobody has. Connections that need it fail.
	// Source: Istio, credentials.InvalidSecretTypeURI.
	unavailable = "invalid://"
)

// Source is where a certificate with its key, or trusted authorities come from: one of ashored's
// secrets, or files on the proxy's machine.
type Source struct {
	// Name is that of Envoy's secret: "kubernetes://<credentialName>", "file-cert:<chain>~<key>",
	// "file-root:<authorities>", or with revocations "file-root:<authorities>~<crl>".
	// Source: Istio, SdsCertificateConfig; the last form is ours. No name of a file contains "~".
	Name string
	// files has the names of the files. Zero: it is one of ashored's secrets.
	files secret.Secret
}

func certificateFiles(chain, key string) *Source {
	return &Source{"file-cert:" + chain + "~" + key, secret.Secret{Certificate: chain, Key: key}}
}

func authorityFiles(authorities, crl string) *Source {
	name := "file-root:" + authorities
	if crl != "" {
		name += "~" + crl
	}
	if authorities == systemRoots {
		authorities = systemRootsFile
	}
	return &Source{name, secret.Secret{Authorities: authorities, Revoked: crl}}
}

// clientSources returns the certificate that clients with settings t show, and the authorities that
// they trust. Either is nil if they do not. may says whether they may have the secret of a
// credentialName.
func clientSources(t *networking.ClientTLSSettings, may bool) (certificate, authorities *Source) {
	credential := func(name string) *Source {
		if !may {
			name = unavailable
		}
		return &Source{Name: name}
	}
	if t.GetMode() == networking.ClientTLSSettings_MUTUAL {
		certificate = certificateFiles(t.ClientCertificate, t.PrivateKey)
		if t.CredentialName != "" {
			certificate = credential(secret.CertificateResource(t.CredentialName))
		}
	}
	if destination.UsesTLS(t) && !t.InsecureSkipVerify.GetValue() {
		authorities = authorityFiles(cmp.Or(t.CaCertificates, systemRoots), t.CaCrl)
		if t.CredentialName != "" {
			authorities = credential(secret.AuthoritiesResource(t.CredentialName))
		}
	}
	return certificate, authorities
}

// CertificatesOf returns the certificates of a server. A client without SNI gets the first. There are
// none without settings, and where the server shows the certificate of the mesh.
func CertificatesOf(t *networking.ServerTLSSettings) (out []*Source) {
	if t == nil || t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL {
		return nil
	}
	names, _ := push.ServerSecrets(t)
	for _, name := range names {
		out = append(out, &Source{Name: name})
	}
	for _, c := range t.TlsCertificates {
		out = append(out, certificateFiles(c.ServerCertificate, c.PrivateKey))
	}
	if len(out) == 0 {
		out = append(out, certificateFiles(t.ServerCertificate, t.PrivateKey))
	}
	return out
}

// ClientAuthorities returns the authorities of the clients of a server. Nil means that the server
// asks clients for no certificate, or for one of the mesh.
func ClientAuthorities(t *networking.ServerTLSSettings) *Source {
	switch t.GetMode() {
	case networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		if _, name := push.ServerSecrets(t); name != "" {
			return &Source{Name: name}
		}
		return authorityFiles(t.CaCertificates, t.CaCrl)
	}
	return nil
}

// Client makes t show the certificate of client settings, and verify the peer by their authorities
// and by names (none: any). may says whether the proxy may have the secret of a credentialName.
func Client(t *tlsv3.CommonTlsContext, settings *networking.ClientTLSSettings, may bool, names []string) {
	certificate, authorities := clientSources(settings, may)
	if certificate != nil {
		t.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{certificate.Ref()}
	}
	if authorities != nil {
		Trust(t, authorities, names)
	}
}

// Trust makes t verify the peer: its chain ends in one of the authorities, which have not revoked it,
// and it bears one of names (none: any).
func Trust(t *tlsv3.CommonTlsContext, authorities *Source, names []string) {
	t.ValidationContextType = envoy.PeerValidation(authorities.Ref(), envoy.ExactNames(names))
}

// Ref refers to the secret by name.
func (s *Source) Ref() *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: s.Name, SdsConfig: envoy.FromADS()}
}

// build makes Envoy's secret of v, whose texts data turns into Envoy's.
func (s *Source) build(v secret.Secret, data func(string) *corev3.DataSource) *resource.Resource {
	return resource.New(resource.SecretType, s.Name, nil, func() []byte {
		m := &tlsv3.Secret{Name: s.Name}
		if v.Certificate != "" {
			m.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
				CertificateChain: data(v.Certificate), PrivateKey: data(v.Key)}}
			return resource.Encode(m)
		}
		trusted := &tlsv3.CertificateValidationContext{TrustedCa: data(v.Authorities)}
		if v.Revoked != "" {
			trusted.Crl = data(v.Revoked)
		}
		m.Type = &tlsv3.Secret_ValidationContext{ValidationContext: trusted}
		return resource.Encode(m)
	})
}

// inFile is the content of a file. Envoy refuses to watch one whose name has no slash.
func inFile(file string) *corev3.DataSource {
	if !strings.Contains(file, "/") {
		file = "./" + file
	}
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: file}}
}

func inline(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(text)}}
}
