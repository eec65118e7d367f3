package analyze

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/nearest"
)

const (
	// maxHints is how many unknown names of a run are compared with all known names.
	maxHints = 10
	// maxLetters is how many letters of a name may be wrong if it is a misspelled form of a known one.
	// In a short name it is a third of them, and at least one.
	maxLetters = 2
)

// similar returns " (did you mean NAME?)" with the known name that is most similar, or an empty
// text if none is.
func (a *analysis) similar(name string, known []string) string {
	a.hints++
	if a.hints > maxHints {
		return ""
	}
	near := nearest.Within(min(maxLetters, max(1, len(name)/3)), name, known)
	if near == "" {
		return ""
	}
	return " (did you mean " + near + "?)"
}

// similarHost is similar for a host that an object of a namespace names. It may be the completed form
// of a short name, "web". Hosts that begin with that name are preferred.
func (a *analysis) similarHost(host, namespace string) string {
	prefix := strings.TrimSuffix(host, "."+namespace+".svc."+a.in.Mesh.Domain) + "."
	var longer []string
	for _, h := range a.allHosts() {
		if strings.HasPrefix(h, prefix) {
			longer = append(longer, h)
		}
	}
	if len(longer) == 0 {
		return a.similar(host, a.allHosts())
	}
	return " (did you mean " + few(slices.Compact(longer)) + "?)"
}
