package config

import (
	"strings"
	"testing"
)

// What was most likely meant for an identity and is nobody's is told of; what may be somebody's is
// not.
func TestDoubtPrincipal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ value, want string }{
		{"cluster.local/ns/shop/sa/web", ""},
		{"web", "the trust domain and the namespace are missing"},
		{"ns/shop/sa/web", "the trust domain is missing"},
		{"/cluster.local/ns/shop/sa/web", "begins with a slash"},
		{"/ns/shop/sa/web", "begins with a slash"},
		{"cluster.local/ns/shop/sa/web/", "ends with a slash"},
		{"cluster.local/ns/shop/web", `"sa" is missing`},
		{"cluster.local/sa/web", `"ns" is missing`},
		{"cluster.local/ns/shop/sa/", "ends with a slash"},
		{"cluster.local/ns/shop/sa/web/extra", "matches nobody"},
		{"cluster.local/sa/web/ns/shop", "matches nobody"},
		{"*/sa/web/", "ends with a slash"},
		{"*/ns/shop/web", `"sa" is missing`},
		{"cluster.local/ns/shop/web*", `"sa" is missing`},
		{"*", ""}, {"*/sa/web", ""}, {"*/web", ""}, {"*web", ""}, {"*ns/shop/sa/web", ""}, {"*s/shop/sa/web", ""}, {"*/ns/shop/sa/web", ""}, {"*local/ns/shop/sa/web", ""},
		{"cluster.local/*", ""}, {"cluster.local/ns/*", ""}, {"cluster.local/n*", ""}, {"cluster.local/ns/shop/*", ""}, {"cluster.local/ns/shop/s*", ""}, {"cluster.local/ns/sh*", ""},
		{"cluster.local/ns/shop/sa/*", ""}, {"cluster.local/ns/shop/sa/we*", ""}, {"cluster*", ""},
		{"shop/web", "write it in serviceAccounts, or as the principal cluster.local/ns/shop/sa/web"},
		{"partner.example/client", ""}, {"shop/path/client", ""}, {"*shop/web", ""}, {"partner.example/path/client", ""},
	} {
		if got := doubtPrincipal(tc.value); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.value, got, tc.want)
		}
	}
}

// A star that is an ordinary character is told of; one that stands for anything is not.
func TestDoubtPath(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ value, want string }{
		{"/dex/**", `matches only paths that begin with "/dex/*", star included, and not "/dex/a"`},
		{"/a*b", `matches only paths that are "/a*b", star included, and not "/aab"`},
		{"/*/b*", `that begin with "/*/b"`},
		{"*/b*", `that end with "/b*"`},
		{"**", `that end with "*"`},
		{"*", ""}, {"/dex/*", ""}, {"*/dex", ""}, {"/dex", ""}, {"/dex/{**}", ""}, {"/{*}/dex", ""},
	} {
		if why := checkPolicyPath(tc.value); why != "" {
			t.Errorf("%s: refused: %s", tc.value, why)
		}
		if got := doubtPath(tc.value); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.value, got, tc.want)
		}
	}
}
