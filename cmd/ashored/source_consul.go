package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry/consul"
)

// consulSource is a Consul.
type consulSource struct{ consul.Options }

func (c *consulSource) into() any { return &c.Options }

func (c *consulSource) check(wrong func(option, format string, args ...any)) { c.Check(wrong) }

// exposed tells what others than ashored may get hold of by the settings of the sources in use.
// Safe for concurrent use.
func (m *sourceMaker) exposed() (out []feed.Problem) {
	m.mu.Lock()
	settings := maps.Clone(m.settings)
	m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		s := settings[name]
		c, ok := s.options.(*consulSource)
		if !ok {
			continue
		}
		consulhttp.Exposure(c.Address, c.TokenFile, "says which services there are, and where",
			"may do in Consul what it allows", func(option, format string, args ...any) {
				out = append(out, feed.Problem{Severity: feed.Warning, Source: name, Field: s.at + "." + option,
					Text: fmt.Sprintf(format, args...)})
			})
	}
	return out
}
