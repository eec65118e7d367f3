package push

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/internal/pmap"
	"github.com/ashore-mesh/ashore/registry"
)

const (
	// settle is how long a configuration object stays that no source supplies any more: rule R3 of
	// internal/feed.
	settle = 2 * time.Second
	// massRemoval is how long services stay that a source lost together with most of its others:
	// rule R4.
	massRemoval = 10 * time.Minute
)

// assembly merges what the sources supply into Inputs. It has no goroutine and no clock: one
// goroutine owns it.
type assembly struct {
	cfg      *AssemblerConfig
	objects  *feed.Merger[config.Key, *config.Object]
	services *feed.Merger[registry.Host, registry.Instances]
	inputs   Inputs
	vips     registry.VIPs
	exporter *exporter // nil: nothing is exported

	conflicts map[registry.Host][]feed.Problem // between the sources of a service
	wanting   map[registry.Host]struct{}       // hosts that need virtual IPs
	newWants  bool                             // wanting changed since Allocator.Want
	rekey     bool                             // a RequestAuthentication changed since Keys.Want
}

func newAssembly(cfg *AssemblerConfig) *assembly {
	a := &assembly{
		cfg: cfg,
		objects: feed.NewMerger(feed.Config[config.Key, *config.Object]{
			KeyOf: objectKey, Settle: settle,
		}),
		services: feed.NewMerger(feed.Config[registry.Host, registry.Instances]{
			KeyOf: serviceHost, Union: true, MassRemoval: massRemoval,
		}),
		inputs:    Inputs{Mesh: cfg.Mesh},
		conflicts: map[registry.Host][]feed.Problem{},
		wanting:   map[registry.Host]struct{}{},
	}
	if cfg.Export != nil {
		a.exporter = &exporter{cfg: cfg.Export, join: cfg.Join, gap: cfg.Gap}
	}
	return a
}

func objectKey(o *config.Object) config.Key { return o.Key }

func serviceHost(in registry.Instances) registry.Host { return registry.Host(in.Service.Host) }

// restore puts in what was saved before the restart. The sources are set.
func (a *assembly) restore(saved Saved, now time.Time) {
	a.updateObjects(a.objects.Restore(saved.Objects, now), now)
	a.updateServices(a.services.Restore(saved.Services, now))
}

// mergeSources replaces the list of sources. Declarations come before registries.
func (a *assembly) mergeSources(s Sources, now time.Time) {
	services := sourceConfigs(s.Services)
	if d := a.cfg.Deriver; d != nil {
		services = slices.Insert(services, 0, feed.SourceConfig{Name: d.Name(), Required: true})
	}
	a.updateObjects(a.objects.SetSources(sourceConfigs(s.Objects), now), now)
	a.updateServices(a.services.SetSources(services, now))
}

// applyObjects takes in configuration.
func (a *assembly) applyObjects(b feed.Batch[*config.Object], now time.Time) {
	a.updateObjects(a.objects.Apply(b, now), now)
}

// applyServices takes in services.
func (a *assembly) applyServices(b feed.Batch[registry.Instances], now time.Time) {
	a.updateServices(a.services.Apply(b, now))
}

// expire ends retention that is due.
func (a *assembly) expire(now time.Time) {
	a.updateObjects(a.objects.Expire(now), now)
	a.updateServices(a.services.Expire(now))
}

// nextExpiry is when to call expire; zero: not before something else happens.
func (a *assembly) nextExpiry() time.Time {
	return earlier(a.objects.NextExpiry(), a.services.NextExpiry())
}

// earlier is the earlier of two times; zero is never.
func earlier(s, t time.Time) time.Time {
	if s.IsZero() || !t.IsZero() && t.Before(s) {
		return t
	}
	return s
}

// acceptRemovals removes what is retained of a source.
func (a *assembly) acceptRemovals(source string, now time.Time) {
	a.updateObjects(a.objects.AcceptRemovals(source, now), now)
	a.updateServices(a.services.AcceptRemovals(source, now))
}

// updateObjects updates the objects of these keys, and the services that are derived from them.
func (a *assembly) updateObjects(keys []config.Key, now time.Time) {
	for _, k := range keys {
		supplies := a.objects.Items(k)
		a.inputs.Objects = replace(a.inputs.Objects, k, first(supplies))
		if a.exporter != nil {
			a.exporter.setObject(k, supplies)
		}
		a.rekey = a.rekey || k.Kind == config.RequestAuthentication
	}
	if len(keys) > 0 {
		a.derive(now)
	}
}

// first returns the object that is supplied first, or nil if there is none.
func first(supplies []feed.Supply[*config.Object]) *config.Object {
	if len(supplies) == 0 {
		return nil
	}
	return supplies[0].Item
}

// derive asks the deriver, which knows what changed since it was last asked.
func (a *assembly) derive(now time.Time) {
	if a.cfg.Deriver != nil {
		a.applyServices(a.cfg.Deriver.Derive(a.inputs.Objects), now)
	}
}

// setVIPs takes in the allocated virtual IPs.
func (a *assembly) setVIPs(vips registry.VIPs) {
	var changed []registry.Host
	for ch := range vips.Diff(a.vips) {
		changed = append(changed, registry.Host(ch.Key))
	}
	a.vips = vips
	a.updateServices(changed)
}

// updateServices joins the services of these hosts anew.
func (a *assembly) updateServices(hosts []registry.Host) {
	for _, host := range hosts {
		parts := a.parts(host)
		joined := a.cfg.Join.Join(parts)
		now := make([]registry.Instances, len(joined))
		wants := false
		delete(a.conflicts, host)
		for i, j := range joined {
			now[i] = a.withVIP(j.Instances)
			wants = wants || now[i].Service.WantsAddress()
			if problems := j.Problems(); len(problems) > 0 {
				a.conflicts[host] = append(a.conflicts[host], problems...)
			}
		}
		a.setWanting(host, wants)
		a.inputs.Services, a.inputs.Endpoints = replaceHost(a.inputs.Services, a.inputs.Endpoints, host, now)
		if a.exporter != nil {
			a.exporter.setServices(host, parts)
		}
	}
}

// parts are what sources supply for a host, the first source first.
func (a *assembly) parts(host registry.Host) []registry.Part {
	supplies := a.services.Items(host)
	out := make([]registry.Part, len(supplies))
	for i, s := range supplies {
		out[i] = registry.Part{Instances: s.Item, Source: s.Source}
	}
	return out
}

// withVIP gives a service the virtual IPs that are allocated for its host, if it needs any.
func (a *assembly) withVIP(in registry.Instances) registry.Instances {
	if vip, ok := a.vips.Get(pmap.String(in.Service.Host)); ok && in.Service.WantsAddress() {
		in.Service = in.Service.WithVIP(vip)
	}
	return in
}

// setWanting notes whether a host needs virtual IPs.
func (a *assembly) setWanting(host registry.Host, wants bool) {
	if _, wanted := a.wanting[host]; wanted == wants {
		return
	}
	a.newWants = true
	if wants {
		a.wanting[host] = struct{}{}
	} else {
		delete(a.wanting, host)
	}
}

// wants are the hosts that need virtual IPs, sorted.
func (a *assembly) wants() []string {
	out := make([]string, 0, len(a.wanting))
	for host := range a.wanting {
		out = append(out, string(host))
	}
	slices.Sort(out)
	return out
}

// replaceHost returns the maps with these services as all that there are of the host. What is equal
// keeps its pointer.
func replaceHost(
	services Services, endpoints Endpoints, host registry.Host, now []registry.Instances,
) (Services, Endpoints) {
	before := map[registry.Key]registry.Instances{}
	for k, s := range services.From(registry.Key{Host: string(host)}) {
		if k.Host != string(host) {
			break
		}
		before[k] = registry.Instances{Service: s, Endpoints: endpoints.At(k)}
	}
	for _, in := range now {
		k := in.Service.Key
		in = registry.Keep(before[k], in)
		services, endpoints = services.With(k, in.Service), endpoints.With(k, in.Endpoints)
		delete(before, k)
	}
	for k := range before {
		services, endpoints = services.Without(k), endpoints.Without(k)
	}
	return services, endpoints
}

// takeSaved returns the groups that changed since the last call. Derived services are not saved.
func (a *assembly) takeSaved() Saved {
	out := Saved{Objects: a.objects.TakeChanged(), Services: a.services.TakeChanged()}
	if d := a.cfg.Deriver; d != nil {
		derived := func(g feed.SavedGroup[registry.Instances]) bool { return g.Source == d.Name() }
		out.Services = slices.DeleteFunc(out.Services, derived)
	}
	return out
}
