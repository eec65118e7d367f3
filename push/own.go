package push

import (
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// Telling says what others are told, such as other control planes, of what sources say: what is our own.
type Telling struct {
	// Foreign says of a source, by its name, that what it says is others' own. Nothing that it says changes what is told. It is
	// called from one goroutine.
	Foreign func(source string) bool
	// Services tells services of registries too.
	Services bool
	// Publish receives what is our own whenever it is other than before, for the first time when each source of it that is waited
	// for has delivered its first complete state. It is called from one goroutine and must not block.
	Publish func(Told)
}

// Told is what would be in use if there were no foreign sources. Comparable.
type Told struct {
	// Objects are the configuration objects.
	Objects Objects
	// Services and Endpoints are what registries say, merged, of hosts that configuration declares too as of others; each host once,
	// in the namespace where the first of them has it.
	Services  Services
	Endpoints Endpoints
}

// own keeps what others are told. It depends on nothing that foreign sources say: those who take from one another would otherwise
// answer to what they have caused themselves, and some would never come to rest.
type own struct {
	cfg     Telling // set once
	merging registry.Merging
	objects *objectBook
	keys    map[string]registry.Key // of the services, by host
	leaving bool                    // sources of services are told of still that are not named any more
	left    map[string]bool         // those that are told of no more, until they have said everything anew
	now     Told                    // what is to be told; its objects are those of that book
	told    Told                    // what was told last
	toldAt  time.Time               // when that was
}

func newOwn(cfg Telling, merging registry.Merging, sources []string, began time.Time) *own {
	o := &own{cfg: cfg, merging: merging, keys: map[string]registry.Key{}, left: map[string]bool{}}
	o.objects = newObjectBook(o.ours(sources), began)
	return o
}

// ours are the names of those sources that are not foreign.
func (o *own) ours(sources []string) []string {
	return slices.DeleteFunc(slices.Clone(sources), o.cfg.Foreign)
}

// resume takes in what was held before the start, and what sources said then that there are not any more.
func (o *own) resume(held []Held, before []feed.Batch[*config.Object]) {
	o.objects.resume(
		slices.DeleteFunc(slices.Clone(held), func(h Held) bool { return h.Untold || o.cfg.Foreign(h.Object.Origin.Source) }),
		slices.DeleteFunc(slices.Clone(before), func(b feed.Batch[*config.Object]) bool { return o.cfg.Foreign(b.Source) }))
}

// arrange has those of the sources count that are our own.
func (o *own) arrange(sources, anew []string, now time.Time) {
	o.leaving = true
	o.objects.arrange(o.ours(sources), o.ours(anew), now)
}

// take takes in what a source says, if that is our own. Call update after it.
func (o *own) take(b feed.Batch[*config.Object], now time.Time) {
	if !o.objects.merger.Has(b.Source) {
		return
	}
	o.objects.merger.Apply(b, now)
	o.objects.recall(b, now)
}

// tellOwn tells what is our own when it is other than before and it is time to, and returns after how long to look again; zero:
// when something arrives.
func (a *Assembler) tellOwn(now time.Time) time.Duration {
	o := a.own
	if o == nil {
		return 0
	}
	if o.cfg.Services {
		o.takeServices(a.adopts.asked(), func(host string) []registry.Instances { return a.adopts.parts(host, o.left) })
	}
	o.now.Objects = o.objects.objects
	first := !o.objects.inForce
	switch {
	case first && len(a.unreadOwn()) > 0, !first && o.now == o.told:
		return 0
	case now.Before(o.toldAt.Add(a.cfg.Gap)):
		return o.toldAt.Add(a.cfg.Gap).Sub(now)
	}
	o.objects.inForce = true
	o.cfg.Publish(o.now)
	o.told, o.toldAt = o.now, now
	return 0
}
