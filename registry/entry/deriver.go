package entry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

// Addresses gives services their virtual addresses.
type Addresses interface {
	// Allocate returns the addresses of every key, choosing and keeping new ones where there are none. It may
	// wait for a disk. With an error, the keys that are in the result have their addresses all the same.
	Allocate(ctx context.Context, keys []registry.Key) (map[registry.Key][]netip.Addr, error)
}

// Deriver makes services of ServiceEntry and WorkloadEntry objects and of workloads that registered themselves. Derive
// waits for Addresses; where nothing may wait for a disk, Background does not. One goroutine at a time.
type Deriver struct {
	addresses Addresses
	runtime   Runtime                 // nil: nobody registers
	release   func(registry.Key)      // told of a service that is gone; nil: nobody is
	shown     atomic.Pointer[Entries] // written by Derive, read by Entries

	started    bool                                 // the first batch was made
	objects    pmap.Map[config.Key, *config.Object] // as of the last Derive
	allocated  map[registry.Key][]netip.Addr        // what Addresses said
	wanting    map[registry.Key]bool                // services that got no address yet
	selectors  map[string]map[config.Key]*config.Object
	workloads  workloads
	registered registered
	byHost     map[registry.Key]map[config.Key]*config.Object // the entries that name a host
	relayed    map[registry.Key]bool                          // hosts of which other control planes' registries told
}

// New makes a Deriver; without addresses (nil) no virtual address is allocated.
func New(addresses Addresses) *Deriver { return newDeriver(addresses, nil) }

func newDeriver(addresses Addresses, runtime Runtime) *Deriver {
	return &Deriver{
		runtime:    runtime,
		registered: newRegistered(),
		addresses:  addresses,
		allocated:  map[registry.Key][]netip.Addr{},
		wanting:    map[registry.Key]bool{},
		selectors:  map[string]map[config.Key]*config.Object{},
		workloads:  workloads{},
		byHost:     map[registry.Key]map[config.Key]*config.Object{},
		relayed:    map[registry.Key]bool{},
	}
}

// Name is the registry's name to people.
func (d *Deriver) Name() string { return source }

// Derive returns the services that changed since the last call: one group for each service, empty
// when it is gone, and another one for what other control planes' registries know of its host (registry.Service.Relayed). Problems
// stand in the group that they concern.
func (d *Deriver) Derive(ctx context.Context, objects pmap.Map[config.Key, *config.Object]) feed.Batch[registry.Instances] {
	dirty := map[registry.Key]bool{}
	var groups []config.Key
	for ch := range objects.Diff(d.objects) {
		switch ch.Key.Kind {
		case config.ServiceEntry:
			d.replaceEntry(ch.Key, ch.Old, ch.New, dirty)
		case config.WorkloadEntry:
			d.replaceWorkload(ch.Old, ch.New, dirty)
		case config.WorkloadGroup:
			groups = append(groups, ch.Key)
		}
	}
	d.objects = objects
	d.takeRegistrations(groups, dirty)
	for key := range d.wanting { // what got no address is tried again
		dirty[key] = true
	}
	return d.batch(ctx, sorted(dirty))
}

// replaceEntry takes in a changed ServiceEntry and marks the services that it concerns.
func (d *Deriver) replaceEntry(key config.Key, old, now *config.Object, dirty map[registry.Key]bool) {
	if old != nil {
		for _, h := range old.Spec.(*networking.ServiceEntry).Hosts {
			k := registry.Key{Host: h, Namespace: key.Namespace}
			delete(d.byHost[k], key)
			dirty[k] = true
		}
		delete(d.selectors[key.Namespace], key)
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
	if spec.WorkloadSelector != nil {
		if d.selectors[key.Namespace] == nil {
			d.selectors[key.Namespace] = map[config.Key]*config.Object{}
		}
		d.selectors[key.Namespace][key] = now
	}
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
	for _, entry := range d.selectors[o.Namespace] {
		spec := entry.Spec.(*networking.ServiceEntry)
		if !selects(spec.WorkloadSelector.Labels, labels) {
			continue
		}
		for _, h := range spec.Hosts {
			dirty[registry.Key{Host: h, Namespace: o.Namespace}] = true
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

// batch derives the services of keys anew.
func (d *Deriver) batch(ctx context.Context, keys []registry.Key) feed.Batch[registry.Instances] {
	out := feed.Batch[registry.Instances]{Source: source, Full: !d.started, Updates: make([]feed.Update[registry.Instances], 0, len(keys))}
	d.started = true
	for _, k := range keys {
		name := k.Namespace + "/" + k.Host
		declared, relayed := d.entriesOf(k)
		out.Updates = append(out.Updates, derived(name, d.derive(k, declared)))
		if len(relayed) > 0 || d.relayed[k] {
			out.Updates = append(out.Updates, derived("relayed "+name, d.derive(k, relayed)))
		}
		if d.relayed[k] = len(relayed) > 0; len(relayed) == 0 {
			delete(d.relayed, k)
		}
	}
	d.giveAddresses(ctx, out.Updates)
	return out
}

// entriesOf are the ServiceEntries that declare the service of a key, and those that tell what a registry elsewhere knows of it, what
// counts first.
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
		d.letGo(key)
	}
	slices.SortFunc(declared, byAge)
	slices.SortFunc(relayed, byAge)
	return declared, relayed
}

func derived(group string, u feed.Update[registry.Instances]) feed.Update[registry.Instances] {
	u.Group = group
	return u
}

// derive makes the service of one key: none without entries.
func (d *Deriver) derive(key registry.Key, entries []*config.Object) (out feed.Update[registry.Instances]) {
	if len(entries) == 0 {
		return out
	}
	var parts []registry.Instances
	for _, o := range entries {
		all := services(o)
		s := all[slices.IndexFunc(all, func(s *registry.Service) bool { return s.Host == key.Host })]
		parts = append(parts, registry.Instances{Service: s, Endpoints: d.endpoints(o, s)})
		if differs := differences(parts[0].Service, s); len(differs) > 0 {
			out.Problems = append(out.Problems, clash(key.Host, entries[0], o, differs))
		}
		if o.Spec.(*networking.ServiceEntry).Hosts[0] == key.Host { // once
			out.Problems = append(out.Problems, d.chosen(o)...)
		}
	}
	out.Items = []registry.Instances{unite(parts)}
	return out
}

// letGo says that a service needs no allocated address any more. The store keeps it for a while, should that change again.
func (d *Deriver) letGo(key registry.Key) {
	delete(d.wanting, key)
	delete(d.allocated, key)
	if d.release != nil {
		d.release(key)
	}
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

// giveAddresses sets the virtual addresses of those services that need allocated ones. Without an
// answer the services go on without, one problem says so of all of them, and the next Derive asks again.
func (d *Deriver) giveAddresses(ctx context.Context, updates []feed.Update[registry.Instances]) {
	if d.addresses == nil {
		return
	}
	var missing []registry.Key
	wanted := map[registry.Key]bool{} // of a service that is declared, and known elsewhere besides, by one at least
	for _, u := range updates {
		for _, in := range u.Items {
			if k := in.Service.Key; in.Service.WantsAddress() && !wanted[k] {
				if wanted[k] = true; d.allocated[k] == nil {
					missing = append(missing, k)
				}
			}
		}
	}
	var refused error
	if len(missing) > 0 {
		got, err := d.addresses.Allocate(ctx, missing)
		for k, a := range got {
			d.allocated[k] = a
		}
		refused = err
	}
	first, without := -1, 0
	for i, u := range updates {
		for _, in := range u.Items {
			if d.giveAddress(in.Service, wanted) {
				continue
			}
			if without++; first < 0 {
				first = i
			}
		}
	}
	if without > 0 {
		u := &updates[first]
		s := u.Items[0].Service
		u.Problems = append(u.Problems, feed.Problem{
			Severity: feed.Warning, Source: source, Object: s.Object, Field: "spec.addresses", Text: withoutAddress(s.Host, without-1, refused),
		})
	}
}

// giveAddress gives a service its virtual address if it needs one, and says whether it has what it needs.
func (d *Deriver) giveAddress(s *registry.Service, wanted map[registry.Key]bool) bool {
	if !s.WantsAddress() {
		if !wanted[s.Key] && (d.wanting[s.Key] || d.allocated[s.Key] != nil) {
			d.letGo(s.Key)
		}
		return true
	}
	delete(d.wanting, s.Key)
	if s.AutoAddresses = d.allocated[s.Key]; s.AutoAddresses == nil {
		d.wanting[s.Key] = true
	}
	return s.AutoAddresses != nil
}

// withoutAddress says why host and more of them have no virtual address, and what comes of it.
func withoutAddress(host string, more int, refused error) string {
	them := "it"
	if more > 0 {
		host, them = fmt.Sprintf("%s and %d more", host, more), "them"
	}
	if errors.Is(refused, errUnderWay) {
		return fmt.Sprintf("there is no virtual address for %s yet, because %v (proxies that capture DNS do not reach %s by TCP until then): see whether the store is slow or stuck, which is on the disk of the state folder, or in Consul where the setting store says so", host, errUnderWay, them)
	}
	return fmt.Sprintf("no virtual address could be allocated for %s (tried again in a while; proxies that capture DNS do not reach %s by TCP until then): %v", host, them, cmp.Or(refused, errNone))
}
