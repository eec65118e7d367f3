package crd

import (
	"context"
	"maps"
	"sync"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry/kube"
)

type (
	batch  = feed.Batch[*config.Object]
	update = feed.Update[*config.Object]
)

// Config configures a Source.
type Config struct {
	// Cluster is where the objects are. Required.
	Cluster *kube.Cluster
}

// Source supplies Istio's objects of one cluster. Run it once.
type Source struct {
	cluster *kube.Cluster

	mu      sync.Mutex
	objects map[config.Key]*object // guarded by mu; those in the cluster, with their latest version
}

var _ config.Source = (*Source)(nil)

// New returns a source. It sends no request.
func New(cfg Config) *Source {
	return &Source{cluster: cfg.Cluster, objects: map[config.Key]*object{}}
}

// Name implements config.Source: the name of the cluster and "/objects". Its services have the name
// of the cluster.
func (s *Source) Name() string { return s.cluster.Name + "/objects" }

// Run implements config.Source.
func (s *Source) Run(ctx context.Context, out chan<- batch) error {
	ctx, cancel := context.WithCancel(ctx)
	y := &syncer{src: s, cluster: s.cluster, log: s.cluster.Log, changes: make(kube.Changes),
		pending: map[string]update{}, lost: map[string]update{}}
	for _, info := range config.Kinds() {
		y.kinds = append(y.kinds, &kind{KindInfo: info})
	}
	y.running.Go(func() { y.findKinds(ctx) })
	y.loop(ctx, out)
	cancel()
	y.running.Wait()
	return nil
}

// get returns the latest version of an object; nil if there is none.
func (s *Source) get(k config.Key) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k]
}

// set replaces an object; nil removes it.
func (s *Source) set(k config.Key, o *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == nil {
		delete(s.objects, k)
	} else {
		s.objects[k] = o
	}
}

// has reports whether there are objects of a kind.
func (s *Source) has(kind config.Kind) bool {
	for key := range s.all() {
		if key.Kind == kind {
			return true
		}
	}
	return false
}

// all returns the latest version of all objects.
func (s *Source) all() map[config.Key]*object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}
