package consul

import (
	"context"
	"errors"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/lastgood"
	"github.com/ashore-mesh/ashore/registry"
)

// Source supplies the services of one Consul. Run it once.
type Source struct {
	cfg    Config
	client *client
	kept   map[string]feed.Update[registry.Instances] // by group; set before Run
}

var (
	_ feed.Source[registry.Instances]         = (*Source)(nil)
	_ lastgood.Rememberer[registry.Instances] = (*Source)(nil)
)

// New checks a configuration. It asks nobody. Errors name the option that is wrong.
func New(cfg Config) (*Source, error) {
	if cfg.Name == "" || cfg.Log == nil {
		return nil, errors.New("consul: a source needs a name and a logger")
	}
	if err := cfg.Options.checked(); err != nil {
		return nil, err
	}
	cfg.Options = cfg.Options.withDefaults()
	c, err := newClient(&cfg.Options)
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, client: c}, nil
}

// Name is "consul:" and the name of the configuration.
func (s *Source) Name() string { return source + s.cfg.Name }

// Run sends the whole catalogue once all of it is known, and then what changes, until ctx ends.
func (s *Source) Run(ctx context.Context, out chan<- feed.Batch[registry.Instances]) error {
	ctx, cancel := context.WithCancel(ctx)
	k := newKeeper(&s.cfg.Options, s.client, s.cfg.Log)
	k.source, k.kept = s.Name(), s.kept
	k.start(ctx, k.places)
	k.start(ctx, k.grow)
	k.loop(ctx, out)
	cancel()
	k.running.Wait()
	s.client.transport.CloseIdleConnections()
	return nil
}
