package push

import (
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/internal/nearest"
)

// nearby finds the names that an unknown one was most likely meant to be. A name is its first part and the rest:
// "web" and "shop.svc.cluster.local", or for a Gateway its name and its namespace.
type nearby struct {
	byFirst map[string][]string // whole names
	byRest  map[string][]string // first parts
	join    func(first, rest string) string
	// left is how many names may still be compared: hints must not cost more than what they are about.
	left int
	// hints are those that were given.
	hints map[string]string
}

func newNearby(join func(first, rest string) string) *nearby {
	return &nearby{byFirst: map[string][]string{}, byRest: map[string][]string{}, join: join, left: 1 << 17, hints: map[string]string{}}
}

// add makes a name known, once.
func (n *nearby) add(first, rest string) {
	low := strings.ToLower(first)
	n.byFirst[low] = append(n.byFirst[low], n.join(first, rest))
	n.byRest[rest] = append(n.byRest[rest], first)
}

// hint names, in brackets after a blank, those that stand near: of the same first part, and the one of the same rest
// that is spelled alike. Empty when there are none.
func (n *nearby) hint(first, rest string) string {
	const most = 3
	key := n.join(first, rest)
	if h, ok := n.hints[key]; ok {
		return h
	}
	names := slices.Clone(n.byFirst[strings.ToLower(first)])
	names = names[:min(len(names), most)]
	if same := n.byRest[rest]; len(first) > 1 && len(same) <= n.left { // every letter is near every other
		n.left -= len(same)
		if near := nearest.Name(first, same); near != "" && !slices.Contains(names, n.join(near, rest)) {
			names = append(names, n.join(near, rest))
		}
	}
	h := ""
	if len(names) > 0 {
		h = " (near: " + strings.Join(names, ", ") + ")"
	}
	n.hints[key] = h
	return h
}
