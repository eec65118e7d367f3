package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/jwks"
)

// CA configures the certificate authority. There is one when xds.address is set.
type CA struct {
	// Plugged is a folder with Istio's four files (ca-cert.pem, ca-key.pem, root-cert.pem,
	// cert-chain.pem) of an authority to sign with. Default: none, an authority of its own is made
	// in the state folder.
	Plugged string `yaml:"plugged"`
	// ReplicaToken is a file with a token that "ashorectl ca replica-token" made on another
	// replica: it gets this one its first intermediate. Default: none; the first replica makes the
	// root.
	ReplicaToken string `yaml:"replicaToken"`
	// Validity is how long a workload's certificate lives. Default 24h. None ends after the
	// certificate that signs it.
	Validity time.Duration `yaml:"validity"`
	// Grace is how long after the end of its certificate a workload may renew it. Default 168h; 0:
	// not at all.
	Grace time.Duration `yaml:"grace"`
	// Names are DNS names and IP addresses that the control plane is reached by, for its
	// certificate. Added to them are those of xds.address and xds.advertise, the name of this
	// machine, localhost, and what Istio's agents expect.
	Names []string `yaml:"names"`
}

type Attestors struct {
	// JWT are the issuers whose tokens prove who a workload is. Default: none.
	JWT []JWT `yaml:"jwt"`
}

type JWT struct {
	// Issuer is the claim "iss" of its tokens.
	Issuer string `yaml:"issuer"`
	// Audiences are the accepted audiences of a token. Default: istio-ca.
	Audiences []string `yaml:"audiences"`
	// JWKS is where its keys are: a file, or an https:// address. Default: where the issuer says
	// (OpenID Connect Discovery), if its name is an https:// address.
	JWKS string `yaml:"jwks"`
	// Namespace and ServiceAccount are the paths of claims that name the identity. Default:
	// Kubernetes' claims where a token has them, else the claims "namespace" and "serviceAccount".
	Namespace      []string `yaml:"namespace"`
	ServiceAccount []string `yaml:"serviceAccount"`
}

type Workloads struct {
	// RestartGrace is how long workloads stay registered after a start of ashored, until their proxies
	// are back. Default 5m.
	RestartGrace time.Duration `yaml:"restartGrace"`
}

type Fetch struct {
	// Allow are ranges of addresses that keys are fetched from although they are loopback,
	// link-local or a metadata service, and from which they are fetched without TLS too. Default: none.
	Allow []string `yaml:"allow"`
}

// config returns the configuration of a fetcher. Errors: an invalid range.
func (f Fetch) config() (jwks.Config, error) {
	var c jwks.Config
	for _, text := range f.Allow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return c, fmt.Errorf("%q is not a range of addresses: want one such as 127.0.0.0/8", text)
		}
		c.Allow = append(c.Allow, p.Masked())
	}
	return c, nil
}

// Secure reports whether there is a certificate authority and a listener with TLS.
func (s *Config) Secure() bool { return s.XDS.Address != "" }

// checkIdentity checks the settings about certificates, tokens and roles. It reports each error to
// wrong.
func (s *Config) checkIdentity(wrong report) {
	s.checkAuthority(wrong)
	for i, j := range s.Attestors.JWT {
		err := checkJWT(j)
		if j.Issuer != "" && slices.ContainsFunc(s.Attestors.JWT[:i],
			func(b JWT) bool { return b.Issuer == j.Issuer }) {
			err = errors.New("it is there twice: put its audiences into one")
		}
		if err != nil {
			wrong("attestors.jwt", "issuer %d %q: %v", i+1, j.Issuer, err)
		}
	}
	if !s.Secure() && len(s.Attestors.JWT) > 0 {
		wrong("attestors.jwt", "there is nobody to prove it to: set xds.address, or remove this")
	}
	if s.Workloads.RestartGrace <= 0 {
		wrong("workloads.restartGrace", "%s: want more than 0", s.Workloads.RestartGrace)
	}
	var err error
	if s.Access, err = s.Admin.Roles.Resolve(); err != nil {
		wrong("admin.roles", "%v: add it to the machine, or correct the name", err)
	}
	if s.FetchConfig, err = s.Fetch.config(); err != nil {
		wrong("fetch.allow", "%v", err)
	}
}

func (s *Config) checkAuthority(wrong report) {
	if s.CA.Validity < time.Minute {
		wrong("ca.validity", "%s: want 1m or more, such as 24h", s.CA.Validity)
	}
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
}

// CheckAdvertised wants HOST:PORT that others can reach.
func CheckAdvertised(text string) error {
	host, port, err := net.SplitHostPort(text)
	if n, badPort := strconv.ParseUint(port, 10, 16); err != nil || badPort != nil || n == 0 {
		return fmt.Errorf("%q is not an address: want HOST:PORT such as mesh.example:15012", text)
	}
	if ip := net.ParseIP(host); ip == nil && !dnsname.Valid(strings.ToLower(host)) || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%q of %q is no name or address that a machine could reach", host, text)
	}
	return nil
}

func checkJWT(j JWT) error {
	if j.Issuer == "" {
		return errors.New("issuer is not set: give what its tokens say as \"iss\"")
	}
	if j.JWKS == "" && !strings.HasPrefix(j.Issuer, "https://") {
		return errors.New("jwks is not set: name a file or an https:// address with the keys of the issuer")
	}
	if scheme, _, isURL := strings.Cut(j.JWKS, "://"); isURL && scheme != "https" {
		return fmt.Errorf("jwks %q is neither a file nor an https:// address", j.JWKS)
	}
	if (len(j.Namespace) == 0) != (len(j.ServiceAccount) == 0) {
		return errors.New("namespace and serviceAccount go together: name the claims of both, or of none")
	}
	return nil
}

// Webhook configures validation over HTTPS.
type Webhook struct {
	// Address serves it, with the certificate of xds.address. Default: off; the usual port is
	// 15017.
	Address string `yaml:"address"`
}
