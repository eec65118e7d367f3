package settings

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/dnsname"
)

// CA configures the certificate authority. There is one when xds.address is set.
type CA struct {
	// Plugged is a folder with Istio's four files (ca-cert.pem, ca-key.pem, root-cert.pem,
	// cert-chain.pem) of an authority to sign with. Default: none, an authority of its own is made
	// in the state folder.
	Plugged string `yaml:"plugged"`
	// Validity is how long a workload's certificate lives. Default 24h. None ends after the
	// certificate that signs it.
	Validity time.Duration `yaml:"validity"`
	// Grace is how long after the end of its certificate a workload may renew it. Default 168h; 0:
	// not at all.
	Grace time.Duration `yaml:"grace"`
	// Signer signs the certificates of workloads in place of this authority. Default: none.
	Signer Signer `yaml:"signer"`
	// Names are DNS names and IP addresses that the control plane is reached by, for its
	// certificate. Added to them are those of xds.address and xds.advertise, the name of this
	// machine, localhost, and what Istio's agents expect.
	Names []string `yaml:"names"`
}

// Signer is a signer of Kubernetes.
type Signer struct {
	// Name is the signerName of requests: example.com/mesh. Empty: there is no signer.
	Name string `yaml:"name"`
	// Source is the name of the source of kind kubernetes whose cluster has the signer.
	Source string `yaml:"source"`
	// Roots is a file with the roots of what it signs, PEM.
	Roots string `yaml:"roots"`
}

// minSigned is the shortest life of a certificate that a signer of Kubernetes may be asked for.
// Source: CertificateSigningRequestSpec.expirationSeconds.
const minSigned = 10 * time.Minute

type Attestors struct {
	// JWT are the issuers whose tokens prove who a workload is. Default: none.
	JWT []ca.Issuer `yaml:"jwt"`
	// Kubernetes are the names of the sources of kind kubernetes whose tokens of service accounts prove
	// who a workload is. Default: none.
	Kubernetes []string `yaml:"kubernetes"`
}

type Fetch struct {
	// Allow are ranges of addresses that keys are fetched from although they are loopback,
	// link-local or a metadata service, and without TLS too. Default: none.
	Allow []string `yaml:"allow"`
}

// Secure reports whether there is a certificate authority and a listener with TLS.
func (s *Config) Secure() bool { return s.XDS.Address != "" }

// checkIdentity checks the settings about certificates, tokens and roles. It reports each error to
// wrong.
func (s *Config) checkIdentity(wrong report) {
	for _, n := range s.CA.Names {
		if net.ParseIP(n) == nil && !dnsname.Valid(strings.ToLower(n)) {
			wrong("ca.names", "%q is neither a DNS name nor an IP address; it has no port here", n)
		}
	}
	for _, address := range s.XDS.Advertise {
		if err := CheckAdvertised(address); err != nil {
			wrong("xds.advertise", "%v", err)
		}
	}
	names := seen{}
	for i, j := range s.Attestors.JWT {
		text := ""
		switch {
		case j.Name == "":
			text = "issuer is not set: give what its tokens say as \"iss\""
		case names.again(j.Name):
			text = "it is there twice: put its audiences into one"
		case j.Keys == "" && !strings.HasPrefix(j.Name, "https://"):
			text = "jwks is not set: name a file or an https:// address with the keys of the issuer"
		default:
			continue
		}
		wrong("attestors.jwt", "issuer %d %q: %s", i+1, j.Name, text)
	}
	clusters := seen{}
	for _, name := range s.Attestors.Kubernetes {
		s.checkCluster(wrong, "attestors.kubernetes", name)
		if clusters.again(name) {
			wrong("attestors.kubernetes", "%q is there twice: remove one of them", name)
		}
	}
	s.checkSigner(wrong)
	if s.Secrets.Kubernetes != "" {
		s.checkCluster(wrong, "secrets.kubernetes", s.Secrets.Kubernetes)
	}
	var err error
	if s.Access, err = s.Admin.Roles.Resolve(); err != nil {
		wrong("admin.roles", "%v: create it, or correct the name", err)
	}
	for _, text := range s.Fetch.Allow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			wrong("fetch.allow", "%q is not a range of addresses: want one such as 127.0.0.0/8", text)
		}
		s.FetchConfig.Allow = append(s.FetchConfig.Allow, p.Masked())
	}
}

// checkCluster wants the name of a source of kind kubernetes, and a listener with TLS.
func (s *Config) checkCluster(wrong report, setting, name string) {
	if !s.hasSource(name, kubernetesKind) {
		wrong(setting, "%q is not the name of a source of kind kubernetes: add the source, or correct the name", name)
	}
	if !s.Secure() {
		wrong(setting, "want none without xds.address, where workloads prove who they are")
	}
}

// checkSigner checks ca.signer.
func (s *Config) checkSigner(wrong report) {
	signer := s.CA.Signer
	if signer == (Signer{}) {
		return
	}
	domain, path, _ := strings.Cut(signer.Name, "/")
	switch {
	case !dnsname.Valid(domain) || path == "":
		wrong("ca.signer.name", "%q is not the name of a signer: want one such as example.com/mesh", signer.Name)
	case domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"):
		wrong("ca.signer.name", "%q is a signer of Kubernetes itself, whose certificates are for its own parts: "+
			"name one that signs for workloads", signer.Name)
	}
	s.checkCluster(wrong, "ca.signer.source", signer.Source)
	if signer.Roots == "" {
		wrong("ca.signer.roots", "is not set: name a file with the roots of what the signer signs, PEM")
	}
	if s.CA.Validity < minSigned {
		wrong("ca.validity", "want %s or more with ca.signer", minSigned)
	}
}

// CheckAdvertised wants HOST:PORT that others can reach.
func CheckAdvertised(text string) error {
	host, port, err := net.SplitHostPort(text)
	n, badPort := strconv.ParseUint(port, 10, 16)
	ip := net.ParseIP(host)
	reachable := ip != nil && !ip.IsUnspecified() || ip == nil && dnsname.Valid(strings.ToLower(host))
	if err != nil || badPort != nil || n == 0 || !reachable {
		return fmt.Errorf("%q: want HOST:PORT that machines can reach, such as mesh.example:15012", text)
	}
	return nil
}

// Webhook configures validation over HTTPS.
type Webhook struct {
	// Address serves it, with the certificate of xds.address. Default: off; the usual port is
	// 15017.
	Address string `yaml:"address"`
}
