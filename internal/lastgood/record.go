package lastgood

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// AboutAll is the name under which stands what is known of all groups together. Groups begin with groupPrefix.
const (
	AboutAll    = "all"
	groupPrefix = "group:"
)

// summary says of when the kept groups are. There is none until a source has said everything once.
type summary struct {
	AsOf time.Time `json:"asOf"`
}

// keptGroup is a group as it is written.
type keptGroup struct {
	AsOf  time.Time       `json:"asOf,omitzero"`
	Items json.RawMessage `json:"items"`
	Mark  string          `json:"mark,omitempty"`
	// Away, Within and Problems are those of feed.Update; Problems stand here only of a group that is away.
	Away     time.Time      `json:"away,omitzero"`
	Within   string         `json:"within,omitempty"`
	Problems []feed.Problem `json:"problems,omitempty"`
}

// decoded is what was kept of a source.
type decoded[T any] struct {
	complete bool // there is something that is complete
	asOf     time.Time
	groups   map[string]feed.Update[T]
	unread   map[string]feed.Problem // groups of which not all can be read, which is left out
}

// decodeAll reads what was kept. The error tells of what cannot be read.
func decodeAll[T any](contents map[string][]byte, decode func([]byte) ([]T, error), now time.Time) (decoded[T], error) {
	raw, ok := contents[AboutAll]
	if !ok {
		return decoded[T]{}, nil
	}
	var s summary
	if err := json.Unmarshal(raw, &s); err != nil {
		return decoded[T]{}, fmt.Errorf("read what was kept: %w", err)
	}
	out := decoded[T]{complete: true, asOf: s.AsOf, groups: map[string]feed.Update[T]{}, unread: map[string]feed.Problem{}}
	var bad []error
	for name, raw := range contents {
		group, ok := cutGroup(name)
		if !ok {
			continue
		}
		var k keptGroup
		items, err := []T(nil), json.Unmarshal(raw, &k)
		if err == nil {
			items, err = decode(k.Items)
		}
		u := feed.Update[T]{Group: group, Items: items, Problems: k.Problems, AsOf: k.AsOf, Away: k.Away, Within: k.Within, Mark: k.Mark, Kept: true}
		if err != nil {
			bad = append(bad, fmt.Errorf("read what was kept of %s: %w", group, err))
			out.unread[group] = unusable(group, err, now)
			u.Problems = append(u.Problems, out.unread[group])
		}
		out.groups[group] = u
	}
	return out, errors.Join(bad...)
}

// unusable is the problem of a group of which not all that was kept can be read.
func unusable(group string, why error, now time.Time) feed.Problem {
	return feed.Problem{Severity: feed.Error, Since: now, Text: fmt.Sprintf(
		"what was kept of %s from before the start cannot be used, or not all of it (%v): it is missing until the source answers; until then it is kept on, for another release of ashored", group, why)}
}

func cutGroup(name string) (string, bool) {
	if len(name) < len(groupPrefix) || name[:len(groupPrefix)] != groupPrefix {
		return "", false
	}
	return name[len(groupPrefix):], true
}

// Kept are the items that were kept of a source, as a Store has them. The error tells of what cannot be read, which is left out.
func Kept[T any](contents map[string][]byte, decode func([]byte) ([]T, error)) ([]T, error) {
	all, err := decodeAll(contents, decode, time.Time{})
	var out []T
	for _, name := range slices.Sorted(maps.Keys(all.groups)) {
		out = append(out, all.groups[name].Items...)
	}
	return out, err
}
