package authz

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/access"
)

// A condition on what the request does not state is unknown, and the verdict says which. Stated, it
// decides.
func TestUnknown(t *testing.T) {
	t.Parallel()
	deny := func(rule string) string { return policyText("d", "{action: DENY, rules: [{"+rule+"}]}") }
	for name, tc := range map[string]struct {
		policy  string
		unknown string // a part of the reason when nothing is stated; empty: it is allowed
		stated  Request
		want    Verdict
	}{
		"source address": {deny(`from: [{source: {ipBlocks: [10.0.0.0/8]}}]`), "the source address is unknown", Request{Source: netip.MustParseAddr("10.0.0.1")}, Denied},
		"client address": {deny(`from: [{source: {remoteIpBlocks: [10.0.0.0/8]}}]`), "the client address is unknown", Request{Remote: netip.MustParseAddr("192.0.2.1")}, Allowed},
		"header":         {deny(`when: [{key: "request.headers[X-A]", values: [b]}]`), "the header x-a is unknown", Request{Headers: map[string][]string{"x-a": {"a,b"}}}, Denied},
		"no header":      {deny(`when: [{key: "request.headers[x-a]", notValues: [b]}]`), "the header x-a is unknown", Request{Headers: map[string][]string{}}, Denied},
		"claim":          {deny(`when: [{key: "request.auth.claims[group]", values: [ops]}]`), "the claim group of the token is unknown", Request{Claims: map[string][]string{"group": {"dev", "ops"}}}, Denied},
		"no token":       {deny(`when: [{key: "request.auth.claims[group]", values: [ops]}]`), "the claim group of the token is unknown", Request{Claims: map[string][]string{}}, Allowed},
		"SNI":            {deny(`when: [{key: connection.sni, values: ["*.example"]}]`), "the SNI is unknown", Request{ServerName: "web.example"}, Denied},
		"path template":  {deny(`to: [{operation: {paths: ["/a/{*}/c"]}}]`), "the path is unknown", Request{Path: "/a/b/c?d"}, Denied},
		"metadata":       {deny(`when: [{key: "experimental.envoy.filters.a.b[c]", values: [d]}]`), "the metadata of a filter is unknown", Request{}, Depends},
		"the method is known": {
			deny(`to: [{operation: {methods: [PUT]}}], when: [{key: connection.sni, values: ["*.example"]}]`), "", Request{}, Allowed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := explained(t, tc.policy, nil)
			scope := c.Scope(c.Classify(Target{Namespace: "shop"}.node()))
			ask := func(r Request) Decision {
				r.Method, r.Port = "GET", 8080
				return Judge(scope, access.Filters, r)
			}
			got := ask(Request{})
			if tc.unknown == "" && got.Verdict != Allowed || tc.unknown != "" &&
				(got.Verdict != Depends || !strings.Contains(got.Reason, tc.unknown)) {
				t.Errorf("nothing stated: %s: %s; want %q", got.Verdict, got.Reason, tc.unknown)
			}
			if got := ask(tc.stated); got.Verdict != tc.want {
				t.Errorf("stated: %s: %s; want %s", got.Verdict, got.Reason, tc.want)
			}
		})
	}
}

// A revoked certificate is denied, at HTTP and at TCP; one that is not stated counts as good.
func TestRevokedCertificate(t *testing.T) {
	t.Parallel()
	c := explained(t, "", &push.Trust{Certificates: []string{"aa", "bb"}})
	scope := c.Scope(c.Classify(Target{Namespace: "shop"}.node()))
	from := spiffe.ID{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "a"}
	for certificate, want := range map[string]Verdict{"bb": Denied, "cc": Allowed, "": Allowed} {
		for _, tcp := range []bool{false, true} {
			got := Judge(scope, access.Filters, Request{TCP: tcp, From: from, Certificate: certificate,
				Method: "GET", Path: "/"})
			if got.Verdict != want || want == Denied && !strings.Contains(got.Reason,
				"certificate of spiffe://cluster.local/ns/shop/sa/a is revoked") {
				t.Errorf("certificate %q, TCP %v: %s: %s; want %s", certificate, tcp, got.Verdict, got.Reason, want)
			}
		}
	}
}
