package analyze

import "github.com/ashore-mesh/ashore/internal/nearest"

// maxHints is how many unknown names of a run are compared with all known names.
const maxHints = 10

// similar returns " (did you mean NAME?)" with the known name that is most similar, or an empty
// text if none is.
func (a *analysis) similar(name string, known []string) string {
	a.hints++
	if a.hints > maxHints {
		return ""
	}
	if near := nearest.Name(name, known); near != "" {
		return " (did you mean " + near + "?)"
	}
	return ""
}
