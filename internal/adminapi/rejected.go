package adminapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// maxRejection is how much of Envoy's message a problem quotes, in bytes.
const maxRejection = 300

// rejection is a resource that proxies rejected.
type rejection struct {
	message string // of the first proxy
	proxies []string
}

// rejected returns a problem for each resource that connected Envoys rejected. They are warnings: an
// Envoy may be at fault itself.
func (a *API) rejected() (out []feed.Problem) {
	all := map[string]*rejection{} // by type and name
	for _, p := range proxyList(a.Connected()) {
		for _, t := range p.Types {
			for _, r := range t.Rejected {
				if t.Objects != "" {
					continue
				}
				what := strings.TrimSpace(t.Type + " " + r.Resource)
				if all[what] == nil {
					all[what] = &rejection{message: excerpt.Of(oneLine(r.Error), maxRejection)}
					if len(r.Patches) > 0 {
						all[what].message += "; it has the patches " + excerpt.Of(strings.Join(r.Patches, ", "), maxRejection)
					}
				}
				all[what].proxies = append(all[what].proxies, p.ID)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(all)) {
		r := all[what]
		out = append(out, feed.Problem{Severity: feed.Warning, Source: "proxies", Text: fmt.Sprintf("rejected by %d, such as "+
			"%s, which keep the previous version: %s: %s. \"ashorectl proxy-status %[2]s\" shows all of it",
			len(r.proxies), r.proxies[0], what, r.message)})
	}
	return out
}

// oneLine joins the lines of a message, each once. Envoy ends messages about listeners with a line
// end, and repeats lines.
func oneLine(message string) string {
	var lines []string
	for line := range strings.Lines(message) {
		line = strings.TrimRight(strings.TrimSpace(line), ".")
		if line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
