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
	// settle is how long a configuration object stays after no source supplies it: rule R3 of
	// internal/feed.
	settle = 2 * time.Second
	// massRemoval is how long services stay after a source lost most of its services at once: rule
	// R4.
	massRemoval = 10 * time.Minute
)

// assembly merges the content of the sources into Inputs. It has no clock. One goroutine owns it.
type assembly struct {
	cfg      *AssemblerConfig
	objects  *feed.Merger[config.Key, *config.Object]
	services *feed.Merger[registry.Host, registry.Instances]
	inputs   Inputs
	vips     registry.VIPs
	exporter *exporter // nil if nothing is exported

	conflicts map[registry.Host][]feed.Problem // between the sources of a service
	wanting   map[registry.Host]struct{}       // hosts that need virtual IPs
	newWants  bool                             // wanting changed after the last Allocator.Want
	rekey     bool                             // a RequestAuthentication changed after the last Keys.Want
}

func newAssembly(cfg *AssemblerConfig) *assembly {
	services := sourceConfigs(cfg.Sources.Services)
	if d := cfg.Deriver; d != nil { // it takes precedence over registries
		services = slices.Insert(services, 0, feed.SourceConfig{Name: d.Name(), Required: true})
	}
	a := &assembly{
		cfg: cfg,
		objects: feed.NewMerger(feed.Config[config.Key, *config.Object]{
			KeyOf: objectKey, Settle: settle,
		}, sourceConfigs(cfg.Sources.Objects)),
		services: feed.NewMerger(feed.Config[registry.Host, registry.Instances]{
			KeyOf: serviceHost, Union: true, MassRemoval: massRemoval,
		}, services),
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

// restore adds the groups that were saved before the restart.
func (a *assembly) restore(saved Saved, now time.Time) {
	a.updateObjects(a.objects.Restore(saved.Objects, now), now)
	a.updateServices(a.services.Restore(saved.Services, now))
}

// applyObjects applies a batch of configuration.
func (a *assembly) applyObjects(b feed.Batch[*config.Object], now time.Time) {
	a.updateObjects(a.objects.Apply(b, now), now)
}

// applyServices applies a batch of services.
func (a *assembly) applyServices(b feed.Batch[registry.Instances], now time.Time) {
	a.updateServices(a.services.Apply(b, now))
}

// expire ends retention that is due.
func (a *assembly) expire(now time.Time) {
	a.updateObjects(a.objects.Expire(now), now)
	a.updateServices(a.services.Expire(now))
}

// nextExpiry returns when to call expire next. Zero if it need not be called before the next
// change.
func (a *assembly) nextExpiry() time.Time {
	return feed.Earlier(a.objects.NextExpiry(), a.services.NextExpiry())
}

// acceptRemovals removes the retained items of a source, and returns their number.
func (a *assembly) acceptRemovals(source string, now time.Time) int {
	objects, services := a.objects.AcceptRemovals(source, now), a.services.AcceptRemovals(source, now)
	a.updateObjects(objects, now)
	a.updateServices(services)
	return len(objects) + len(services)
}

// updateObjects updates the objects with these keys, and the services that are derived from them.
func (a *assembly) updateObjects(keys []config.Key, now time.Time) {
	for _, k := range keys {
		supplies := a.objects.Items(k)
		a.inputs.Objects = set(a.inputs.Objects, k, first(supplies))
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

// derive applies what the deriver derives from the changed objects.
func (a *assembly) derive(now time.Time) {
	if a.cfg.Deriver != nil {
		a.applyServices(a.cfg.Deriver.Derive(a.inputs.Objects), now)
	}
}

// setVIPs replaces the allocated virtual IPs.
func (a *assembly) setVIPs(vips registry.VIPs) {
	var changed []registry.Host
	for ch := range vips.Diff(a.vips) {
		changed = append(changed, registry.Host(ch.Key))
	}
	a.vips = vips
	a.updateServices(changed)
}

// updateServices joins the services of these hosts again.
func (a *assembly) updateServices(hosts []registry.Host) {
	for _, host := range hosts {
		parts := a.parts(host)
		joined := a.cfg.Join.Join(parts)
		services := make([]registry.Instances, len(joined))
		wants := false
		delete(a.conflicts, host)
		for i, j := range joined {
			services[i] = a.withVIP(j.Instances)
			wants = wants || services[i].Service.WantsAddress()
			if problems := j.Problems(); len(problems) > 0 {
				a.conflicts[host] = append(a.conflicts[host], problems...)
			}
		}
		a.setWanting(host, wants)
		a.inputs.Services, a.inputs.Endpoints = replaceHost(a.inputs.Services, a.inputs.Endpoints, host, services)
		if a.exporter != nil {
			a.exporter.setServices(host, parts)
		}
	}
}

// parts returns what the sources supply for a host, in the order of the sources.
func (a *assembly) parts(host registry.Host) []registry.Part {
	supplies := a.services.Items(host)
	out := make([]registry.Part, len(supplies))
	for i, s := range supplies {
		out[i] = registry.Part{Instances: a.cfg.Mesh.Networks.assign(s.Item, s.Source), Source: s.Source}
	}
	return out
}

// withVIP returns a service with the virtual IPs allocated for its host, if it needs any.
func (a *assembly) withVIP(in registry.Instances) registry.Instances {
	if vip, ok := a.vips.Get(pmap.String(in.Service.Host)); ok && in.Service.WantsAddress() {
		in.Service = in.Service.WithVIP(vip)
	}
	return in
}

// setWanting sets whether a host needs virtual IPs.
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

// wants returns the hosts that need virtual IPs, sorted.
func (a *assembly) wants() []string {
	out := make([]string, 0, len(a.wanting))
	for host := range a.wanting {
		out = append(out, string(host))
	}
	slices.Sort(out)
	return out
}

// replaceHost returns the maps with list as the services of the host. Equal services and endpoints
// keep their pointers.
func replaceHost(
	services Services, endpoints Endpoints, host registry.Host, list []registry.Instances,
) (Services, Endpoints) {
	before := map[registry.Key]registry.Instances{}
	for k, s := range services.From(registry.Key{Host: string(host)}) {
		if k.Host != string(host) {
			break
		}
		before[k] = registry.Instances{Service: s, Endpoints: endpoints.At(k)}
	}
	for _, in := range list {
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
