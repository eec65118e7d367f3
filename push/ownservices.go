package push

import (
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// takeServices brings the services of these hosts up to date; parts is what registries say of one, what counts first.
func (o *own) takeServices(hosts map[string]bool, parts func(host string) []registry.Instances) {
	for host := range hosts {
		said, was := parts(host), o.keys[host]
		if len(said) == 0 || said[0].Service.Key != was {
			o.now.Services, o.now.Endpoints = o.now.Services.Without(was), o.now.Endpoints.Without(was)
			delete(o.keys, host)
		}
		if len(said) == 0 {
			continue
		}
		k := said[0].Service.Key
		merged, _ := o.merging.Merge(said)
		old := registry.Instances{Service: o.now.Services.At(k), Endpoints: o.now.Endpoints.At(k)}
		if now := registry.Keep(old, merged); now != old {
			o.now.Services, o.now.Endpoints = o.now.Services.With(k, now.Service), o.now.Endpoints.With(k, now.Endpoints)
		}
		o.keys[host] = k
	}
}

// settleOwn has others told no more of services of sources that leave, once all of our own that came was seen, and what is waited for
// has said everything. What is in use waits for foreign ones besides.
func (a *Assembler) settleOwn() {
	o := a.own
	if o == nil || !o.leaving || len(a.moves.unseen)+len(a.unreadOwn()) > 0 {
		return
	}
	o.leaving = false
	_, named := a.cfg.names(a.cfg.Sources)
	for _, name := range a.instances.Besides(named) {
		o.left[name] = true
		a.adopts.noteSource(name)
	}
}

// heard notes that a source of services, which may have left before, has said everything anew.
func (o *own) heard(b feed.Batch[registry.Instances]) {
	if b.Full {
		delete(o.left, b.Source)
	}
}

// stays forgets which sources left, but for those of these names.
func (o *own) stays(names []string) {
	maps.DeleteFunc(o.left, func(name string, _ bool) bool { return !slices.Contains(names, name) })
}

// unreadOwn are the sources of our own that are waited for and have not said everything yet; one that left and came back before what
// is in use had let go of it has to say it anew.
func (a *Assembler) unreadOwn() []string {
	names := slices.DeleteFunc(a.unread(), a.cfg.Tell.Foreign)
	_, instances := a.cfg.names(a.cfg.Sources)
	for name := range a.own.left {
		if slices.Contains(instances, name) && !slices.Contains(a.cfg.Sources.Optional, name) {
			names = append(names, name)
		}
	}
	return names
}
