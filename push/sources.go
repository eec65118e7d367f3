package push

import (
	"errors"
	"fmt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Sources lists the sources that an Assembler merges, in order of precedence. Names are unique.
type Sources struct {
	Objects  []Source[*config.Object]
	Services []Source[registry.Instances]
}

// Source is a source with its settings.
type Source[T any] struct {
	feed.Source[T]
	// Optional means that serving does not wait for the source.
	Optional bool
}

// Check returns an error if two sources have the same name.
func (s Sources) Check() error {
	var errs []error
	seen := map[string]int{}
	check := func(name string) {
		if seen[name]++; seen[name] == 2 {
			errs = append(errs, fmt.Errorf("two sources are called %s: remove one of them", name))
		}
	}
	for _, o := range s.Objects {
		check(o.Name())
	}
	for _, i := range s.Services {
		check(i.Name())
	}
	return errors.Join(errs...)
}

// sourceConfigs returns the settings of sources for a merger.
func sourceConfigs[T any](list []Source[T]) []feed.SourceConfig {
	out := make([]feed.SourceConfig, len(list))
	for i, s := range list {
		out[i] = feed.SourceConfig{Name: s.Name(), Required: !s.Optional}
	}
	return out
}
