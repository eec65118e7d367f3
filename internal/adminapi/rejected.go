package adminapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// maxRejection is how much of Envoy's message a problem quotes, in bytes.
const maxRejection = 300

// rejection is a resource that proxies rejected, or all those that one object is the likely cause of.
type rejection struct {
	resources []string // types and names; each once
	message   string   // about the first resource, of the first proxy
	proxies   []string // each once
	patches   []admin.Patch
}

// rejected returns a problem for each object whose patches connected Envoys rejected, and for each
// other resource that they rejected. The latter are warnings: an Envoy may be at fault itself.
func (a *API) rejected() (out []feed.Problem) {
	all := map[string]*rejection{} // by object, or by type and name
	for _, p := range a.proxies() {
		for _, t := range p.Types {
			for _, r := range t.Rejected {
				if t.Objects != "" {
					continue
				}
				what := strings.TrimSpace(t.Type + " " + r.Resource)
				key := what
				if len(r.Patches) > 0 {
					key = r.Patches[0].Object
				}
				one := all[key]
				if one == nil {
					one = &rejection{message: excerpt.Of(oneLine(r.Error), maxRejection), patches: r.Patches}
					all[key] = one
				}
				one.resources, one.proxies = addOnce(one.resources, what), addOnce(one.proxies, p.ID)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[key].problem())
	}
	return out
}

func addOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func (r *rejection) problem() feed.Problem {
	what := r.resources[0]
	if n := len(r.resources) - 1; n > 0 {
		what += fmt.Sprintf(" (and %d more)", n)
	}
	p := feed.Problem{Severity: feed.Warning, Source: "proxies", Text: fmt.Sprintf("rejected by %d, such as "+
		"%s, which keep the previous version: %s: %s", len(r.proxies), r.proxies[0], what, r.message)}
	if len(r.patches) > 0 {
		first := r.patches[0]
		p.Severity, p.Object, p.Field = feed.Error, first.Object, first.Field
		p.File, p.Line = first.Origin.File, first.Origin.Line
		p.Text += ". " + excerpt.Of(admin.PatchesText(r.patches), 2*maxRejection)
	}
	p.Text += fmt.Sprintf(". \"ashorectl proxy-status %s\" shows all of it", r.proxies[0])
	return p
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
