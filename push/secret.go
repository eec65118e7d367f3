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

// NamesSecret reports whether the rule names a secret that sidecars may have. Only gateways may have
// those of a rule without workloadSelector.
// Source: istio.io, ClientTLSSettings.credentialName.
func (r *DestinationRule) NamesSecret() bool {
	if r == nil || r.Spec.WorkloadSelector == nil {
		return false
	}
	for t := range ClientTLS(r.Spec) {
		if t.GetCredentialName() != "" {
			return true
		}
	}
	return false
}

// ClientTLS yields the TLS settings of a DestinationRule, for all ports and subsets. Some are nil.
func ClientTLS(r *networking.DestinationRule) func(yield func(*networking.ClientTLSSettings) bool) {
	return func(yield func(*networking.ClientTLSSettings) bool) {
		policies := []*networking.TrafficPolicy{r.TrafficPolicy}
		for _, s := range r.Subsets {
			policies = append(policies, s.TrafficPolicy)
		}
		for _, p := range policies {
			if !yield(p.GetTls()) {
				return
			}
			for _, port := range p.GetPortLevelSettings() {
				if !yield(port.Tls) {
					return
				}
			}
		}
	}
}
