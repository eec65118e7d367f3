package services

import (
	"context"
	"sync/atomic"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/kube"
)

// Config configures a Source.
type Config struct {
	// Cluster is the cluster that is read. Required.
	Cluster *kube.Cluster
}

// Source supplies the services of one cluster. Run it once. Its other methods are safe for
// concurrent use.
type Source struct {
	cluster   *kube.Cluster             // immutable
	selection atomic.Pointer[selection] // written by Run
	watchers  task.Broadcaster          // of selection
}

// selection has the Pods that ServiceEntries select, and the Services that select WorkloadEntries.
type selection struct {
	pods      pmap.Map[registry.ObjectKey, *registry.Endpoint]
	selectors pmap.Map[registry.ObjectKey, *registry.Selector]
}

var _ feed.Source[registry.Instances] = (*Source)(nil)

// New returns a Source. It sends no request.
func New(cfg Config) *Source {
	s := &Source{cluster: cfg.Cluster}
	s.selection.Store(&selection{})
	return s
}

// Name returns the name of the cluster as a source.
func (s *Source) Name() string { return s.cluster.Name }

// Pods returns the Pods that have an address, as endpoints. Endpoint.Ports has the named ports of
// their containers. It is empty before the first batch, and keeps its content in an outage.
func (s *Source) Pods() pmap.Map[registry.ObjectKey, *registry.Endpoint] {
	return s.selection.Load().pods
}

// Selectors returns the Services that select workloads. It is empty before the first batch, and
// keeps its content in an outage.
func (s *Source) Selectors() pmap.Map[registry.ObjectKey, *registry.Selector] {
	return s.selection.Load().selectors
}

// Watch returns a channel that receives after Pods or Selectors changed, until ctx ends. It may
// receive once for several changes. The channel is never closed.
func (s *Source) Watch(ctx context.Context) <-chan struct{} { return s.watchers.Watch(ctx) }

// Run sends all services once all objects were listed, and then changes, until ctx ends.
func (s *Source) Run(ctx context.Context, out chan<- batch) error {
	y := &syncer{
		cluster: s.cluster, changes: make(kube.Changes), updates: map[key]struct{}{},
		publish: func(now selection) {
			s.selection.Store(&now)
			s.watchers.Notify()
		},
	}
	ctx, cancel := context.WithCancel(ctx)
	y.start(ctx)
	y.loop(ctx, out)
	cancel()
	y.running.Wait()
	return nil
}
