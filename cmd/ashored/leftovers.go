package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
			m.lost(name, err)
		}
		b := feed.Batch[*config.Object]{Source: name, Full: true}
		if len(objects) > 0 {
			b.Updates = []feed.Update[*config.Object]{{Group: "kept", Items: objects}}
		}
		out = append(out, b)
	}
	return out, nil
}

// lost notes that something that was kept of a source cannot be used.
func (m *sourceMaker) lost(name string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unused = append(m.unused, feed.Problem{Severity: feed.Error, Source: name, Since: time.Now(), Text: fmt.Sprintf(
		"it is not among the sources any more, and this release cannot read some of what was kept of it (%v): that is not in use; see that all that should be there is defined elsewhere. "+
			"What cannot be read at all is kept on for another release of ashored; name the source again, and take it out when it was read, to be done with it", why)})
}

// problems are what was kept of sources that there are not any more, and cannot be used. Safe for concurrent use.
func (m *sourceMaker) problems() []feed.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.unused), func(p feed.Problem) bool { _, again := m.settings[p.Source]; return again })
}

// unreadable says that a part of what was kept of a source cannot be read, nothing of it.
func unreadable(name string, contents map[string][]byte, part string) bool {
	one := map[string][]byte{part: contents[part]}
	if strings.HasPrefix(name, "file:") {
		objects, err := filestore.Kept(name, one)
		return len(objects) == 0 && err != nil
	}
	if all, ok := contents[lastgood.AboutAll]; ok {
		one[lastgood.AboutAll] = all
	}
	objects, err := lastgood.Kept(one, decodeObjects(name))
	return len(objects) == 0 && err != nil
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

// forget removes what was kept of a source, but for what could not be read. The caller holds mu.
func (m *sourceMaker) forget(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), forgetTime)
	defer cancel()
	contents, err := m.home.LoadLastGood(ctx, name)
	if err != nil || len(contents) == 0 {
		return err
	}
	gone := make(map[string][]byte, len(contents))
	damaged := slices.ContainsFunc(m.unused, func(p feed.Problem) bool { return p.Source == name })
	for part := range contents {
		if !damaged || !unreadable(name, contents, part) {
			gone[part] = nil
		}
	}
	if len(gone) < len(contents) { // what is left needs it to be read
		delete(gone, lastgood.AboutAll)
	}
	return m.home.SaveLastGood(ctx, name, gone)
}
