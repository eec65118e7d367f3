package push

import (
	"strings"
	"testing"
)

// A CUSTOM policy that can ask nobody is told of, for it refuses all that it matches.
func TestDanglingProvider(t *testing.T) {
	t.Parallel()
	custom := func(provider string) string {
		return policyText("c", `{action: CUSTOM, provider: {name: `+provider+`}, rules: [{}]}`)
	}
	for name, want := range map[string]string{
		"judge":  "",
		"nobody": `AuthorizationPolicy shop/c spec.provider.name: the mesh has no extension provider "nobody", so what this policy matches is refused`,
		"moved":  `there is no service web.example with port 81, where the extension provider "moved" is asked, so what this policy matches is refused`,
		"logs":   `the extension provider "logs" is none of external authorization`,
	} {
		c := explained(t, custom(name), nil)
		got := ""
		for _, p := range c.Dangling() {
			got += p.String() + "\n"
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
