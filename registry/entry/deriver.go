package entry

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/internal/task"
	"github.com/ashore-mesh/ashore/registry"
)

// source is the name of the Deriver as a source.
const source = "serviceentry"

// Runtime supplies the workloads that registered, as registry.Runtime does.
type Runtime interface {
	Registrations() registry.Registrations
	Watch(ctx context.Context) <-chan struct{}
}

// Entries holds WorkloadEntry objects by key.
type Entries = pmap.Map[config.Key, *config.Object]

// Deriver derives services. One goroutine calls it, except for Entries.
type Deriver struct {
	runtime Runtime                 // immutable; nil if no workloads register
	entries atomic.Pointer[Entries] // written by Derive, read by Entries

	clusters []*cluster // immutable list

	started       bool                                 // Derive was called
	objects       pmap.Map[config.Key, *config.Object] // as of the latest Derive
	registrations registry.Registrations               // as of the latest Derive

	byHost    index[registry.Key, *config.Object] // ServiceEntries by each of their hosts
	selectors index[labelKey, *config.Object]     // ServiceEntries with a workloadSelector, by one of its labels
	relayed   map[registry.Key]bool               // services that other control planes relay

	written    workloads                              // WorkloadEntry objects
	registered workloads                              // registered workloads
	byKey      map[registry.RegistrationKey]*workload // registered workloads by key
}

// New returns a Deriver. The workloads that register with runtime become endpoints. runtime may be
// nil. ServiceEntries select Pods of clusters, and Services of clusters select workloads.
func New(runtime Runtime, clusters ...Cluster) *Deriver {
	return &Deriver{
		runtime:    runtime,
		clusters:   newClusters(clusters),
		byHost:     index[registry.Key, *config.Object]{},
		selectors:  index[labelKey, *config.Object]{},
		relayed:    map[registry.Key]bool{},
		written:    workloads{},
		registered: workloads{},
		byKey:      map[registry.RegistrationKey]*workload{},
	}
}

// Name returns the name of the Deriver as a source.
func (d *Deriver) Name() string { return source }

// Watch returns a channel that receives after registrations or Pods changed, until ctx ends. It
// returns nil if there can be none.
func (d *Deriver) Watch(ctx context.Context) <-chan struct{} {
	var channels []<-chan struct{}
	if d.runtime != nil {
		channels = append(channels, d.runtime.Watch(ctx))
	}
	for _, c := range d.clusters {
		channels = append(channels, c.Watch(ctx))
	}
	return task.Merge(ctx, channels...)
}

// Entries returns the WorkloadEntry objects of registered workloads, as of the latest Derive. Safe
// for concurrent use.
func (d *Deriver) Entries() Entries {
	if e := d.entries.Load(); e != nil {
		return *e
	}
	return Entries{}
}

// Derive returns the services that changed since the last call. Each is a group, which is empty if
// the service was removed. The part of a service that another control plane relays is a separate
// group. The first batch is Full, and all are Explicit.
func (d *Deriver) Derive(objects pmap.Map[config.Key, *config.Object]) feed.Batch[registry.Instances] {
	changed := newChanges()
	var groups []config.Key
	for ch := range objects.Diff(d.objects) {
		switch ch.Key.Kind {
		case config.ServiceEntry:
			d.setEntry(ch.Old, false, changed)
			d.setEntry(ch.New, true, changed)
		case config.WorkloadEntry:
			d.setWorkload(d.written, writtenWorkload(ch.Old), false, changed)
			d.setWorkload(d.written, writtenWorkload(ch.New), true, changed)
		case config.WorkloadGroup:
			groups = append(groups, ch.Key)
		}
	}
	d.objects = objects
	d.updateRegistrations(groups, changed)
	d.updateClusters(changed)

	b := feed.Batch[registry.Instances]{Source: source, Full: !d.started, Explicit: true}
	d.started = true
	for _, key := range slices.SortedFunc(maps.Keys(changed.services), registry.Key.Compare) {
		name := key.Namespace + "/" + key.Host
		declared, relayed := d.entriesOf(key)
		b.Updates = append(b.Updates, d.derive(name, key, declared))
		if len(relayed) > 0 || d.relayed[key] {
			b.Updates = append(b.Updates, d.derive("relayed "+name, key, relayed))
		}
		if d.relayed[key] = len(relayed) > 0; len(relayed) == 0 {
			delete(d.relayed, key)
		}
	}
	b.Updates = append(b.Updates, d.deriveSelectors(changed)...)
	return b
}

// changes are the services to derive again.
type changes struct {
	services  map[registry.Key]bool // of ServiceEntries
	selectors map[selectorID]bool   // of clusters
}

func newChanges() changes { return changes{map[registry.Key]bool{}, map[selectorID]bool{}} }

// index finds objects, or what was made of them, by a key such as a label.
type index[K comparable, V any] map[K]map[config.Key]V

// set adds v, of an object, under a key, or removes it.
func (x index[K, V]) set(key K, object config.Key, v V, present bool) {
	switch {
	case !present:
		delete(x[key], object)
	case x[key] == nil:
		x[key] = map[config.Key]V{object: v}
	default:
		x[key][object] = v
	}
	if len(x[key]) == 0 {
		delete(x, key)
	}
}

// setEntry adds a ServiceEntry to the indexes, or removes it, and marks its services as changed. o may
// be nil.
func (d *Deriver) setEntry(o *config.Object, present bool, changed changes) {
	if o == nil {
		return
	}
	spec := o.Spec.(*networking.ServiceEntry)
	for _, h := range spec.Hosts {
		key := registry.Key{Host: h, Namespace: o.Namespace}
		d.byHost.set(key, o.Key, o, present)
		changed.services[key] = true
	}
	if sel := spec.WorkloadSelector; sel != nil {
		d.selectors.set(selectorKey(o.Namespace, sel.Labels), o.Key, o, present)
	}
}

// setWorkload adds a workload to an index, or removes it, and marks the services that select it as
// changed. w may be nil.
func (d *Deriver) setWorkload(x workloads, w *workload, present bool, changed changes) {
	if w != nil {
		d.markSelecting(w.object, changed)
		x.set(w, present)
	}
}

// markSelecting marks the services that select a WorkloadEntry as changed.
func (d *Deriver) markSelecting(o *config.Object, changed changes) {
	labels := labelsOf(o)
	d.markEntries(o.Namespace, labels, changed)
	d.markSelectors(o.Namespace, labels, changed)
}

// markEntries marks the services of the ServiceEntries that select a workload as changed.
func (d *Deriver) markEntries(namespace string, labels map[string]string, changed changes) {
	for key := range labelKeys(namespace, labels) {
		for _, entry := range d.selectors[key] {
			spec := entry.Spec.(*networking.ServiceEntry)
			if !registry.SelectsAll(spec.WorkloadSelector.Labels, labels) {
				continue
			}
			for _, h := range spec.Hosts {
				changed.services[registry.Key{Host: h, Namespace: namespace}] = true
			}
		}
	}
}

// entriesOf returns the ServiceEntries that declare a service, and those that another control plane
// relays for it. Both are sorted by age.
func (d *Deriver) entriesOf(key registry.Key) (declared, relayed []*config.Object) {
	for _, o := range d.byHost[key] {
		if synthetic(o) {
			relayed = append(relayed, o)
		} else {
			declared = append(declared, o)
		}
	}
	byAge := func(a, b *config.Object) int { return cmp.Or(a.Created.Compare(b.Created), a.Key.Compare(b.Key)) }
	slices.SortFunc(declared, byAge)
	slices.SortFunc(relayed, byAge)
	return declared, relayed
}

// derive returns the group of a service. Several ServiceEntries of one host and namespace are one
// service with the ports of all. An endpoint serves the ports of its entry. The oldest entry sets
// the options. Entries with another resolution or exportTo are not used, because their endpoints
// would be exported otherwise than they declare. Source: Istio merges the ports (SidecarScope).
func (d *Deriver) derive(group string, key registry.Key, entries []*config.Object) feed.Update[registry.Instances] {
	out := feed.Update[registry.Instances]{Group: group}
	var parts []registry.Part
	for _, o := range entries {
		s := service(o, key.Host)
		used := true
		if len(parts) > 0 {
			first := parts[0].Service
			used = s.Resolution == first.Resolution && slices.Equal(s.ExportTo, first.ExportTo)
			out.Problems = append(out.Problems, conflicts(entries[0], first, o, s)...)
		}
		if used {
			in := registry.Instances{Service: s, Endpoints: d.endpoints(o, s)}
			parts = append(parts, registry.Part{Instances: in, Source: source})
		}
	}
	if len(parts) > 0 {
		out.Items = []registry.Instances{registry.JoinConfig{}.Join(parts)[0].Instances}
	}
	return out
}

// endpoints returns the endpoints that a ServiceEntry lists or selects. A DNS service without
// endpoints resolves its host.
func (d *Deriver) endpoints(o *config.Object, s *registry.Service) *registry.EndpointList {
	spec := o.Spec.(*networking.ServiceEntry)
	items := listed(o)
	dns := s.Resolution == registry.DNS || s.Resolution == registry.DNSRoundRobin
	switch {
	case spec.WorkloadSelector != nil:
		items = append(items, d.selected(o.Namespace, spec.WorkloadSelector.Labels)...)
		items = append(items, d.pods(o.Namespace, spec.WorkloadSelector.Labels)...)
	case dns && len(items) == 0:
		items = []registry.Endpoint{{Address: s.Host, Namespace: s.Namespace}}
	}
	return &registry.EndpointList{Items: items}
}
