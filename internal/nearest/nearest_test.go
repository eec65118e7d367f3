package nearest_test

import (
	"testing"

	"github.com/ashore-mesh/ashore/internal/nearest"
)

func TestName(t *testing.T) {
	t.Parallel()
	known := []string{"address", "gap", "hosts", "plaintextAddress"}
	for name, want := range map[string]string{
		"adress":           "address", // one left out
		"hosst":            "hosts",   // two swapped
		"HOSTS":            "hosts",
		"gab":              "gap",
		"plaintextadres":   "plaintextAddress",
		"x":                "",
		"":                 "",
		"listener":         "",
		"plaintextAddress": "plaintextAddress",
	} {
		if got := nearest.Name(name, known); got != want {
			t.Errorf("Name(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	known := []string{"db.example.com", "web.example.com"}
	for name, want := range map[string]string{
		"wbe.example.com":  "web.example.com",
		"we.example.con":   "web.example.com",
		"abcd.example.com": "",
		"webby.example.co": "",
	} {
		if got := nearest.Within(2, name, known); got != want {
			t.Errorf("Within(2, %q) = %q, want %q", name, got, want)
		}
	}
}
