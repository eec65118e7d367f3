package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/filestore"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
)

// leaving says that something is kept under a name as that of a source; what else is kept is for others to forget.
func leaving(name string) bool {
	return slices.ContainsFunc([]string{"file:", "mcp:", "store:", "consul:"}, func(kind string) bool { return strings.HasPrefix(name, kind) })
}

// before is what sources said before the start that the settings do not name any more. Call it when make has made those.
func (m *sourceMaker) before(ctx context.Context) ([]feed.Batch[*config.Object], error) {
	var out []feed.Batch[*config.Object]
	kept, err := m.home.LastGoodSources(ctx)
	if err != nil {
		return out, fmt.Errorf("what was kept of sources: %w", err)
	}
	for _, name := range kept {
		if !leaving(name) || m.names(name) {
			continue
		}
		objects, err := m.keptObjects(ctx, name)
		if err != nil {
			m.log.Error("some of what was kept of a source that there is not any more cannot be used", "source", name, "error", err)
		}
		b := feed.Batch[*config.Object]{Source: name, Full: true}
		if len(objects) > 0 {
			b.Updates = []feed.Update[*config.Object]{{Group: "kept", Items: objects}}
		}
		out = append(out, b)
	}
	return out, nil
}

// keptObjects are the objects that were kept of a source; a registry has none.
func (m *sourceMaker) keptObjects(ctx context.Context, name string) ([]*config.Object, error) {
	contents, err := m.home.LoadLastGood(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case strings.HasPrefix(name, "file:"):
		return filestore.Kept(name, contents)
	case strings.HasPrefix(name, "consul:"):
		return nil, nil
	}
	return lastgood.Kept(contents, decodeObjects(name))
}

// names says whether the settings at work name a source, by the source's own name.
func (m *sourceMaker) names(source string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.settings[source]
	return ok
}

// leftAfter is left, once what of the sources is in use is kept by itself: what somebody takes away afterwards must not be there
// again after a start. Where that cannot be kept, the next start begins with all of it.
func (m *sourceMaker) leftAfter(held *heldKeeper) func([]string) {
	return func(names []string) {
		if held.writer.Written() {
			m.left(names)
		}
	}
}

// left forgets what was kept of sources, unless the settings name them again.
func (m *sourceMaker) left(names []string) {
	m.mu.Lock() // no source of such a name begins meanwhile
	defer m.mu.Unlock()
	for _, name := range names {
		if _, again := m.settings[name]; again {
			continue
		}
		if err := m.forget(name); err != nil {
			m.log.Warn("what was kept of a source that there is not any more stays in the store, until the next start", "source", name, "error", err)
		}
	}
}

// forget removes what was kept of a source.
func (m *sourceMaker) forget(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), forgetTime)
	defer cancel()
	contents, err := m.home.LoadLastGood(ctx, name)
	if err != nil || len(contents) == 0 {
		return err
	}
	for part := range contents {
		contents[part] = nil
	}
	return m.home.SaveLastGood(ctx, name, contents)
}
