package entry

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Cluster is a cluster of Kubernetes. Its Pods can be selected like WorkloadEntries, and its Services
// select WorkloadEntries. Package registry/kube/services implements it.
type Cluster interface {
	// Name returns the name of the source.
	Name() string
	// Pods returns the Pods that have an address. It does not wait.
	Pods() pmap.Map[registry.ObjectKey, *registry.Endpoint]
	// Selectors returns the Services that have a selector. It does not wait.
	Selectors() pmap.Map[registry.ObjectKey, *registry.Selector]
	// Watch returns a channel that receives after one of the two changed, until ctx ends.
	Watch(ctx context.Context) <-chan struct{}
}

// cluster is a Cluster as of the latest Derive.
type cluster struct {
	Cluster
	pods      pmap.Map[registry.ObjectKey, *registry.Endpoint]
	selectors pmap.Map[registry.ObjectKey, *registry.Selector]
	// selecting holds the Services that selected a workload.
	selecting map[registry.ObjectKey]bool
}

// selectorID identifies a Service with a selector.
type selectorID struct {
	cluster *cluster
	key     registry.ObjectKey
}

func newClusters(list []Cluster) []*cluster {
	out := make([]*cluster, len(list))
	for i, c := range list {
		out[i] = &cluster{Cluster: c, selecting: map[registry.ObjectKey]bool{}}
	}
	return out
}

// updateClusters applies changed Pods and Services, and marks the services that they concern as
// changed.
func (d *Deriver) updateClusters(changed changes) {
	for _, c := range d.clusters {
		pods, selectors := c.Pods(), c.Selectors()
		for ch := range pods.Diff(c.pods) {
			for _, ep := range []*registry.Endpoint{ch.Old, ch.New} {
				if ep != nil {
					d.markEntries(ep.Namespace, ep.Labels, changed)
				}
			}
		}
		for ch := range selectors.Diff(c.selectors) {
			changed.selectors[selectorID{c, ch.Key}] = true
		}
		c.pods, c.selectors = pods, selectors
	}
}

// markSelectors marks the Services of clusters that select a workload as changed.
func (d *Deriver) markSelectors(namespace string, labels map[string]string, changed changes) {
	for _, c := range d.clusters {
		for k, s := range inNamespace(c.selectors, namespace) {
			if registry.SelectsAll(s.Labels, labels) {
				changed.selectors[selectorID{c, k}] = true
			}
		}
	}
}

// pods returns the Pods of a namespace that have labels. An empty selector selects none.
func (d *Deriver) pods(namespace string, labels map[string]string) (out []registry.Endpoint) {
	if len(labels) == 0 {
		return nil
	}
	for _, c := range d.clusters {
		for _, ep := range inNamespace(c.pods, namespace) {
			if registry.SelectsAll(labels, ep.Labels) {
				out = append(out, *ep)
			}
		}
	}
	return out
}

// deriveSelectors returns the groups of Services that select WorkloadEntries and registered
// workloads. They have only these endpoints. JoinConfig.Join adds those that the cluster has.
func (d *Deriver) deriveSelectors(changed changes) (out []feed.Update[registry.Instances]) {
	for id := range changed.selectors {
		u := feed.Update[registry.Instances]{Group: "selected by " + id.cluster.Name() + " " + id.key.String()}
		if s := id.cluster.selectors.At(id.key); s != nil {
			items := d.selected(id.key.Namespace, s.Labels)
			for i := range items {
				items[i].Ports = targetPorts(items[i].Ports, s.Targets)
			}
			if len(items) > 0 {
				u.Items = []registry.Instances{{Service: s.Service, Endpoints: &registry.EndpointList{Items: items}}}
			}
		}
		if len(u.Items) > 0 {
			id.cluster.selecting[id.key] = true
		} else if id.cluster.selecting[id.key] {
			delete(id.cluster.selecting, id.key)
		} else {
			continue
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b feed.Update[registry.Instances]) int { return cmp.Compare(a.Group, b.Group) })
	return out
}

// targetPorts returns the ports of a workload with those that a Service names.
// Source: Istio, serviceInstanceFromWorkloadInstance.
func targetPorts(ports map[string]uint32, targets map[string]string) map[string]uint32 {
	if len(targets) == 0 {
		return ports
	}
	out := map[string]uint32{}
	maps.Copy(out, ports)
	for port, target := range targets {
		out[port] = ports[target]
	}
	return out
}

// inNamespace yields the objects of a namespace, sorted by name.
func inNamespace[V comparable](m pmap.Map[registry.ObjectKey, V], namespace string) iter.Seq2[registry.ObjectKey, V] {
	return func(yield func(registry.ObjectKey, V) bool) {
		for k, v := range m.From(registry.ObjectKey{Namespace: namespace}) {
			if k.Namespace != namespace || !yield(k, v) {
				return
			}
		}
	}
}
