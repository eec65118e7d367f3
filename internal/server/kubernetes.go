package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/ca"
	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/secret"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/registry/kube"
	"github.com/ashore-mesh/ashore/registry/kube/crd"
	kubeidentity "github.com/ashore-mesh/ashore/registry/kube/identity"
	"github.com/ashore-mesh/ashore/registry/kube/services"
)

// cluster is a cluster of Kubernetes and what is read there. services and objects may be nil.
type cluster struct {
	*kube.Cluster
	services *services.Source
	objects  *crd.Source
	// leading are the tasks of the replica that leads in the cluster.
	leading []func(context.Context)
}

// makeKubernetes makes the sources that read a cluster. The kubeconfig of a required cluster has to be
// usable now. Others are down until theirs is.
func (s *Server) makeKubernetes(src settings.Source, o *settings.KubernetesSource, log hclog.Logger) (
	objects config.Source, instances feed.Source[registry.Instances], err error) {
	options := o.Options
	options.Cluster = cmp.Or(options.Cluster, src.Name)
	connected, err := kube.Connect(src.ID(), options, log)
	if err != nil {
		return nil, nil, err
	}
	if src.Required {
		if err := connected.Check(); err != nil {
			return nil, nil, err
		}
	}
	c := &cluster{Cluster: connected}
	if o.Services {
		c.services = services.New(services.Config{Cluster: connected})
		instances = c.services
	}
	if o.Configuration {
		c.objects = crd.New(crd.Config{Cluster: connected})
		objects = c.objects
	}
	s.clusters[src.Name] = c
	return objects, instances, nil
}

// selecting returns the clusters whose Pods and Services take part in the selection of workloads, in
// the order of the settings.
func (s *Server) selecting() (out []entry.Cluster) {
	for _, src := range s.cfg.SourceList {
		if c := s.clusters[src.Name]; c != nil && c.services != nil {
			out = append(out, c.services)
		}
	}
	return out
}

// reportToClusters has the leader of each cluster write the status of its objects, and keep the
// configuration of the webhook correct. id may be nil.
func (s *Server) reportToClusters(id *identity) {
	for _, c := range s.clusters {
		if c.objects == nil {
			continue
		}
		status := crd.NewStatusWriter(crd.StatusConfig{Source: c.objects, Active: s.activeObject,
			Problems: s.sourceProblems})
		c.leading = append(c.leading, status.Run)
		s.report(status.Problems)
		if s.listeners.webhook != nil {
			w := crd.NewWebhook(crd.WebhookConfig{Cluster: c.Cluster,
				Roots: func() []byte { return id.manager.Bundle().PEM() }})
			c.leading = append(c.leading, w.Run)
			s.report(w.Problems)
		}
	}
}

// activeObject returns the object with a key that proxies use; nil if there is none.
func (s *Server) activeObject(k config.Key) *config.Object {
	if c := s.published.Load(); c != nil {
		return c.Inputs().Objects.At(k)
	}
	return nil
}

// sourceProblems returns the problems of all sources. None while they are not known.
func (s *Server) sourceProblems() []feed.Problem {
	problems, err := s.api.SourceProblems()
	if err != nil {
		s.log.Debug("the problems of sources are not known", "error", err)
	}
	return problems
}

// useClusters has the clusters in the settings review tokens, sign certificates and answer who may
// read Secrets, and writes the mesh's roots into those whose tokens are accepted.
func (s *Server) useClusters(id *identity, issuing *ca.ServerConfig) {
	var reviewers []*kube.Cluster
	for _, name := range s.cfg.Attestors.Kubernetes {
		c := s.clusters[name]
		reviewers = append(reviewers, c.Cluster)
		roots := kubeidentity.NewRootWriter(kubeidentity.RootWriterConfig{Cluster: c.Cluster,
			Roots: func() []byte { return id.manager.Bundle().PEM() }, Changed: id.manager.Changed})
		c.leading = append(c.leading, roots.Run)
		s.report(roots.Problems)
	}
	if len(reviewers) > 0 {
		r := kubeidentity.NewReviewer(reviewers)
		issuing.Reviewer = r
		s.report(r.Problems)
	}
	if signer := s.cfg.CA.Signer; signer.Name != "" {
		issuing.External = kubeidentity.NewSigner(s.clusters[signer.Source].Cluster, signer.Name)
	}
	if name := s.cfg.Secrets.Kubernetes; name != "" {
		id.access = kubeidentity.NewAccess(s.clusters[name].Cluster)
		s.report(id.access.Problems)
	}
}

// clusterSecrets reads the Secrets of the cluster in the settings. Nil: there is none.
func (s *Server) clusterSecrets() secret.Source {
	if s.cfg.Secrets.Kubernetes == "" {
		return nil
	}
	out := kubeidentity.NewSecrets(s.clusters[s.cfg.Secrets.Kubernetes].Cluster)
	s.run("secrets of the cluster", out.Run)
	return out
}

// runLeaders adds the tasks that one replica at a time does in each cluster.
func (s *Server) runLeaders() {
	replica := settings.MachineName() + "-" + rand.Text()
	for name, c := range s.clusters {
		if len(c.leading) == 0 {
			continue
		}
		var failures kube.Failures
		report := func(err error) { failures.Note("lease", err) }
		s.report(func() []feed.Problem { return failures.Problems(c.Name, "; no replica can lead in the cluster") })
		s.run("leader in the cluster "+name, func(ctx context.Context) error {
			c.Lead(ctx, replica, report, c.lead)
			return nil
		})
	}
}

// lead runs the tasks of the leader until ctx ends.
func (c *cluster) lead(ctx context.Context) {
	var tasks sync.WaitGroup
	for _, f := range c.leading {
		tasks.Go(func() { f(ctx) })
	}
	tasks.Wait()
}
