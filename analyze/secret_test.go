package analyze_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/analyze"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/push"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	group := object(config.WorkloadGroup, "edge/gw", "metadata: {labels: {app: gw}}, template: {serviceAccount: gw}")
	server := func(tls string) string {
		return object(config.Gateway, "shop/gw",
			"selector: {app: gw}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example], tls: {"+tls+"}}]")
	}
	partner := service("shop/partner", "partner.test", "")
	pair := secret.Secret{Certificate: "c", Key: "k"}
	all := secret.NewSet(nil, map[secret.Name]secret.Secret{
		{Namespace: "edge", Name: "web"}: pair, {Namespace: "edge", Name: "clients-cacert"}: {Authorities: "a"},
		{Namespace: "shop", Name: "shop"}: pair,
	}, nil)
	const at = "IST0101 mesh.yaml:1 Gateway shop/gw spec.servers[0].tls: "
	for _, tc := range []testCase{
		{"found", []string{server("mode: MUTUAL, credentialName: web, caCertCredentialName: clients"), group}, nil},
		{
			"no authorities", []string{server("mode: MUTUAL, credentialNames: [web]"), group},
			[]string{at + "neither secret web-cacert nor web has authorities (ca.crt) in namespace edge, so TLS connections to a.example fail"},
		},
		{
			"in the namespace of the Gateway", []string{server("mode: SIMPLE, credentialName: shop"), group},
			[]string{at + "there is no usable secret shop with a certificate in namespace edge, only in namespace shop, so"},
		},
		{"no proxy is known", []string{server("mode: SIMPLE, credentialName: shop")}, nil},
		{
			"no proxy and no secret", []string{server("mode: SIMPLE, credentialName: none")},
			[]string{at + "there is no usable secret none with a certificate in the namespace of the proxy, so"},
		},
		{
			"a rule", []string{partner, rule("shop/partner", "host: partner.test, trafficPolicy: {tls: {mode: MUTUAL, credentialName: web}}")},
			[]string{"DestinationRule shop/partner spec.trafficPolicy: neither secret web-cacert nor web has authorities"},
		},
		{
			"a rule for some clients", []string{partner, rule("shop/partner",
				"host: partner.test, workloadSelector: {matchLabels: {app: x}}, trafficPolicy: {tls: {mode: SIMPLE, credentialName: clients}}")},
			[]string{"neither secret clients-cacert nor clients has authorities (ca.crt) in namespace shop, only in namespace edge, so connections to the host fail"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			in := build(t, tc.documents...).Inputs()
			if got := analyze.Run(t.Context(), push.Build(nil, in)); len(got) != 0 {
				t.Errorf("without known secrets: %s", text(got))
			}
			in.Secrets = all
			compare(t, analyze.Run(t.Context(), push.Build(nil, in)), tc.want)
		})
	}
}
