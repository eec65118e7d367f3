package config

import (
	"strings"
	"testing"
)

// What Go reads and the proxies' RE2 does not is refused, as is what would be too large for it.
// Each verdict is Envoy 1.40's.
func TestRegex(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"/a/[^/]+":            "",
		`\pL\p{Lu}\P{^Greek}`: "",
		`\p{Any}[\p{Nd}\w]`:   "",
		`\x{ff}\x41`:          "",
		`\Q\p{Letter}\E.`:     "",
		`\\p{Letter}`:         "",
		"(?<name>a)":          "",
		"(a{0,30}){0,30}":     "",
		"x{1000}":             "",
		"(?i)[aceg]{900}":     "",
		"":                    "is empty",
		"(":                   "missing closing )",
		"a(?=b)":              "invalid or unsupported",
		`\1`:                  "invalid escape sequence",
		"x{1001}":             "invalid repeat count",
		`\p{Letter}`:          `the class "Letter"`,
		`\P{^ASCII}`:          `the class "^ASCII"`,
		`[\p{LC}]`:            `the class "LC"`,
		`\p{greek}`:           `the class "greek"`,
		`\Qa\E\p{Cn}`:         `the class "Cn"`,
		`\x{100}`:             `\x{100} is no byte`,
		"(" + strings.Repeat("ab", 50) + "){500}":               "too large",
		strings.Repeat("[acegikmoqsuwyACEGIKMOQSUWY]{1000}", 3): "too large",
		strings.Repeat("a", 1025):                               "more than 1024",
	} {
		c := checker{object: &Object{}}
		c.regex("regex", expression)
		got := ""
		if len(c.problems) > 0 {
			got = c.problems[0].Text
		}
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%.40s: got %q, want %q", expression, got, want)
		}
	}
}
