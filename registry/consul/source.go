package consul

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/ashore-mesh/ashore/internal/consulhttp"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Config configures a Source.
type Config struct {
	// Name identifies the source among those of this kind. Required.
	Name string
	// Options are the options from the settings file.
	Options Options
	// Log is the logger. Required.
	Log hclog.Logger
}

// Source supplies the services of one Consul. Each service of a datacenter is a group. Run it once.
type Source struct {
	cfg    Config
	client *client
}

var _ feed.Source[registry.Instances] = (*Source)(nil)

// New checks the configuration. It sends no query. Errors name the option that is wrong.
func New(cfg Config) (*Source, error) {
	if cfg.Name == "" || cfg.Log == nil {
		return nil, errors.New("consul: a source needs a name and a logger")
	}
	if err := consulhttp.Checked(cfg.Options.Check); err != nil {
		return nil, err
	}
	cfg.Options = cfg.Options.withDefaults()
	c, err := newClient(&cfg.Options, "node:read and service:read")
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, client: c}, nil
}

// Name returns the name of the configuration.
func (s *Source) Name() string { return s.cfg.Name }

// Run sends all services once every datacenter has responded or failed, and then changes, until ctx
// ends.
func (s *Source) Run(ctx context.Context, out chan<- batch) error {
	ctx, cancel := context.WithCancel(ctx)
	sync := &syncer{
		source: s.Name(), o: &s.cfg.Options, client: s.client, log: s.cfg.Log,
		changes: make(chan func()), blocking: semaphore.NewWeighted(maxBlocking),
		catalogs: map[place]*catalog{}, pending: map[string]update{},
	}
	sync.watchDatacenters(ctx)
	sync.loop(ctx, out)
	cancel()
	sync.running.Wait()
	s.client.transport.CloseIdleConnections()
	return nil
}
