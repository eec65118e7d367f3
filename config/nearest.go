package config

import (
	"cmp"
	"strings"

	"github.com/ashore-mesh/ashore/internal/nearest"
)

// meant is the name among names that name was most likely meant to be; empty when none is near, or
// when there is too much to compare: a hint must not cost more than the file that it is about.
func meant(name string, names []string) string {
	if len(name) > 64 || len(names) > 200 {
		return ""
	}
	return nearest.Name(name, names)
}

// didYouMean is the hint that follows an unknown name, with its leading separator; empty when no
// name is near.
func didYouMean(name string, names []string) string {
	if n := meant(name, names); n != "" {
		return ", did you mean " + quote(n) + "?"
	}
	return ""
}

// meantOrOneOf is the hint that follows an unknown name: the nearest of names, or else all of them.
func meantOrOneOf(name string, names []string) string {
	return cmp.Or(didYouMean(name, names), "; use one of "+strings.Join(names, ", "))
}
