package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// labels is a flag of names with values: a=b,c=d. It may be given several times.
type labels struct {
	to    *map[string]string
	given bool // the default is replaced
}

// labelsVar defines a flag of labels in fs.
func labelsVar(fs *pflag.FlagSet) func(to *map[string]string, name string, value map[string]string, help string) {
	return func(to *map[string]string, name string, value map[string]string, help string) {
		*to = value
		fs.Var(&labels{to: to}, name, help)
	}
}

// Set implements pflag.Value.
func (l *labels) Set(text string) error {
	if !l.given {
		*l.to, l.given = map[string]string{}, true
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q is not a label; want NAME=VALUE", part)
		}
		if other, twice := (*l.to)[name]; twice {
			return fmt.Errorf("%s is given twice, as %q and as %q; give it once", name, other, value)
		}
		(*l.to)[name] = value
	}
	return nil
}

// String implements pflag.Value.
func (l *labels) String() string {
	if l.to == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*l.to)) {
		parts = append(parts, name+"="+(*l.to)[name])
	}
	return strings.Join(parts, ",")
}

// Type implements pflag.Value.
func (*labels) Type() string { return "labels" }
