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

// Codec encodes items as JSON and decodes them. Decode must validate like the source does. Both
// must be safe to call from another goroutine.
type Codec[T any] struct {
	Encode func(T) (json.RawMessage, error)
	Decode func(json.RawMessage) (T, error)
}

// Writer saves the groups of a Merger in the background.
type Writer[T any] struct {
	codec  Codec[T]
	behind *writebehind.Writer
}

// NewWriter returns a Writer for a set of a store. Call its Run.
func NewWriter[T any](store Store, set string, codec Codec[T], log hclog.Logger) *Writer[T] {
	save := func(ctx context.Context, content map[string][]byte) error { return store.SaveGroups(ctx, set, content) }
	return &Writer[T]{codec, writebehind.New(writebehind.Config{Save: save, What: "last known good " + set, Log: log})}
}

// Run saves groups until ctx ends. Then it saves what is pending and returns.
func (w *Writer[T]) Run(ctx context.Context) error { return w.behind.Run(ctx) }

// Put adds groups to save, as Merger.TakeChanged returns them. It does not block.
func (w *Writer[T]) Put(groups []SavedGroup[T]) {
	records := make(map[string]writebehind.Encode, len(groups))
	for _, g := range groups {
		name := g.Source + "\x00" + g.Group
		records[name] = func() ([]byte, error) {
			encoded, err := convert(g, w.codec.Encode)
			if err != nil {
				return nil, err
			}
			return json.Marshal(encoded)
		}
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

// Load returns the saved groups. Unreadable groups are omitted and reported in the error.
func Load[T any](ctx context.Context, store Store, set string, codec Codec[T]) ([]SavedGroup[T], error) {
	content, err := store.LoadGroups(ctx, set)
	errs := []error{err}
	var groups []SavedGroup[T]
	for name, b := range content {
		var g SavedGroup[json.RawMessage]
		if err := json.Unmarshal(b, &g); err != nil {
			errs = append(errs, fmt.Errorf("read saved group %q: %w", name, err))
			continue
		}
		decoded, err := convert(g, codec.Decode)
		if err != nil {
			errs = append(errs, fmt.Errorf("read saved group %q: %w", name, err))
		}
		groups = append(groups, decoded)
	}
	return groups, errors.Join(errs...)
}

// convert returns a group with converted items. It omits items that cannot be converted, and
// returns the error of the last one.
func convert[A, B any](g SavedGroup[A], item func(A) (B, error)) (out SavedGroup[B], failed error) {
	out = SavedGroup[B]{Source: g.Source, Group: g.Group, GroupState: g.GroupState}
	for _, i := range g.Items {
		v, err := item(i.Item)
		if err != nil {
			failed = err
			continue
		}
		out.Items = append(out.Items, SavedItem[B]{v, i.Stale, i.Removal})
	}
	return out, failed
}
