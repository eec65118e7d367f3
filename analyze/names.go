package analyze

import "github.com/ashore-mesh/ashore/internal/nearest"

// maxHints bounds how many unknown names of a run are compared with all known ones.
const maxHints = 20

// similar proposes the known name that an unknown one was probably meant to be, in brackets after a space; empty when
// none is similar.
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

// similarHost is similar for the host of a service.
func (a *analysis) similarHost(host string) string {
	if a.hosts == nil {
		for k := range a.in.Services.All() {
			a.hosts = append(a.hosts, k.Host)
		}
	}
	return a.similar(host, a.hosts)
}
