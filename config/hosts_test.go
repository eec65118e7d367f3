package config

import (
	"strings"
	"testing"
)

// Forms of a host by which rules would pass over it are refused.
func TestHostsThatRulesWouldMiss(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"web.example.com": "", "*.example.com": "", "*": "", "web": "",
		"web.example.com.": "ends with a dot", "Web.example.com": "capitals", "*-x.example.com": "*-x.example.com",
	} {
		got := checkWildcardHost(host)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("checkWildcardHost(%q): got %q, want %q", host, got, want)
		}
	}
}

// A highest version below Envoy's default lowest would refuse every client.
func TestHighestVersionNeedsLowest(t *testing.T) {
	t.Parallel()
	gateway := func(tls string) Result {
		return Parse("gw.yaml", []byte(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  selector: {app: gw}
  servers:
  - port: {number: 443, name: https, protocol: HTTPS}
    hosts: [web.example.com]
    tls: {mode: SIMPLE, serverCertificate: /cert.pem, privateKey: /key.pem, `+tls+`}
`))
	}
	if r := gateway("maxProtocolVersion: TLSV1_1"); len(r.Objects) != 0 {
		t.Errorf("accepted: %v", r.Problems)
	}
	if r := gateway("minProtocolVersion: TLSV1_0, maxProtocolVersion: TLSV1_1"); len(r.Objects) != 1 {
		t.Errorf("refused: %v", r.Problems)
	}
}
