package secret

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/destination"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// systemRoots stands for the machine's own trusted authorities. Source: Istio,
// FileRootSystemCACert: "file-root:system".
const systemRoots = "system"

// systemRootsFile is where they stand (Debian, Ubuntu, Alpine, SUSE, Arch; where a distribution
// keeps them elsewhere, caCertificates has to name the file).
const systemRootsFile = "/etc/ssl/certs/ca-certificates.crt"

// unavailable is a secret that nobody has. Connections that need it fail.
// Source: Istio, credentials.InvalidSecretTypeURI.
const unavailable = "invalid://"

// roots are trusted authorities: of a secret, or a file on the proxy's machine, or systemRoots, with
// the file of what they have revoked (empty: nothing is looked up). Neither file holds "~".
type roots struct{ File, crl, credential string }

// rootsOf are those that client settings name, else the machine's own.
func rootsOf(t *networking.ClientTLSSettings, may bool) roots {
	switch {
	case t.CredentialName == "":
		return roots{File: cmp.Or(t.CaCertificates, systemRoots), crl: t.CaCrl}
	case may:
		return roots{credential: secret.AuthoritiesResource(t.CredentialName)}
	default:
		return roots{credential: unavailable}
	}
}

// certificateOf is what clients with these settings show.
func certificateOf(t *networking.ClientTLSSettings, may bool) Certificate {
	switch {
	case t.CredentialName == "":
		return Certificate{Chain: t.ClientCertificate, Key: t.PrivateKey}
	case may:
		return Certificate{credential: secret.CertificateResource(t.CredentialName)}
	default:
		return Certificate{credential: unavailable}
	}
}

// Client makes t show the certificate of client settings, and verify the peer by their authorities
// and by names (none: any). may says whether the proxy may have the secret of a credentialName.
func Client(t *tlsv3.CommonTlsContext, settings *networking.ClientTLSSettings, may bool, names []string) {
	if settings.Mode == networking.ClientTLSSettings_MUTUAL {
		t.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{Ref(certificateOf(settings, may).Name())}
	}
	if !settings.InsecureSkipVerify.GetValue() {
		Trust(t, rootsOf(settings, may), names)
	}
}

// Name is that of the secret, or "file-root:<file>", with revocations "file-root:<file>~<crl>".
// Source: Istio, SdsCertificateConfig.GetRootResourceName; the last form is ours.
func (r roots) Name() string {
	if r.credential != "" {
		return r.credential
	}
	if r.crl == "" {
		return "file-root:" + r.File
	}
	return "file-root:" + r.File + "~" + r.crl
}

// buildRoots is the secret that names the files. As with certificates, Envoy takes both anew when
// one is replaced by rename, because they come as a secret; a list of revocations within a cluster
// would be read once.
func buildRoots(r roots) *resource.Resource {
	v := &tlsv3.CertificateValidationContext{TrustedCa: fileSource(r.File)}
	if r.File == systemRoots {
		v.TrustedCa = fileSource(systemRootsFile)
	}
	if r.crl != "" {
		v.Crl = fileSource(r.crl)
	}
	return resource.New(resource.SecretType, r.Name(), nil, func() []byte {
		return resource.Encode(&tlsv3.Secret{Name: r.Name(),
			Type: &tlsv3.Secret_ValidationContext{ValidationContext: v}})
	})
}

// Ref refers to a secret by name.
func Ref(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: envoy.FromADS()}
}

// fileSource is the content of a file. Envoy refuses to watch one whose name has no slash.
func fileSource(file string) *corev3.DataSource {
	if !strings.Contains(file, "/") {
		file = "./" + file
	}
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: file}}
}

// buildCertificate is the secret that names the files of a certificate. It holds no key: Envoy
// reads the files, watches their folders and takes both anew when they are replaced by rename,
// which it does only for certificates that come as secrets. Source: envoyproxy.io,
// TlsCertificate.watched_directory and "Key rotation".
func buildCertificate(c Certificate) *resource.Resource {
	return resource.New(resource.SecretType, c.Name(), nil, func() []byte {
		return resource.Encode(&tlsv3.Secret{Name: c.Name(), Type: &tlsv3.Secret_TlsCertificate{
			TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: fileSource(c.Chain), PrivateKey: fileSource(c.Key)},
		}})
	})
}

// Generator makes the secrets that clusters and listeners refer to.
type Generator struct{}

// secretIn is everything that the secrets depend on.
type secretIn struct {
	// secrets are those that the proxy may have.
	secrets      *secret.Namespace
	router       bool
	destinations *push.Destinations
	gateways     *intern.List[push.GatewayServer]
	// sidecar is set only when its ingress listeners end TLS.
	sidecar *push.SidecarConfig
	// unknown is the TLS of connections to unknown hosts; nil: they are not resolved.
	unknown *networking.ClientTLSSettings
}

// Plans implements envoy.Kind.
func (Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	in := secretIn{secrets: sc.Secrets, router: sc.Type == push.Router, destinations: sc.Destinations, gateways: sc.Gateways}
	if sc.Sidecar != nil && slices.ContainsFunc(sc.Sidecar.Spec.Ingress,
		func(l *networking.IstioIngressListener) bool { return l.Tls != nil }) {
		in.sidecar = sc.Sidecar
	}
	if destination.ResolvesUnknown(sc) {
		in.unknown = sc.Mesh.Config.GetOutboundTrafficPolicy().GetTls()
	}
	return in, nil
}

// Layer makes the secrets that clusters and listeners name, as far as they exist. Of equal ones the
// layer keeps one.
func (in secretIn) Layer() *envoy.Layer {
	out := secrets{from: in.secrets}
	for _, dest := range in.destinations.Items() {
		destination.EachCluster(dest, func(port uint32, subset *networking.Subset, forwarded bool) {
			if !forwarded {
				out.client(destination.PolicyFor(dest.Rule, subset, port), in.router)
			}
		})
	}
	out.client(destination.Policy{Tls: in.unknown}, false)
	for _, g := range in.gateways.Items() {
		out.server(g.Server.GetTls())
	}
	if in.sidecar != nil {
		for _, l := range in.sidecar.Spec.Ingress {
			out.server(l.Tls)
		}
	}
	return envoy.NewLayer(out.made...)
}

// secrets collects the secrets of settings.
type secrets struct {
	from *secret.Namespace // immutable
	made []*resource.Resource
}

// client adds what a cluster with policy p refers to.
func (s *secrets) client(p destination.Policy, router bool) {
	if !destination.UsesTLS(p.Tls) {
		return
	}
	may := router || p.Selected
	if p.Tls.Mode == networking.ClientTLSSettings_MUTUAL {
		s.certificate(certificateOf(p.Tls, may))
	}
	if !p.Tls.InsecureSkipVerify.GetValue() {
		s.roots(rootsOf(p.Tls, may))
	}
}

// server adds what a server with settings t refers to.
func (s *secrets) server(t *networking.ServerTLSSettings) {
	for _, c := range CertificatesOf(t) {
		s.certificate(c)
	}
	if r, asks := ClientRoots(t); asks {
		s.roots(r)
	}
}

func (s *secrets) certificate(c Certificate) {
	switch {
	case c.credential != "":
		s.credential(c.credential)
	case c.Chain != "":
		s.made = append(s.made, buildCertificate(c))
	}
}

func (s *secrets) roots(r roots) {
	switch {
	case r.credential != "":
		s.credential(r.credential)
	case r.File != "":
		s.made = append(s.made, buildRoots(r))
	}
}

// credential adds the secret that credentialName names. If it is missing, nothing is added, and the
// proxy gets the answer that it does not exist. Envoy then serves everything else. An Envoy that has
// the secret keeps it.
// Source: Envoy, SdsApi::onConfigUpdate: a removal is ignored, and ends the wait for the secret.
func (s *secrets) credential(name string) {
	v, ok := s.from.Resource(name)
	if !ok {
		return
	}
	s.made = append(s.made, resource.New(resource.SecretType, name, nil, func() []byte {
		m := &tlsv3.Secret{Name: name}
		if v.Certificate != "" {
			m.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
				CertificateChain: inline(v.Certificate), PrivateKey: inline(v.Key)}}
			return resource.Encode(m)
		}
		trusted := &tlsv3.CertificateValidationContext{TrustedCa: inline(v.Authorities)}
		if v.Revoked != "" {
			trusted.Crl = inline(v.Revoked)
		}
		m.Type = &tlsv3.Secret_ValidationContext{ValidationContext: trusted}
		return resource.Encode(m)
	}))
}

func inline(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(text)}}
}

// Certificate is a certificate chain and its key: a secret, or the paths of their files on the
// proxy's machine. Files come as a secret that names them, because only then Envoy takes them anew
// when they are replaced. Source: envoyproxy.io, TlsCertificate.watched_directory and "Key rotation".
type Certificate struct{ Chain, Key, credential string }

// Name is that of the secret, or "file-cert:<chain>~<key>". Source: Istio,
// SdsCertificateConfig.GetResourceName.
func (c Certificate) Name() string { return cmp.Or(c.credential, "file-cert:"+c.Chain+"~"+c.Key) }

// CertificatesOf are those of a server: the first of several is what a client without SNI sees.
// None where the server shows the proxy's own, and without settings.
func CertificatesOf(t *networking.ServerTLSSettings) []Certificate {
	if t == nil || t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL {
		return nil
	}
	var out []Certificate
	names, _ := push.ServerSecrets(t)
	for _, name := range names {
		out = append(out, Certificate{credential: name})
	}
	for _, c := range t.TlsCertificates {
		out = append(out, Certificate{Chain: c.ServerCertificate, Key: c.PrivateKey})
	}
	if len(out) == 0 {
		out = []Certificate{{Chain: t.ServerCertificate, Key: t.PrivateKey}}
	}
	return out
}

// ClientRoots are the authorities of the clients of a server, and whether it asks clients for a
// certificate.
func ClientRoots(t *networking.ServerTLSSettings) (roots, bool) {
	switch t.GetMode() {
	case networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		if _, authorities := push.ServerSecrets(t); authorities != "" {
			return roots{credential: authorities}, true
		}
		return roots{File: t.CaCertificates, crl: t.CaCrl}, true
	default:
		return roots{}, false
	}
}

// Trust makes t verify the peer: its chain ends in one of the roots, which have not revoked it, and
// it bears one of names (none: any).
func Trust(t *tlsv3.CommonTlsContext, r roots, names []string) {
	t.ValidationContextType = envoy.PeerValidation(Ref(r.Name()), envoy.ExactNames(names))
}
