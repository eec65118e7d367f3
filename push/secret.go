package push

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/internal/secret"
)

// ServerSecrets returns the names of the secrets that a server names, as proxies ask for them: its
// certificates, and the authorities of its clients. Empty: it names none. Of several secrets the
// first one has the authorities.
// Source: istio.io, ServerTLSSettings.credentialNames and caCertCredentialName.
func ServerSecrets(t *networking.ServerTLSSettings) (certificates []string, authorities string) {
	names := t.GetCredentialNames()
	if t.GetCredentialName() != "" {
		names = []string{t.CredentialName}
	}
	for _, n := range names {
		certificates = append(certificates, secret.CertificateResource(n))
	}
	switch t.GetMode() {
	case networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		if t.CaCertCredentialName != "" {
			names = []string{t.CaCertCredentialName}
		}
		if len(names) > 0 {
			authorities = secret.AuthoritiesResource(names[0])
		}
	}
	return certificates, authorities
}
