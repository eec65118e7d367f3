package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rejected are the resources that Envoy rejected last, with its messages.
type rejected map[rejectedKey]string

type rejectedKey struct{ typeURL, name string }

// add adds the resources of a response.
func (r rejected) add(reply *response, message string) {
	for _, name := range namesOf(reply) {
		r[rejectedKey{reply.TypeUrl, name}] = cmp.Or(message, "Envoy gave no reason")
	}
}

// drop removes the resources of a type for which gone is true.
func (r rejected) drop(typeURL string, gone func(name string) bool) {
	maps.DeleteFunc(r, func(k rejectedKey, _ string) bool { return k.typeURL == typeURL && gone(k.name) })
}

// Limits of Status.Rejected: Envoy may reject everything.
const maxRejected, maxRejectedText = 10, 1 << 10

// list returns the resources as Status has them.
func (r rejected) list() []string {
	var out []string
	for k, message := range r {
		text := fmt.Sprintf("%s %s: %s", shortType(k.typeURL), k.name, message)
		out = append(out, strings.ToValidUTF8(text[:min(len(text), maxRejectedText)], ""))
	}
	slices.Sort(out)
	if more := len(out) - maxRejected; more > 0 {
		out = append(out[:maxRejected], fmt.Sprintf("and %d more", more))
	}
	return out
}
