package adminapi

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/internal/excerpt"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// maxRejection is how much of Envoy's message a problem quotes, in bytes.
const maxRejection = 300

// rejected returns a problem for each resource that connected Envoys rejected. They are warnings: an
// Envoy may be at fault itself.
func (a *API) rejected() (out []feed.Problem) {
	proxies := map[string][]string{} // by what they rejected
	for _, p := range proxyList(a.Connected()) {
		for _, t := range p.Types {
			for _, r := range t.Rejected {
				if t.Objects == "" {
					what := fmt.Sprintf("%s %s: %s", t.Type, r.Resource, excerpt.Of(r.Error, maxRejection))
					proxies[what] = append(proxies[what], p.ID)
				}
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(proxies)) {
		ids := proxies[what]
		out = append(out, feed.Problem{Severity: feed.Warning, Source: "proxies", Text: fmt.Sprintf("rejected by %d, such as "+
			"%s, which keep the previous version: %s. \"ashorectl proxy-status %[2]s\" shows all of it", len(ids), ids[0], what)})
	}
	return out
}
