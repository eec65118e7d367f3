package entry

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Deriver makes services of ServiceEntry and WorkloadEntry objects and of the workloads that registered. It keeps what it derived,
// so that a change costs only the services that it concerns. One goroutine calls it, except for Entries.
type Deriver struct {
	runtime Runtime                 // immutable; nil: no workload registers
	shown   atomic.Pointer[Entries] // written by Derive, read by Entries

	started    bool                                           // the first batch was made
	objects    pmap.Map[config.Key, *config.Object]           // as of the last Derive
	selectors  map[labelKey]map[config.Key]*config.Object     // ServiceEntries with a workloadSelector, by one of its labels
	workloads  workloads                                      // WorkloadEntries that operators wrote
	registered registered                                     // workloads that registered
	byHost     map[registry.Key]map[config.Key]*config.Object // ServiceEntries by each of their hosts
	relayed    map[registry.Key]bool                          // services that other control planes relay
}

// New makes a Deriver. The workloads that register with runtime become endpoints; nil: none register.
func New(runtime Runtime) *Deriver {
	return &Deriver{
		runtime:    runtime,
		registered: newRegistered(),
		selectors:  map[labelKey]map[config.Key]*config.Object{},
		workloads:  workloads{},
		byHost:     map[registry.Key]map[config.Key]*config.Object{},
		relayed:    map[registry.Key]bool{},
	}
}

// Name is the registry's name to people.
func (d *Deriver) Name() string { return source }

// Watch sends whenever workloads registered, left or reported their health, until ctx ends. It is nil when none register.
func (d *Deriver) Watch(ctx context.Context) <-chan struct{} {
	if d.runtime == nil {
		return nil
	}
	return d.runtime.Watch(ctx)
}

// Derive returns the services that changed since the last call, as groups. A group is a service, and is empty when the
// service is gone; what another control plane relays of a service is a group of its own. The first batch is Full, and all are
// Explicit.
func (d *Deriver) Derive(objects pmap.Map[config.Key, *config.Object]) feed.Batch[registry.Instances] {
	changed := map[registry.Key]bool{}
	var groups []config.Key
	for ch := range objects.Diff(d.objects) {
		switch ch.Key.Kind {
		case config.ServiceEntry:
			d.replaceEntry(ch.Key, ch.Old, ch.New, changed)
		case config.WorkloadEntry:
			d.replaceWorkload(ch.Old, ch.New, changed)
		case config.WorkloadGroup:
			groups = append(groups, ch.Key)
		}
	}
	d.objects = objects
	d.takeRegistrations(groups, changed)
	return d.batch(sorted(changed))
}

// replaceEntry takes in a changed ServiceEntry and marks the services that it concerns.
func (d *Deriver) replaceEntry(key config.Key, old, now *config.Object, dirty map[registry.Key]bool) {
	if old != nil {
		for _, h := range old.Spec.(*networking.ServiceEntry).Hosts {
			k := registry.Key{Host: h, Namespace: key.Namespace}
			delete(d.byHost[k], key)
			dirty[k] = true
		}
		if sel := old.Spec.(*networking.ServiceEntry).WorkloadSelector; sel != nil {
			at := selectorKey(key.Namespace, sel.Labels)
			if delete(d.selectors[at], key); len(d.selectors[at]) == 0 {
				delete(d.selectors, at)
			}
		}
	}
	if now == nil {
		return
	}
	spec := now.Spec.(*networking.ServiceEntry)
	for _, h := range spec.Hosts {
		k := registry.Key{Host: h, Namespace: key.Namespace}
		if d.byHost[k] == nil {
			d.byHost[k] = map[config.Key]*config.Object{}
		}
		d.byHost[k][key] = now
		dirty[k] = true
	}
	if sel := spec.WorkloadSelector; sel != nil {
		at := selectorKey(key.Namespace, sel.Labels)
		if d.selectors[at] == nil {
			d.selectors[at] = map[config.Key]*config.Object{}
		}
		d.selectors[at][key] = now
	}
}

// selectorKey is the label under which a selector is indexed: the first by name. A workload that it selects has that label.
func selectorKey(namespace string, labels map[string]string) labelKey {
	if len(labels) == 0 {
		return labelKey{namespace: namespace}
	}
	first := slices.Min(slices.Collect(maps.Keys(labels)))
	return labelKey{namespace, first, labels[first]}
}

// replaceWorkload takes in a changed WorkloadEntry and marks the services that select it.
func (d *Deriver) replaceWorkload(old, now *config.Object, dirty map[registry.Key]bool) {
	if old != nil {
		d.mark(old, dirty)
		d.workloads.remove(old)
	}
	if now != nil {
		d.mark(now, dirty)
		d.workloads.add(now)
	}
}

// mark marks the services that select a WorkloadEntry, in a set that may be nil.
func (d *Deriver) mark(o *config.Object, dirty map[registry.Key]bool) {
	if dirty == nil {
		return
	}
	labels := labelsOf(o)
	for at := range keysOf(o) {
		for _, entry := range d.selectors[at] {
			spec := entry.Spec.(*networking.ServiceEntry)
			if !selects(spec.WorkloadSelector.Labels, labels) {
				continue
			}
			for _, h := range spec.Hosts {
				dirty[registry.Key{Host: h, Namespace: o.Namespace}] = true
			}
		}
	}
}

// Entries are the WorkloadEntries of the workloads that registered themselves, as of the last Derive. Safe for concurrent
// use.
func (d *Deriver) Entries() Entries {
	if shown := d.shown.Load(); shown != nil {
		return *shown
	}
	return Entries{}
}

// batch derives the services of these keys.
func (d *Deriver) batch(keys []registry.Key) feed.Batch[registry.Instances] {
	out := feed.Batch[registry.Instances]{Source: source, Full: !d.started, Explicit: true, Updates: make([]feed.Update[registry.Instances], 0, len(keys))}
	d.started = true
	for _, k := range keys {
		name := k.Namespace + "/" + k.Host
		declared, relayed := d.entriesOf(k)
		out.Updates = append(out.Updates, d.derive(name, k, declared))
		if len(relayed) > 0 || d.relayed[k] {
			out.Updates = append(out.Updates, d.derive("relayed "+name, k, relayed))
		}
		if d.relayed[k] = len(relayed) > 0; len(relayed) == 0 {
			delete(d.relayed, k)
		}
	}
	return out
}

// entriesOf are the ServiceEntries that declare a service, and those that another control plane relays of it, the oldest first.
func (d *Deriver) entriesOf(key registry.Key) (declared, relayed []*config.Object) {
	for _, o := range d.byHost[key] {
		if synthetic(o) {
			relayed = append(relayed, o)
		} else {
			declared = append(declared, o)
		}
	}
	if len(declared)+len(relayed) == 0 {
		delete(d.byHost, key)
	}
	slices.SortFunc(declared, byAge)
	slices.SortFunc(relayed, byAge)
	return declared, relayed
}

// derive makes a group of one service. Several ServiceEntries of one host and namespace are united: the ports of all, and each
// endpoint serves those of its own entry. The oldest sets the options, and entries with another resolution or exportTo are not
// used, so that private endpoints are never exported. Source: Istio merges the ports (SidecarScope).
func (d *Deriver) derive(group string, key registry.Key, entries []*config.Object) feed.Update[registry.Instances] {
	out := feed.Update[registry.Instances]{Group: group}
	var parts []registry.Part
	for _, o := range entries {
		all := services(o)
		s := all[slices.IndexFunc(all, func(s *registry.Service) bool { return s.Host == key.Host })]
		if len(parts) > 0 {
			if differs := differences(parts[0].Service, s); len(differs) > 0 {
				out.Problems = append(out.Problems, clash(key.Host, entries[0], o, differs))
			}
		}
		if len(parts) == 0 || s.Resolution == parts[0].Service.Resolution && slices.Equal(s.ExportTo, parts[0].Service.ExportTo) {
			parts = append(parts, registry.Part{Instances: registry.Instances{Service: s, Endpoints: d.endpoints(o, s)}, Source: source})
		}
		if o.Spec.(*networking.ServiceEntry).Hosts[0] == key.Host { // once
			out.Problems = append(out.Problems, d.chosen(o)...)
		}
	}
	if len(parts) > 0 {
		out.Items = []registry.Instances{registry.JoinConfig{}.Join(parts)[0].Instances}
	}
	return out
}

// endpoints are those that a ServiceEntry lists or selects; a DNS service without any resolves its host.
func (d *Deriver) endpoints(o *config.Object, s *registry.Service) *registry.EndpointList {
	items := inline(o)
	if sel := o.Spec.(*networking.ServiceEntry).WorkloadSelector; sel != nil {
		items = append(items, d.selected(o.Namespace, sel.Labels)...)
	} else if len(items) == 0 && (s.Resolution == registry.DNS || s.Resolution == registry.DNSRoundRobin) {
		items = hostEndpoint(s)
	}
	return &registry.EndpointList{Items: items}
}
