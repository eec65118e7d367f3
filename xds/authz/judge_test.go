package authz

import (
	"strings"
	"testing"
)

// A condition on what is not known of the request is unknown, and the verdict says which. What is
// known decides.
func TestUnknown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule   string // of a policy that denies
		path   string
		want   Verdict
		reason string
	}{
		"source address":  {`from: [{source: {ipBlocks: [10.0.0.0/8]}}]`, "", Depends, "the source address is unknown"},
		"client address":  {`from: [{source: {remoteIpBlocks: [10.0.0.0/8]}}]`, "", Depends, "the client address is unknown"},
		"header":          {`when: [{key: "request.headers[X-A]", values: [b]}]`, "", Depends, "the header x-a is unknown"},
		"no header":       {`when: [{key: "request.headers[x-a]", notValues: [b]}]`, "", Depends, "the header x-a is unknown"},
		"claim":           {`when: [{key: "request.auth.claims[group]", values: [ops]}]`, "", Depends, "the claim group of the token is unknown"},
		"SNI":             {`when: [{key: connection.sni, values: ["*.example"]}]`, "", Depends, "the SNI is unknown"},
		"metadata":        {`when: [{key: "experimental.envoy.filters.a.b[c]", values: [d]}]`, "", Depends, "the metadata of a filter is unknown"},
		"path template":   {`to: [{operation: {paths: ["/a/{*}/c"]}}]`, "", Depends, "the path is unknown"},
		"another path":    {`to: [{operation: {paths: ["/a/{*}/c"]}}]`, "/a/c", Allowed, ""},
		"path that fits":  {`to: [{operation: {paths: ["/a/{*}/c"]}}]`, "/a/b/c?d", Denied, ""},
		"method is known": {`to: [{operation: {methods: [PUT]}}], when: [{key: connection.sni, values: ["*.example"]}]`, "", Allowed, ""},
		"not that method": {`to: [{operation: {notMethods: [PUT]}}]`, "", Denied, ""},
		"destination":     {`when: [{key: destination.ip, values: [10.0.0.0/8]}]`, "", Depends, "the destination address is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := explained(t, policyText("d", "{action: DENY, rules: [{"+tc.rule+"}]}"), nil)
			scope := c.Scope(c.Classify(Target{Namespace: "shop"}.Node()))
			got := Judge(scope, Request{Method: "GET", Port: 8080, Path: tc.path})
			if got.Verdict != tc.want || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("got %s: %s; want %s: %s", got.Verdict, got.Reason, tc.want, tc.reason)
			}
		})
	}
}
