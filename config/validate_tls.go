package config

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/secret"
)

// clientTLS checks how clients connect to a destination.
func (c *checker) clientTLS(path string, t *networking.ClientTLSSettings) {
	switch t.Mode {
	case networking.ClientTLSSettings_DISABLE:
		c.refuse(path, others(t, "mode"),
			"the mode DISABLE makes this without effect: remove it, or choose SIMPLE or MUTUAL")
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		c.refuse(path, others(t, "mode", "sni", "subjectAltNames"), ofMesh)
	case networking.ClientTLSSettings_SIMPLE:
		if t.ClientCertificate != "" || t.PrivateKey != "" {
			// Istio ignores it
			c.warnf(path+".mode", "a client certificate is only shown with MUTUAL: change the mode, or remove clientCertificate and privateKey")
		}
	case networking.ClientTLSSettings_MUTUAL:
		if t.CredentialName == "" {
			c.refuse(path, missing(t, "clientCertificate", "privateKey"), fileMissing)
		}
	}
	simple, mutual := t.Mode == networking.ClientTLSSettings_SIMPLE, t.Mode == networking.ClientTLSSettings_MUTUAL
	if t.CredentialName != "" && (simple || mutual) {
		c.refuse(path, present(t, "clientCertificate", "privateKey", "caCertificates", "caCrl"), inSecret)
	}
	if t.InsecureSkipVerify.GetValue() {
		unchecked := []string{"caCertificates", "subjectAltNames", "caCrl"}
		if simple {
			unchecked = append(unchecked, "credentialName")
		}
		for _, f := range present(t, unchecked...) {
			c.errorf(path+".insecureSkipVerify", "%s would not be checked: remove one of the two", f)
		}
		c.warnf(path+".insecureSkipVerify", "anybody can pretend to be this destination")
	}
}

const (
	fileMissing = "the file is missing"
	inSecret    = "it comes from the secret that is named here: remove one of the two"
	ofMesh      = "ISTIO_MUTUAL takes certificates and authorities of the mesh: remove it, or choose MUTUAL"
)

// refuse reports the same of several fields of the message at path.
func (c *checker) refuse(path string, fields []string, why string) {
	for _, f := range fields {
		c.errorf(path+"."+f, "%s", why)
	}
}

// ignored warns of fields of the message at path that have no effect, as in Istio.
func (c *checker) ignored(path string, fields []string, why string) {
	for _, f := range fields {
		c.warnf(path+"."+f, "this has no effect, because %s", why)
	}
}

// serverTLS checks how a server ends TLS, or passes it on.
func (c *checker) serverTLS(path string, t *networking.ServerTLSSettings) {
	own := []string{"serverCertificate", "privateKey", "tlsCertificates", "credentialName", "credentialNames"}
	clients := []string{"caCertificates", "caCrl", "caCertCredentialName", "subjectAltNames", "verifyCertificateSpki",
		"verifyCertificateHash"}
	switch t.Mode {
	case networking.ServerTLSSettings_SIMPLE:
		c.serverCertificates(path, t)
		if t.CaCertificates != "" { // Istio ignores it, and many gateways have it
			c.warnf(path+".caCertificates",
				"SIMPLE asks clients for no certificate, so this has no effect: remove it, or choose MUTUAL")
		}
		c.refuse(path, present(t, clients[1:]...),
			"SIMPLE asks clients for no certificate: remove it, or choose MUTUAL")
	case networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		c.serverCertificates(path, t)
		if t.CaCertificates == "" && t.CaCertCredentialName == "" && !fromSecrets(t) {
			c.errorf(path+".caCertificates",
				"%s checks the certificates of clients: name the file of the authorities that they come from", t.Mode)
		}
	case networking.ServerTLSSettings_ISTIO_MUTUAL:
		c.refuse(path, present(t, append(own, clients[:3]...)...), ofMesh)
	case networking.ServerTLSSettings_PASSTHROUGH, networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		fields := slices.Concat(own, clients, []string{"cipherSuites", "minProtocolVersion", "maxProtocolVersion"})
		c.refuse(path, present(t, fields...),
			"PASSTHROUGH (also the default mode) and AUTO_PASSTHROUGH do not end TLS: remove it, or set mode SIMPLE")
	}
	c.tlsVersions(path, t)
}

// fromSecrets reports whether the certificates of a server come from secrets.
func fromSecrets(t *networking.ServerTLSSettings) bool {
	return t.CredentialName != "" || len(t.CredentialNames) > 0
}

// serverCertificates checks that a server has a certificate: one, or one of each key type.
func (c *checker) serverCertificates(path string, t *networking.ServerTLSSettings) {
	c.secrets(path, t)
	n := len(t.TlsCertificates)
	if n == 0 && !fromSecrets(t) {
		c.refuse(path, missing(t, "serverCertificate", "privateKey"), fileMissing)
	}
	if n > 0 && (t.ServerCertificate != "" || t.PrivateKey != "") {
		c.errorf(path+".tlsCertificates", "only one of tlsCertificates and serverCertificate can be set")
	}
	if n > 2 {
		c.errorf(path+".tlsCertificates", "there are at most two certificates, one RSA and one ECDSA, not %d", n)
	}
	for i, k := range t.TlsCertificates {
		p := at(path+".tlsCertificates", i)
		c.refuse(p, missing(k, "serverCertificate", "privateKey"), fileMissing)
		c.refuse(p, present(k, "caCertificates"),
			"the authorities of clients are those of the server, whatever certificate it shows: write it beside tlsCertificates")
	}
}

// secrets checks the secrets of a server.
func (c *checker) secrets(path string, t *networking.ServerTLSSettings) {
	if c.object.Kind == Sidecar {
		c.refuse(path, present(t, "credentialName", "credentialNames", "caCertCredentialName"),
			"only a Gateway can name a secret: name files by serverCertificate, privateKey and caCertificates")
	}
	if fromSecrets(t) {
		c.refuse(path, present(t, "tlsCertificates"), inSecret)
		if t.ServerCertificate != "" && t.PrivateKey != "" {
			c.errorf(path, "only one of credentialName and serverCertificate with privateKey can be set")
		} else {
			c.ignored(path, present(t, "serverCertificate", "privateKey"), inSecret)
		}
	}
	if t.Mode != networking.ServerTLSSettings_SIMPLE && (fromSecrets(t) || t.CaCertCredentialName != "") {
		c.ignored(path, present(t, "caCertificates"), inSecret)
		c.refuse(path, present(t, "caCrl"), inSecret)
	}
	if t.CredentialName != "" && len(t.CredentialNames) > 0 {
		c.errorf(path+".credentialNames", "only one of credentialName and credentialNames can be set")
	}
	if n := len(t.CredentialNames); n > 2 {
		c.errorf(path+".credentialNames", "there are at most two certificates, one RSA and one ECDSA, not %d", n)
	}
	for _, name := range append(t.CredentialNames, t.CredentialName) {
		if strings.HasSuffix(name, secret.AuthoritiesSuffix) {
			c.errorf(path, "the secret %s has authorities, because its name ends with %s: name a secret with a certificate",
				quote(name), secret.AuthoritiesSuffix)
		}
	}
}

// checkCredential is the rule for the name of a secret, with or without "kubernetes://".
func checkCredential(name string) string {
	scheme, rest, found := strings.Cut(name, "://")
	switch {
	case found && scheme+"://" != secret.ResourcePrefix:
		return quote(name) + " is not the name of a secret: there are no ConfigMaps and no other providers of secrets"
	case found && strings.Contains(rest, "/"):
		return quote(name) + " has a namespace: write the name only, the secret is in the namespace of the proxy"
	}
	return checkObjectName(strings.TrimPrefix(name, secret.ResourcePrefix))
}

// tlsVersions checks the bounds of TLS's versions.
func (c *checker) tlsVersions(path string, t *networking.ServerTLSSettings) {
	old := func(v networking.ServerTLSSettings_TLSProtocol) bool {
		return v == networking.ServerTLSSettings_TLSV1_0 || v == networking.ServerTLSSettings_TLSV1_1
	}
	lowest, highest := t.MinProtocolVersion, t.MaxProtocolVersion
	if highest != 0 && lowest > highest {
		c.errorf(path+".minProtocolVersion", "the lowest version %s is above the highest, %s", lowest, highest)
	}
	if lowest == 0 && old(highest) {
		c.errorf(path+".maxProtocolVersion",
			"%s is below the lowest version, which is TLSV1_2 where minProtocolVersion is not set: no client could connect; set minProtocolVersion, or a higher maxProtocolVersion", highest)
	}
	const broken = "%s is broken and switched off by default: use TLSV1_2 or TLSV1_3"
	if old(lowest) {
		c.warnf(path+".minProtocolVersion", broken, lowest)
	}
	if old(highest) {
		c.warnf(path+".maxProtocolVersion", broken, highest)
	}
}

// checkCertificateFile is the rule for the files of certificates and keys. "~" stands between those
// that belong together.
func checkCertificateFile(file string) string {
	if strings.Contains(file, "~") {
		return "the names of certificate files must not hold \"~\""
	}
	return checkFileText(file)
}

// checkAuthorityFile is the rule for files of authorities and of revoked certificates. "system" is
// what Istio writes for the machine's own authorities.
func checkAuthorityFile(file string) string {
	if file == "system" {
		return "the machine's own authorities are used when no file is named: remove it"
	}
	return checkCertificateFile(file)
}

func suspectFile(file string) string {
	if path.IsAbs(file) || checkAuthorityFile(file) != "" {
		return ""
	}
	return quote(file) + " is relative: the proxy looks for it below the folder that it was started in; write an absolute path"
}

// checkCertificateName is the rule for names that certificates must bear.
func checkCertificateName(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return quote(name) + " is not a name of a certificate: write a host, an IP address or a URI"
	}
	return ""
}

// checkKeyHash is the rule for hashes of public keys.
func checkKeyHash(s string) string {
	if b, err := base64.StdEncoding.DecodeString(s); err != nil || len(b) != sha256.Size {
		return quote(s) + " is not the SHA-256 of a public key in base64"
	}
	return ""
}

// checkCertificateHash is the rule for hashes of certificates.
func checkCertificateHash(s string) string {
	if b, err := hex.DecodeString(strings.ReplaceAll(s, ":", "")); err != nil || len(b) != sha256.Size {
		return quote(s) + " is not the SHA-256 of a certificate in hexadecimal digits"
	}
	return ""
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
