package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/internal/writebehind"
)

// Store keeps groups across restarts. Each Merger has a set of its own, such as "config".
type Store interface {
	// LoadGroups returns what was saved in a set, by name.
	LoadGroups(ctx context.Context, set string) (map[string][]byte, error)
	// SaveGroups saves content by name, all or none; nil removes it.
	SaveGroups(ctx context.Context, set string, content map[string][]byte) error
}

// Codec writes items as JSON and reads them back. Decode says why an item cannot be used, and must
// check all that a source checks. Both are called from other goroutines than the Merger's.
type Codec[T any] struct {
	Encode func(T) (json.RawMessage, error)
	Decode func(json.RawMessage) (T, error)
}

// Writer saves the groups of a Merger in the background.
type Writer[T any] struct {
	codec  Codec[T]
	behind *writebehind.Writer
}

// NewWriter returns a Writer into a set of a store. Run starts it.
func NewWriter[T any](store Store, set string, codec Codec[T], log hclog.Logger) *Writer[T] {
	save := func(ctx context.Context, content map[string][]byte) error { return store.SaveGroups(ctx, set, content) }
	return &Writer[T]{codec, writebehind.New(writebehind.Config{Save: save, What: "last known good " + set, Log: log})}
}

// Run saves until ctx ends, and then what is left.
func (w *Writer[T]) Run(ctx context.Context) error { return w.behind.Run(ctx) }

// Put saves groups, as Merger.TakeChanged returns them. It does not block.
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

// Problems says that groups cannot be saved, while that is so.
func (w *Writer[T]) Problems() []Problem {
	since, err := w.behind.Err()
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("what is active cannot be saved for a restart: %v; it is tried again", err)
	return []Problem{{Severity: Error, Text: text, Since: since}}
}

// Load reads the groups that a Writer saved in a set. What cannot be read is left out, and the
// error says so.
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

// convert returns a group with other items. Those that cannot be converted are left out; the error
// is that of the last.
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
