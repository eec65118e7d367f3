package secret

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/intern"
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

// roots is a file of trusted authorities on the proxy's machine, or systemRoots, and the file of
// what they have revoked (empty: nothing is looked up). Neither name holds "~".
type roots struct{ File, crl string }

// RootsOf are those that client settings name, else the machine's own.
func RootsOf(t *networking.ClientTLSSettings) roots {
	return roots{cmp.Or(t.GetCaCertificates(), systemRoots), t.GetCaCrl()}
}

// Name is "file-root:<file>", with revocations "file-root:<file>~<crl>". Source: Istio,
// SdsCertificateConfig.GetRootResourceName; the second form is ours.
func (r roots) Name() string {
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

// secretIn is everything that the choice of secrets depends on.
type secretIn struct {
	destinations *push.Destinations
	gateways     *intern.List[push.GatewayServer]
	// sidecar is set only when its ingress listeners end TLS.
	sidecar *push.SidecarConfig
}

// Plans implements envoy.Kind.
func (Generator) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	in := secretIn{destinations: sc.Destinations, gateways: sc.Gateways}
	if sc.Sidecar != nil && slices.ContainsFunc(sc.Sidecar.Spec.Ingress,
		func(l *networking.IstioIngressListener) bool { return l.Tls != nil }) {
		in.sidecar = sc.Sidecar
	}
	return in, nil
}

// Layer makes a secret of each file. Of equal ones the layer keeps one.
func (in secretIn) Layer() *envoy.Layer {
	var out secrets
	for _, dest := range in.destinations.Items() {
		destination.EachCluster(dest, func(port uint32, subset *networking.Subset, forwarded bool) {
			if !forwarded {
				out.client(destination.PolicyFor(dest.Rule, subset, port).Tls)
			}
		})
	}
	for _, g := range in.gateways.Items() {
		out.server(g.Server.GetTls())
	}
	if in.sidecar != nil {
		for _, l := range in.sidecar.Spec.Ingress {
			out.server(l.Tls)
		}
	}
	return envoy.NewLayer(out...)
}

// secrets collects the secrets of settings.
type secrets []*resource.Resource

// client adds what a cluster with settings t refers to.
func (s *secrets) client(t *networking.ClientTLSSettings) {
	if !destination.UsesTLS(t) {
		return
	}
	if t.Mode == networking.ClientTLSSettings_MUTUAL {
		s.certificate(Certificate{t.ClientCertificate, t.PrivateKey})
	}
	if !t.InsecureSkipVerify.GetValue() {
		*s = append(*s, buildRoots(RootsOf(t)))
	}
}

// server adds what a server with settings t refers to.
func (s *secrets) server(t *networking.ServerTLSSettings) {
	for _, c := range CertificatesOf(t) {
		s.certificate(c)
	}
	if r, asks := ClientRoots(t); asks && r.File != "" {
		*s = append(*s, buildRoots(r))
	}
}

func (s *secrets) certificate(c Certificate) {
	if c.Chain != "" {
		*s = append(*s, buildCertificate(c))
	}
}

// Certificate is a certificate chain and its key by the paths of their files on the proxy's
// machine. It comes as a secret that names the files, because only then Envoy takes them anew when
// they are replaced. Source: envoyproxy.io, TlsCertificate.watched_directory and "Key rotation".
type Certificate struct{ Chain, Key string }

// Name is "file-cert:<chain>~<key>". Source: Istio, SdsCertificateConfig.GetResourceName.
func (c Certificate) Name() string { return "file-cert:" + c.Chain + "~" + c.Key }

// CertificatesOf are those of a server: the first of several is what a client without SNI sees.
// None where the server shows the proxy's own, and without settings.
func CertificatesOf(t *networking.ServerTLSSettings) []Certificate {
	if t == nil || t.Mode == networking.ServerTLSSettings_ISTIO_MUTUAL {
		return nil
	}
	if len(t.TlsCertificates) > 0 {
		out := make([]Certificate, 0, len(t.TlsCertificates))
		for _, c := range t.TlsCertificates {
			out = append(out, Certificate{c.ServerCertificate, c.PrivateKey})
		}
		return out
	}
	return []Certificate{{t.GetServerCertificate(), t.GetPrivateKey()}}
}

// ClientRoots are the authorities of the clients of a server, and whether it asks clients for a
// certificate.
func ClientRoots(t *networking.ServerTLSSettings) (roots, bool) {
	switch t.GetMode() {
	case networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		return roots{t.CaCertificates, t.CaCrl}, true
	default:
		return roots{}, false
	}
}

// Trust makes t verify the peer: its chain ends in one of the roots, which have not revoked it, and
// it bears one of names (none: any).
func Trust(t *tlsv3.CommonTlsContext, r roots, names []string) {
	t.ValidationContextType = envoy.PeerValidation(Ref(r.Name()), envoy.ExactNames(names))
}
