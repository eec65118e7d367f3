package config

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// clientTLS checks how clients connect to a destination.
func (c *checker) clientTLS(path string, t *networking.ClientTLSSettings) {
	if t == nil {
		return
	}
	switch t.Mode {
	case networking.ClientTLSSettings_DISABLE:
		for _, f := range others(t, "mode", "credentialName") {
			c.errorf(path+"."+f, "the mode DISABLE makes this without effect: remove it, or choose SIMPLE or MUTUAL")
		}
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		for _, f := range others(t, "mode", "credentialName", "sni", "subjectAltNames") {
			c.errorf(path+"."+f, "ISTIO_MUTUAL takes certificates and authorities of the mesh: remove it, or choose MUTUAL")
		}
	case networking.ClientTLSSettings_SIMPLE:
		if t.ClientCertificate != "" || t.PrivateKey != "" {
			c.errorf(path+".mode", "a client certificate is only shown with MUTUAL: change the mode, or remove clientCertificate and privateKey")
		}
	case networking.ClientTLSSettings_MUTUAL:
		if t.CredentialName == "" {
			c.keyPair(path, "clientCertificate", t.ClientCertificate, "privateKey", t.PrivateKey)
		}
	}
	c.optionalFile(path+".caCertificates", t.CaCertificates)
	c.optionalFile(path+".caCrl", t.CaCrl)
	if t.Sni != "" {
		c.why(path+".sni", checkHost(t.Sni))
	}
	c.names(path+".subjectAltNames", t.SubjectAltNames)
	if t.InsecureSkipVerify.GetValue() {
		for _, f := range present(t, "caCertificates", "subjectAltNames", "caCrl") {
			c.errorf(path+".insecureSkipVerify", "%s would not be checked: remove one of the two", f)
		}
		c.warnf(path+".insecureSkipVerify", "anybody can pretend to be this destination")
	}
}

// keyPair checks the files of a certificate and its key, which are both needed.
func (c *checker) keyPair(path, certificateField, certificate, keyField, key string) {
	for _, f := range []struct{ field, file string }{{certificateField, certificate}, {keyField, key}} {
		if f.file == "" {
			c.errorf(path+"."+f.field, "the file is missing")
		} else {
			c.certificateFile(path+"."+f.field, f.file)
		}
	}
}

// optionalFile checks the name of a file where there is one. "system" is what Istio writes for the
// machine's own authorities.
func (c *checker) optionalFile(path, file string) {
	switch {
	case file == "":
	case file == "system":
		c.errorf(path, "the machine's own authorities are used when no file is named: remove it")
	default:
		c.certificateFile(path, file)
	}
}

// certificateFile checks the name of a file of certificates or keys. "~" stands between those that
// belong together.
func (c *checker) certificateFile(field, file string) {
	switch {
	case strings.Contains(file, "~"):
		c.errorf(field, "the names of certificate files must not hold \"~\"")
	case !path.IsAbs(file):
		c.warnf(field, "%s is relative: the proxy looks for it below the folder that it was started in; write an absolute path", quote(file))
	}
	c.why(field, checkFileText(file))
}

// names checks the names that certificates must bear.
func (c *checker) names(path string, names []string) {
	for i, n := range names {
		if n == "" || strings.ContainsFunc(n, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			c.errorf(at(path, i), "%s is not a name of a certificate: write a host, an IP address or a URI", quote(n))
		}
	}
}

// serverTLS checks how a server ends TLS, or passes it on.
func (c *checker) serverTLS(path string, t *networking.ServerTLSSettings) {
	switch t.Mode {
	case networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		if len(t.TlsCertificates) > 0 && (t.ServerCertificate != "" || t.PrivateKey != "") {
			c.errorf(path+".tlsCertificates", "only one of tlsCertificates and serverCertificate can be set")
		}
		c.serverCertificates(path, t)
		c.clientCertificates(path, t)
	case networking.ServerTLSSettings_ISTIO_MUTUAL:
		for _, f := range present(t, append(certificateFields(), "caCertificates", "caCrl")...) {
			c.errorf(path+"."+f, "ISTIO_MUTUAL takes certificates and authorities of the mesh: remove it, or choose MUTUAL")
		}
		c.names(path+".subjectAltNames", t.SubjectAltNames)
	case networking.ServerTLSSettings_PASSTHROUGH:
		fields := slices.Concat(certificateFields(), clientFields(),
			[]string{"cipherSuites", "minProtocolVersion", "maxProtocolVersion"})
		for _, f := range present(t, fields...) {
			c.errorf(path+"."+f, "PASSTHROUGH (also the default mode) does not end TLS: remove it, or set mode SIMPLE")
		}
	default:
		c.unsupported(path+".mode", t.Mode.String(),
			"use SIMPLE, MUTUAL or OPTIONAL_MUTUAL with files, ISTIO_MUTUAL, or PASSTHROUGH")
	}
	c.tlsVersions(path, t)
}

// certificateFields are those of a server's own certificates.
func certificateFields() []string {
	return []string{"serverCertificate", "privateKey", "tlsCertificates"}
}

// clientFields are those that say which clients a server accepts.
func clientFields() []string {
	return []string{"caCertificates", "caCrl", "subjectAltNames", "verifyCertificateSpki", "verifyCertificateHash"}
}

// clientCertificates checks which clients a server accepts.
func (c *checker) clientCertificates(path string, t *networking.ServerTLSSettings) {
	if t.Mode == networking.ServerTLSSettings_SIMPLE {
		for _, f := range present(t, clientFields()...) {
			if f == "caCertificates" { // Istio ignores it, and many gateways have it
				c.warnf(path+"."+f, "SIMPLE asks clients for no certificate, so this has no effect: remove it, or choose MUTUAL")
				continue
			}
			c.errorf(path+"."+f, "SIMPLE asks clients for no certificate: remove it, or choose MUTUAL")
		}
		return
	}
	if t.CaCertificates == "" {
		c.errorf(path+".caCertificates",
			"%s checks the certificates of clients: name the file of the authorities that they come from", t.Mode)
	}
	c.optionalFile(path+".caCertificates", t.CaCertificates)
	c.optionalFile(path+".caCrl", t.CaCrl)
	c.names(path+".subjectAltNames", t.SubjectAltNames)
	for i, s := range t.VerifyCertificateSpki {
		if b, err := base64.StdEncoding.DecodeString(s); err != nil || len(b) != sha256.Size {
			c.errorf(at(path+".verifyCertificateSpki", i), "%s is not the SHA-256 of a public key in base64", quote(s))
		}
	}
	for i, s := range t.VerifyCertificateHash {
		if b, err := hex.DecodeString(strings.ReplaceAll(s, ":", "")); err != nil || len(b) != sha256.Size {
			c.errorf(at(path+".verifyCertificateHash", i),
				"%s is not the SHA-256 of a certificate in hexadecimal digits", quote(s))
		}
	}
}

// serverCertificates checks the files of a server's certificates: one, or one of each key type.
func (c *checker) serverCertificates(path string, t *networking.ServerTLSSettings) {
	if len(t.TlsCertificates) == 0 {
		if t.CredentialName == "" && len(t.CredentialNames) == 0 {
			c.keyPair(path, "serverCertificate", t.ServerCertificate, "privateKey", t.PrivateKey)
		}
		return
	}
	if len(t.TlsCertificates) > 2 {
		c.errorf(path+".tlsCertificates", "there are at most two certificates, one RSA and one ECDSA, not %d",
			len(t.TlsCertificates))
	}
	for i, k := range t.TlsCertificates {
		p := at(path+".tlsCertificates", i)
		c.keyPair(p, "serverCertificate", k.ServerCertificate, "privateKey", k.PrivateKey)
		if k.CaCertificates != "" {
			c.errorf(p+".caCertificates",
				"the authorities of clients are those of the server, whatever certificate it shows: write it beside tlsCertificates")
		}
	}
}

// tlsVersions checks the bounds of TLS's versions, and the ciphers.
func (c *checker) tlsVersions(path string, t *networking.ServerTLSSettings) {
	if t.MaxProtocolVersion != 0 && t.MinProtocolVersion > t.MaxProtocolVersion {
		c.errorf(path+".minProtocolVersion", "the lowest version %s is above the highest, %s", t.MinProtocolVersion,
			t.MaxProtocolVersion)
	}
	if old := t.MaxProtocolVersion; t.MinProtocolVersion == 0 &&
		(old == networking.ServerTLSSettings_TLSV1_0 || old == networking.ServerTLSSettings_TLSV1_1) {
		c.errorf(path+".maxProtocolVersion",
			"%s is below the lowest version, which is TLSV1_2 where minProtocolVersion is not set: no client could connect; set minProtocolVersion, or a higher maxProtocolVersion", old)
	}
	for _, v := range []struct {
		field   string
		version networking.ServerTLSSettings_TLSProtocol
	}{{".minProtocolVersion", t.MinProtocolVersion}, {".maxProtocolVersion", t.MaxProtocolVersion}} {
		if v.version == networking.ServerTLSSettings_TLSV1_0 || v.version == networking.ServerTLSSettings_TLSV1_1 {
			c.warnf(path+v.field, "%s is broken and switched off by default: use TLSV1_2 or TLSV1_3", v.version)
		}
	}
	c.ciphers(path+".cipherSuites", t.CipherSuites)
}

// ciphers checks a list of ciphers.
func (c *checker) ciphers(path string, suites []string) {
	c.unique(path, suites)
	for i, s := range suites {
		if !slices.Contains(cipherSuites(), s) {
			c.errorf(at(path, i), "unknown cipher suite %s%s", quote(s), meantOrOneOf(s, cipherSuites()))
		}
	}
}

// curves are those of key exchanges that Envoy can be given.
// Source: BoringSSL, SSL_CTX_set1_groups_list.
func curves() []string { return []string{"X25519MLKEM768", "X25519", "P-256", "P-384", "P-521"} }

// cipherSuites are those of TLS 1.2 that Envoy can be given. Those of TLS 1.3 cannot be chosen.
// Source:
// https://www.envoyproxy.io/docs/envoy/v1.40.0/api-v3/extensions/transport_sockets/tls/v3/common.proto
func cipherSuites() []string {
	return []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
		"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA", "AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA", "DES-CBC3-SHA",
	}
}
