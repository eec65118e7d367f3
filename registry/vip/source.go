package vip

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Addresses gives services their virtual addresses, and keeps them while they are in use.
type Addresses interface {
	// Allocate returns the addresses of every key, choosing and keeping new ones where there are none. It may
	// wait for a disk. With an error, the keys that are in the result have their addresses all the same.
	Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error)
	// Release says that keys are not used any more by who asked for them. In time others may be given their addresses.
	Release(keys []registry.Key)
	// Lost returns once those of keys whose addresses are not theirs any more: they are to be asked for anew.
	Lost() []registry.Key
	// Losing tells that there may be some of Lost. Nil: there never are.
	Losing() <-chan struct{}
}

// Config says whose services are given addresses, and by whom.
type Config struct {
	// Source supplies the services; required. Those that declare addresses keep them.
	Source feed.Source[registry.Instances]
	// Addresses gives them; required.
	Addresses Addresses
	// Patience is how long what the source says waits for addresses, so that a new service arrives complete. Once it is
	// over nothing waits any more until Addresses answers. What the source says first waits however long it takes: what
	// services had before the start is part of it. Default 250ms.
	Patience time.Duration
	// Retry is after how long addresses are asked for again that were refused. Default 5s.
	Retry time.Duration
}

// Source is a source whose services have addresses.
type Source struct{ cfg Config }

var _ feed.Source[registry.Instances] = (*Source)(nil)

// New makes a source; Run starts it.
func New(cfg Config) *Source {
	cfg.Patience = cmp.Or(cfg.Patience, 250*time.Millisecond)
	cfg.Retry = cmp.Or(cfg.Retry, 5*time.Second)
	return &Source{cfg}
}

// Name is that of the wrapped source.
func (s *Source) Name() string { return s.cfg.Source.Name() }

// Run is feed.Source's. It is still there while Addresses does not answer, whatever becomes of ctx, unless Addresses heeds
// that.
func (s *Source) Run(ctx context.Context, out chan<- feed.Batch[registry.Instances]) error {
	g, ctx := errgroup.WithContext(ctx)
	from := make(chan feed.Batch[registry.Instances])
	d := newDesk(s.cfg)
	g.Go(func() error { return s.cfg.Source.Run(ctx, from) })
	g.Go(func() error { s.ask(ctx, d.asks, d.answers); return nil })
	g.Go(func() error { d.run(ctx, from, out); return nil })
	defer d.leave()
	return g.Wait()
}

// answer is what Addresses said of keys.
type answer struct {
	keys []registry.Key
	got  map[registry.Key][]netip.Addr
	err  error // why some of keys have none; nil: all have
}

// errNone says that there was an answer, and no address in it.
var errNone = errors.New("none was given")

// ask asks Addresses until ctx ends.
func (s *Source) ask(ctx context.Context, asks <-chan []registry.Key, answers chan<- answer) {
	for {
		select {
		case <-ctx.Done():
			return
		case keys := <-asks:
			got, err := s.cfg.Addresses.Allocate(ctx, keys)
			select {
			case <-ctx.Done():
				return
			case answers <- answer{keys, got, cmp.Or(err, errNone)}:
			}
		}
	}
}
