package server

import (
	"cmp"

	"github.com/hashicorp/go-hclog"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/settings"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/kube"
	"github.com/ashore-mesh/ashore/registry/kube/crd"
	"github.com/ashore-mesh/ashore/registry/kube/services"
)

// cluster is a cluster of Kubernetes and what is read there. services and objects may be nil.
type cluster struct {
	*kube.Cluster
	services *services.Source
	objects  *crd.Source
}

// makeKubernetes makes the sources that read a cluster.
func (s *Server) makeKubernetes(src settings.Source, o *settings.KubernetesSource, log hclog.Logger) (
	objects config.Source, instances feed.Source[registry.Instances], err error) {
	options := o.Options
	options.Cluster = cmp.Or(options.Cluster, src.Name)
	connected, err := kube.Connect(src.ID(), options, log)
	if err != nil {
		return nil, nil, err
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
