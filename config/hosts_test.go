package config

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// Forms of a host by which rules would pass over it are refused.
func TestHostsThatRulesWouldMiss(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"web.example.com": "", "*.example.com": "", "*": "", "web": "",
		"Web.example.com":  "",
		"web.example.com.": "ends with a dot", "*-x.example.com": "*-x.example.com",
	} {
		got := checkWildcardHost(host)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("checkWildcardHost(%q): got %q, want %q", host, got, want)
		}
	}
}

// Hosts are in lower case in every object that takes effect, however it came; what is no host keeps
// its capitals.
func TestHostsAreInLowerCase(t *testing.T) {
	t.Parallel()
	const http = "http: [{match: [{authority: {exact: A.Example}}], route: [{destination: {host: B.Example}}], mirror: {host: C.Example}, rewrite: {uri: /Path}}, " +
		"{route: [{destination: {host: d}}], mirrors: [{destination: {host: E.Example}}]}]"
	for _, tc := range []struct{ kind, spec, want string }{
		{
			"VirtualService", "hosts: [A.Example, '*.Example'], gateways: [edge], " + http,
			"hosts: [a.example, '*.example'], gateways: [edge], " + strings.NewReplacer("B.E", "b.e", "C.E", "c.e", "E.E", "e.e").Replace(http),
		},
		{
			"VirtualService", "hosts: [A.Example], tls: [{match: [{sniHosts: [A.Example]}], route: [{destination: {host: B.Example}}]}], tcp: [{route: [{destination: {host: C.Example}}]}]",
			"hosts: [a.example], tls: [{match: [{sniHosts: [a.example]}], route: [{destination: {host: b.example}}]}], tcp: [{route: [{destination: {host: c.example}}]}]",
		},
		{"DestinationRule", "host: A.Example, subsets: [{name: V1, labels: {a: B}}]", "host: a.example, subsets: [{name: V1, labels: {a: B}}]"},
		{
			"DestinationRule", "host: a.example, trafficPolicy: {tls: {mode: SIMPLE, sni: A.Example}, " +
				"portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE, sni: B.Example}}]}, " +
				"subsets: [{name: v1, labels: {a: b}, trafficPolicy: {tls: {mode: SIMPLE, sni: C.Example}}}]",
			"host: a.example, trafficPolicy: {tls: {mode: SIMPLE, sni: a.example}, " +
				"portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE, sni: b.example}}]}, " +
				"subsets: [{name: v1, labels: {a: b}, trafficPolicy: {tls: {mode: SIMPLE, sni: c.example}}}]",
		},
		{
			"ServiceEntry", "hosts: [A.Example, '*.B.Example'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: C.Example}]",
			"hosts: [a.example, '*.b.example'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: c.example}]",
		},
		{"WorkloadEntry", "address: A.Example, labels: {a: B}", "address: a.example, labels: {a: B}"},
		{"WorkloadEntry", "address: 'unix:///run/A'", "address: 'unix:///run/A'"},
		{
			"Gateway", "selector: {a: B}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [A.Example, shop/B.Example, './*.C.Example']}]",
			"selector: {a: B}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example, shop/b.example, './*.c.example']}]",
		},
		{
			"Sidecar", "egress: [{hosts: [shop/A.Example, './*']}], outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: B.Example, port: {number: 80}}}",
			"egress: [{hosts: [shop/a.example, './*']}], outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: b.example, port: {number: 80}}}",
		},
	} {
		read := func(spec string) *Object {
			info, _ := Info(Kind(tc.kind))
			r := Parse("a.yaml", []byte("apiVersion: "+info.APIVersion()+"\nkind: "+tc.kind+"\nmetadata: {name: a, namespace: shop}\nspec: {"+spec+"}\n"))
			if len(r.Objects) != 1 {
				t.Fatalf("%s: refused: %v", spec, r.Problems)
			}
			return r.Objects[0]
		}
		got, want := read(tc.spec), read(tc.want)
		if !proto.Equal(got.Spec, want.Spec) || got.Hash != want.Hash {
			t.Errorf("%s: read as\n%v, want\n%v", tc.spec, got.Spec, want.Spec)
		}
	}
	s := entryOf()
	s.Hosts[0] = "Web.Test"
	if problems, ok := Accept(&Object{Key: Key{ServiceEntry, "shop", "web"}, Spec: s}); !ok ||
		s.Hosts[0] != "web.test" {
		t.Errorf("accepted %v as %q: %v", ok, s.Hosts[0], problems)
	}
	if r := Parse("a.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a}\nspec: {hosts: [A.example, a.Example], ports: [{number: 80, name: http}]}\n")); len(r.Objects) > 0 {
		t.Error("one host in two cases is accepted as two")
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
