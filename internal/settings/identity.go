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

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/internal/dnsname"
	"github.com/ashore-mesh/ashore/internal/jwks"
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
	// Names are DNS names and IP addresses that the control plane is reached by, for its
	// certificate. Added to them are those of xds.address and xds.advertise, the name of this
	// machine, localhost, and what Istio's agents expect.
	Names []string `yaml:"names"`
}

type Attestors struct {
	// JWT are the issuers whose tokens prove who a workload is. Default: none.
	JWT []ca.Issuer `yaml:"jwt"`
}

type Fetch struct {
	// Allow are ranges of addresses that keys are fetched from although they are loopback,
	// link-local or a metadata service, and without TLS too. Default: none.
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
	for i, j := range s.Attestors.JWT {
		err := checkJWT(j)
		if j.Name != "" && slices.ContainsFunc(s.Attestors.JWT[:i],
			func(b ca.Issuer) bool { return b.Name == j.Name }) {
			err = errors.New("it is there twice: put its audiences into one")
		}
		if err != nil {
			wrong("attestors.jwt", "issuer %d %q: %v", i+1, j.Name, err)
		}
	}
	var err error
	if s.Access, err = s.Admin.Roles.Resolve(); err != nil {
		wrong("admin.roles", "%v: create it, or correct the name", err)
	}
	if s.FetchConfig, err = s.Fetch.config(); err != nil {
		wrong("fetch.allow", "%v", err)
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

func checkJWT(j ca.Issuer) error {
	if j.Name == "" {
		return errors.New("issuer is not set: give what its tokens say as \"iss\"")
	}
	if j.Keys == "" && !strings.HasPrefix(j.Name, "https://") {
		return errors.New("jwks is not set: name a file or an https:// address with the keys of the issuer")
	}
	return nil
}

// Webhook configures validation over HTTPS.
type Webhook struct {
	// Address serves it, with the certificate of xds.address. Default: off; the usual port is
	// 15017.
	Address string `yaml:"address"`
}
