package config

import (
	"strings"
	"testing"
)

// What is no expression of RE2's syntax is refused.
func TestRegex(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"/a/[^/]+":                "",
		`\pL\p{Lu}\P{^Greek}`:     "",
		`\p{Any}[\p{Nd}\w]`:       "",
		`\x{ff}\x41`:              "",
		`\Q\p{Letter}\E.`:         "",
		`\\p{Letter}`:             "",
		"(?<name>a)":              "",
		"(a{0,30}){0,30}":         "",
		"x{1000}":                 "",
		"(?i)[aceg]{900}":         "",
		"":                        "is empty",
		"(":                       "missing closing )",
		"a(?=b)":                  "invalid or unsupported",
		`\1`:                      "invalid escape sequence",
		"x{1001}":                 "invalid repeat count",
		strings.Repeat("a", 1025): "more than 1024",
	} {
		got := checkRegex(expression)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%.40s: got %q, want %q", expression, got, want)
		}
	}
}
