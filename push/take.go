package push

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// takeObjects merges configuration and derives the services that depend on it.
func (a *Assembler) takeObjects(ctx context.Context, b feed.Batch[*config.Object], now time.Time) {
	edited := a.editedBy(b)
	a.mu.Lock()
	touched := a.objects.Apply(b, now)
	a.mu.Unlock()
	a.use.recall(b, now)
	if a.own != nil {
		a.own.take(b, now)
	}
	a.updateObjects(ctx, touched, edited, b.Since, now)
	a.settle(ctx, now)
}

// updateObjects brings the objects of these keys up to date. by says when what held an object before was edited; zero: nobody did
// that.
func (a *Assembler) updateObjects(ctx context.Context, touched []config.Key, by edits, since, now time.Time) {
	before := a.inputs.Objects
	if a.own != nil {
		a.own.objects.update(touched, by, a.unreadOwn, now)
	}
	a.use.update(touched, by, a.unread, now)
	a.inputs.Objects = a.use.objects
	a.tellHeld()
	if a.inputs.Objects != before {
		a.changed(since, now)
		a.wantKeys()
	}
	a.derive(ctx, now)
}

// holds says that there are objects that stay although no source has them.
func (a *Assembler) holds() bool {
	return len(a.use.held) > 0 || a.own != nil && len(a.own.objects.held) > 0
}

// look notes what sources have of an object, what counts first.
func (a *Assembler) look(k config.Key, items []*config.Object) {
	a.found.set(place{object: k}, clashes(items))
	if a.own != nil && a.own.objects.held[k].why != "" {
		a.standTold(k)
	}
	a.rekey = a.rekey || k.Kind == config.RequestAuthentication
}

// derive asks the deriver, which knows what changed since it was last asked.
func (a *Assembler) derive(ctx context.Context, now time.Time) {
	if a.cfg.Derive == nil {
		return
	}
	b := a.cfg.Derive.Derive(ctx, a.inputs.Objects)
	a.mu.Lock()
	a.partial = !a.ready && a.pending()
	a.mu.Unlock()
	if len(b.Updates) == 0 && !b.Full {
		return
	}
	for _, u := range b.Updates {
		found := make([]finding, len(u.Problems))
		for i, p := range u.Problems {
			found[i] = finding{p, p.Text}
		}
		a.found.set(place{group: u.Group}, found)
	}
	declared, relayed := a.relays.part(b)
	again := a.adopts.declare(declared)
	a.applyInstances(declared, now)
	for _, b := range again {
		a.applyInstances(b, now)
	}
	relayed.Source = a.cfg.relays()
	a.adopt(relayed, now)
}

// takeInstances takes in what a registry says.
func (a *Assembler) takeInstances(ctx context.Context, b feed.Batch[registry.Instances], now time.Time) {
	a.remain(b, now)
	if a.own != nil {
		a.own.heard(b)
	}
	a.adopt(b, now)
	a.saw(b.Source)
	a.yield(now)
	if b.Full && a.holds() { // what went with its source may have waited for that
		a.updateObjects(ctx, nil, edits{}, now, now)
	}
	a.settle(ctx, now)
}

// adopt takes in services of hosts that others may declare.
func (a *Assembler) adopt(b feed.Batch[registry.Instances], now time.Time) {
	b, again := a.adopts.adopt(b)
	a.applyInstances(b, now)
	for _, b := range again {
		a.applyInstances(b, now)
	}
}

// relays are the groups of the deriver whose services are Relayed.
type relays map[string]bool

// part is a batch of the deriver's in two: what is declared, and what is relayed. Either is as Full as the whole.
func (r relays) part(b feed.Batch[registry.Instances]) (declared, relayed feed.Batch[registry.Instances]) {
	declared, relayed = b, b
	declared.Updates, relayed.Updates = nil, nil
	if b.Full {
		clear(r)
	}
	for _, u := range b.Updates {
		switch is := len(u.Items) > 0 && u.Items[0].Service.Relayed; {
		case is:
			r[u.Group] = true
			relayed.Updates = append(relayed.Updates, u)
		case r[u.Group]: // it is gone
			delete(r, u.Group)
			relayed.Updates = append(relayed.Updates, u)
		default:
			declared.Updates = append(declared.Updates, u)
		}
	}
	return declared, relayed
}

// applyInstances merges services and their endpoints; what is equal keeps its pointer.
func (a *Assembler) applyInstances(b feed.Batch[registry.Instances], now time.Time) {
	a.mu.Lock()
	touched := a.instances.Apply(b, now)
	a.mu.Unlock()
	a.updateInstances(touched, b.Since, now)
}

// updateInstances brings the services of these keys up to date.
func (a *Assembler) updateInstances(touched []registry.Key, since, now time.Time) {
	before := a.inputs
	for _, k := range touched {
		items := a.instances.Items(k)
		merged, conflicts := registry.Instances{}, []registry.Conflict(nil)
		if len(items) > 0 {
			merged, conflicts = a.cfg.Merging.Merge(items)
		}
		if at := (place{group: "service " + k.Host + " " + k.Namespace}); len(conflicts) > 0 || len(a.found.now[at]) > 0 {
			a.stand(at, contradictions(conflicts, a.sayers(k)))
			a.count(k, len(conflicts))
		}
		if len(items) == 0 {
			a.inputs.Services = a.inputs.Services.Without(k)
			a.inputs.Endpoints = a.inputs.Endpoints.Without(k)
			continue
		}
		old := registry.Instances{Service: a.inputs.Services.At(k), Endpoints: a.inputs.Endpoints.At(k)}
		now := registry.Keep(old, merged)
		if now == old {
			continue
		}
		a.inputs.Services = a.inputs.Services.With(k, now.Service)
		a.inputs.Endpoints = a.inputs.Endpoints.With(k, now.Endpoints)
	}
	if a.inputs != before {
		a.changed(since, now)
	}
}

// count notes in how much sources contradict one another about a service.
func (a *Assembler) count(k registry.Key, conflicts int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conflicts[k] = conflicts; conflicts == 0 {
		delete(a.conflicts, k)
	}
}

// sayers are the sources that say something of a service, by what they say. What is made of configuration is said by the source
// of that.
func (a *Assembler) sayers(k registry.Key) map[*registry.Service]string {
	out := map[*registry.Service]string{}
	for _, s := range a.instances.Supplies(k) {
		out[s.Item.Service] = a.moves.source(s.Source)
		if a.cfg.derives(s.Source) {
			out[s.Item.Service] = s.Item.Service.Source
		}
	}
	return out
}

// contradictions are problems of who says something about a service that another source decides otherwise; sources are who says
// what.
func contradictions(all []registry.Conflict, sources map[*registry.Service]string) []finding {
	var out []finding
	for _, c := range all {
		decides := sources[c.Counts]
		p := feed.Problem{
			Severity: feed.Warning, Source: sources[c.Other], Object: cmp.Or(c.Other.Object, c.Other.Host), Field: c.Field,
			Text: fmt.Sprintf("%s; %s decides, which is %s: make the two agree, or take the host out of one", c.Text, decides, cmp.Or(c.Counts.Object, c.Counts.Host)),
		}
		out = append(out, finding{p, decides + " " + c.Text})
	}
	return out
}

// changed takes note of a change that was noticed at since, or else now.
func (a *Assembler) changed(since, now time.Time) {
	a.dirty = true
	if since.IsZero() {
		since = now
	}
	if a.since.IsZero() || since.Before(a.since) {
		a.since = since
	}
}
