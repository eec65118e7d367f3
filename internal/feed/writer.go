package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/writebehind"
)

// Store keeps groups across restarts. Each Merger has its own set, such as "config".
type Store interface {
	// LoadGroups returns the saved content of a set, by name.
	LoadGroups(ctx context.Context, set string) (map[string][]byte, error)
	// SaveGroups saves content by name in one transaction; nil deletes.
	SaveGroups(ctx context.Context, set string, content map[string][]byte) error
}

// Writer saves the groups of a Merger in the background.
type Writer[T any] struct{ behind *writebehind.Writer }

// savedAtOnce is how many groups are encoded at once. All groups of a large source would need more
// memory in JSON than in use.
const savedAtOnce = 500

// NewWriter returns a Writer for a set of a store. Call its Run. Items are encoded as JSON, in
// another goroutine.
func NewWriter[T any](store Store, set string, log hclog.Logger) *Writer[T] {
	save := func(ctx context.Context, content map[string][]byte) error { return store.SaveGroups(ctx, set, content) }
	return &Writer[T]{writebehind.New(writebehind.Config{Save: save, What: "last known good " + set, Log: log,
		Part: savedAtOnce})}
}

// Run saves groups until ctx ends. Then it saves what is pending and returns.
func (w *Writer[T]) Run(ctx context.Context) error { return w.behind.Run(ctx) }

// Put adds groups to save, as Merger.TakeChanged returns them. It does not block.
func (w *Writer[T]) Put(groups []SavedGroup[T]) {
	records := make(map[string]writebehind.Encode, len(groups))
	for _, g := range groups {
		name := g.Source + "\x00" + g.Group
		records[name] = func() ([]byte, error) { return json.Marshal(g) }
		if g.Removed {
			records[name] = nil
		}
	}
	w.behind.Put(records)
}

// Problems returns a problem while groups cannot be saved.
func (w *Writer[T]) Problems() []Problem {
	since, err := w.behind.Err()
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("cannot save the active content for a restart: %v; ashored retries until it can", err)
	return []Problem{{Severity: Error, Text: text, Since: since}}
}

// Load returns the saved groups. Groups that cannot be decoded are omitted and reported in the error.
// UnmarshalJSON of an item must validate it like the source does.
func Load[T any](ctx context.Context, store Store, set string) ([]SavedGroup[T], error) {
	content, err := store.LoadGroups(ctx, set)
	errs := []error{err}
	var groups []SavedGroup[T]
	for name, b := range content {
		var g SavedGroup[T]
		if err := json.Unmarshal(b, &g); err != nil {
			errs = append(errs, fmt.Errorf("read saved group %q: %w", name, err))
			continue
		}
		groups = append(groups, g)
	}
	return groups, errors.Join(errs...)
}
