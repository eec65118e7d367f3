package config

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// protecting are objects that protect, with most of what can be written in them.
const protecting = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  action: ALLOW
  rules:
  - from:
    - source: {principals: [a/b], notPrincipals: [c/d], requestPrincipals: [e], notRequestPrincipals: [f], namespaces: [g], notNamespaces: [h], trustDomains: [i], notTrustDomains: [j]}
    - source: {serviceAccounts: [k], notServiceAccounts: [l], ipBlocks: [10.0.0.0/8], notIpBlocks: [10.1.0.0/16], remoteIpBlocks: [10.2.0.0/16], notRemoteIpBlocks: [10.3.0.0/16]}
    to:
    - operation: {hosts: [a.example], notHosts: [b.example], ports: ["80"], notPorts: ["81"], methods: [GET], notMethods: [PUT], paths: [/a], notPaths: [/b]}
    when:
    - {key: source.namespace, values: [a], notValues: [b]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: d, namespace: shop}
spec:
  action: DENY
  rules: [{from: [{source: {namespaces: [a]}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: c, namespace: shop}
spec:
  action: CUSTOM
  provider: {name: judge}
  rules: [{to: [{operation: {methods: [GET]}}]}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: p, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  mtls: {mode: STRICT}
  portLevelMtls: {80: {mode: STRICT}, 81: {mode: DISABLE}}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: r, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  jwtRules:
  - issuer: https://a.example
    audiences: [a]
    jwksUri: https://a.example/keys
    fromHeaders: [{name: x-a, prefix: "A "}]
    fromParams: [a]
    fromCookies: [a]
    outputPayloadToHeader: x-b
    outputClaimToHeaders: [{header: x-c, claim: c}]
    spaceDelimitedClaims: [scope]
    forwardOriginalToken: true
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: w, namespace: shop}
spec:
  host: web.example
  trafficPolicy: {tls: {mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /a, caCrl: /r, subjectAltNames: [a], sni: a.example}}
`

// Any part of an object that protects is emptied: it is refused.
func TestEmptiedIsRefused(t *testing.T) {
	t.Parallel()
	for doc := range strings.SplitSeq(protecting, "\n---\n") {
		if r := Parse("a.yaml", []byte(doc)); len(r.Objects) != 1 {
			t.Fatalf("refused as it is: %v", r.Problems)
		}
		var tree yaml.Node
		if err := yaml.Unmarshal([]byte(doc), &tree); err != nil {
			t.Fatal(err)
		}
		kind := Kind(valueOf(tree.Content[0], "kind").Value)
		eachPart(valueOf(tree.Content[0], "spec"), "spec", func(n *yaml.Node, path string) {
			for _, content := range []string{"null", "[]"} {
				before := *n
				*n = emptyNode(content)
				text, err := yaml.Marshal(&tree)
				*n = before
				if err != nil {
					t.Fatal(err)
				}
				if r := Parse("a.yaml", text); len(r.Objects) > 0 && path != "spec.rules" { // no rule allows nobody
					t.Errorf("%s: %s as %s is accepted, with %v:\n%s", kind, path, content, r.Problems, text)
				}
			}
		})
	}
}

// eachPart calls yield for a value and all within it.
func eachPart(n *yaml.Node, path string, yield func(n *yaml.Node, path string)) {
	yield(n, path)
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			eachPart(n.Content[i+1], path+"."+n.Content[i].Value, yield)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			eachPart(item, fmt.Sprintf("%s[%d]", path, i), yield)
		}
	}
}

func emptyNode(content string) yaml.Node {
	if content == "[]" {
		return yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
	}
	return yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
}

// Of the kinds that are all about protection, the reader finds every field that was emptied,
// whatever else is written.
func FuzzEmptied(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		for _, kind := range []Kind{AuthorizationPolicy, PeerAuthentication, RequestAuthentication} {
			info, _ := Info(kind)
			spec := info.NewSpec().ProtoReflect()
			random{rand.New(rand.NewPCG(seed, 0))}.message(spec, 4)
			body, err := protojson.Marshal(spec.Interface())
			if err != nil {
				t.Fatal(err)
			}
			tree, err := nodeOf(body)
			if err != nil {
				t.Fatal(err)
			}
			eachPart(tree, "", func(n *yaml.Node, path string) {
				whole := path == "" || path == ".rules" || strings.HasSuffix(path, "]") ||
					strings.Contains(path, "matchLabels.") || strings.Contains(path, ".targetRef") && strings.Count(path, ".") > 1 || strings.HasPrefix(path, ".portLevelMtls.")
				if whole || n.Kind == yaml.ScalarNode && path == ".timeout" {
					return
				}
				before := *n
				*n = emptyNode("null")
				d := &decoder{parser: &parser{}, root: tree, where: fieldLines{}, guarded: true}
				d.message("", info.NewSpec().ProtoReflect(), tree)
				*n = before
				if !slices.ContainsFunc(d.problems, func(p Problem) bool { return "."+p.Field == path && p.Text == emptiedText }) {
					t.Errorf("%s: null as %s is not found, in %s", kind, path, body)
				}
			})
		}
	})
}

// A text says which field, where, and what to do.
func TestEmptiedText(t *testing.T) {
	t.Parallel()
	for spec, field := range map[string]string{
		"AuthorizationPolicy {rules: [{from: }]}":                      "spec.rules[0].from",
		"PeerAuthentication {mtls: {mode: }}":                          "spec.mtls.mode",
		"RequestAuthentication {jwtRules: []}":                         "spec.jwtRules",
		"AuthorizationPolicy {selector: {matchLabels: }, rules: [{}]}": "spec.selector.matchLabels",
	} {
		want := field + ": the field is empty, which means the same as leaving it out, and may protect less: write a value, or remove the field"
		kind, spec, _ := strings.Cut(spec, " ")
		r := Parse("a.yaml", []byte("apiVersion: security.istio.io/v1\nkind: "+kind+"\nmetadata: {name: a}\nspec: "+spec+"\n"))
		if len(r.Problems) != 1 || r.Problems[0].String() != "a.yaml:4: "+kind+" default/a "+want {
			t.Errorf("%s: got %v, want %s", spec, r.Problems, want)
		}
	}
}

// An object that protects stays in its namespace when that is emptied.
func TestEmptiedNamespace(t *testing.T) {
	t.Parallel()
	for namespace, accepted := range map[string]bool{"": false, `""`: false, "null": false, "shop": true} {
		for kind, spec := range map[Kind]string{PeerAuthentication: "{mtls: {mode: STRICT}}",
			ServiceEntry: "{hosts: [a.example], ports: [{number: 80, name: http}], resolution: DNS}"} {
			info, _ := Info(kind)
			r := Parse("a.yaml", []byte("apiVersion: "+info.APIVersion()+"\nkind: "+string(kind)+"\nmetadata:\n  name: a\n  namespace: "+namespace+"\nspec: "+spec+"\n"))
			if want := accepted || kind == ServiceEntry; want != (len(r.Objects) == 1) || r.Unread == want {
				t.Errorf("%s in namespace %q: got %v, want it accepted: %v", kind, namespace, r.Problems, want)
			}
		}
	}
}

// What is accepted is written so that it is read as the same, the first values of enums included.
func TestEncodeAccepted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/odd/accepted.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		kind, spec, _ := strings.Cut(strings.TrimSpace(line), " ")
		info, _ := Info(Kind(kind))
		r := Parse("a.yaml", []byte("apiVersion: "+info.APIVersion()+"\nkind: "+kind+"\nmetadata: {name: odd, namespace: shop}\nspec: "+spec+"\n"))
		encoded, err := Encode(r.Objects)
		if err != nil {
			t.Fatal(err)
		}
		again := Parse("a.yaml", encoded)
		if len(r.Objects) != 1 || len(again.Objects) != 1 || r.Objects[0].Hash != again.Objects[0].Hash {
			t.Errorf("%s is written as another object, with %v:\n%s", line, again.Problems, encoded)
		}
	}
}
