package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/xds/ads"
)

// rejected are the resources that Envoy rejected last, by type and name, with its messages.
type rejected map[string]map[string]string

// add adds the resources of a response.
func (r rejected) add(reply *ads.Reply, message string) {
	if r[reply.TypeURL] == nil {
		r[reply.TypeURL] = map[string]string{}
	}
	for _, name := range namesOf(reply) {
		r[reply.TypeURL][name] = cmp.Or(message, "Envoy gave no reason")
	}
}

// drop removes the resources of a type for which gone is true.
func (r rejected) drop(typeURL string, gone func(name string) bool) {
	maps.DeleteFunc(r[typeURL], func(name, _ string) bool { return gone(name) })
}

// Limits of Status.Rejected: Envoy may reject everything.
const maxRejected, maxRejectedText = 10, 1 << 10

// list returns the resources as Status has them.
func (r rejected) list() []string {
	var out []string
	for typeURL, names := range r {
		for name, message := range names {
			text := fmt.Sprintf("%s %s: %s", shortType(typeURL), name, message)
			out = append(out, strings.ToValidUTF8(text[:min(len(text), maxRejectedText)], ""))
		}
	}
	slices.Sort(out)
	if more := len(out) - maxRejected; more > 0 {
		out = append(out[:maxRejected], fmt.Sprintf("and %d more", more))
	}
	return out
}
