package analyze

import (
	"strings"

	"github.com/ashore-mesh/ashore/internal/nearest"
)

// maxHints bounds how many unknown names of a run are compared with all known ones.
const maxHints = 10

// similar proposes the known name that an unknown one was probably meant to be, in brackets after a space; empty when
// none is similar.
func (a *analysis) similar(name string, known []string) string {
	a.hints++
	if a.hints > maxHints {
		return ""
	}
	return didYouMean(nearest.Name(name, known))
}

func didYouMean(name string) string {
	if name == "" {
		return ""
	}
	return " (did you mean " + name + "?)"
}

// similarHost is similar for the host of a service: one in the same domain, or one with the same first label.
func (a *analysis) similarHost(host string) string {
	a.hints++
	if a.hints > maxHints {
		return ""
	}
	label, domain, _ := strings.Cut(host, ".")
	var labels []string
	other := ""
	for k := range a.in.Services.All() {
		switch l, d, _ := strings.Cut(k.Host, "."); {
		case d == domain:
			labels = append(labels, l)
		case l == label:
			other = k.Host
		}
	}
	if near := nearest.Name(label, labels); near != "" {
		return didYouMean(strings.TrimSuffix(near+"."+domain, "."))
	}
	return didYouMean(other)
}
