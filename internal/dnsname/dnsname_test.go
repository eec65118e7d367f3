package dnsname

import (
	"strings"
	"testing"
)

func TestValid(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	longest := strings.Repeat(label+".", 3) + strings.Repeat("a", 61)
	for name, c := range map[string]struct{ name, label bool }{
		"":              {false, false},
		"a":             {true, true},
		"0":             {true, true},
		"cluster.local": {true, false},
		"a-b.c--d":      {true, false},
		"a-b":           {true, true},
		"-a":            {false, false},
		"a-":            {false, false},
		"-":             {false, false},
		"a.-b":          {false, false},
		"a..b":          {false, false},
		".a":            {false, false},
		"a.":            {false, false},
		"A":             {false, false},
		"a_b":           {false, false},
		"a b":           {false, false},
		"a\n":           {false, false},
		"é":             {false, false},
		label:           {true, true},
		label + "a":     {false, false},
		longest:         {true, false},
		longest + "a":   {false, false},
	} {
		if got := Valid(name); got != c.name {
			t.Errorf("Valid(%q) = %v, want %v", name, got, c.name)
		}
		if got := ValidLabel(name); got != c.label {
			t.Errorf("ValidLabel(%q) = %v, want %v", name, got, c.label)
		}
	}
}
