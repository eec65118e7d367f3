package vip

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
	"github.com/ashore-mesh/ashore/registry"
)

// desk is where what the source says waits for its addresses. The goroutine of run owns it all but the channels.
type desk struct {
	cfg     Config
	asks    chan []registry.Key // taken by Source.ask
	answers chan answer         // from there

	users   map[registry.Key]int            // how many services want its addresses
	known   map[registry.Key][]netip.Addr   // the answers, of what is wanted
	lacking map[registry.Key]*lack          // what is not known and wanted
	left    []registry.Key                  // what nobody wanted any more at some time; Addresses does not know that yet
	groups  map[string]*group               // what the source said of groups with services that want addresses
	held    *feed.Batch[registry.Instances] // waits; nil: nothing does
	late    map[string]bool                 // of groups: those that were passed on with other addresses, or with another problem, than is known by now
	asking  bool                            // Addresses has not answered yet
	stale   map[registry.Key]bool           // what was lost while it is asked for: the answer may be of before
	again   bool                            // those that were refused are to be asked for again
	started bool                            // something was passed on
	spent   bool                            // patience is, until Addresses answers
	lacks   trouble                         // what is told of those that are lacking
}

// lack is an address that a service wants.
type lack struct {
	refused error // why Addresses gave none the last time; nil: it has not said
	without bool  // a service was passed on without
}

// group is what the source said of a group.
type group struct {
	update feed.Update[registry.Instances] // with the addresses that it was passed on with
	wanted []registry.Key                  // those of its services that want addresses
}

func newDesk(cfg Config) *desk {
	return &desk{
		cfg: cfg, asks: make(chan []registry.Key), answers: make(chan answer),
		users: map[registry.Key]int{}, known: map[registry.Key][]netip.Addr{}, lacking: map[registry.Key]*lack{}, groups: map[string]*group{}, late: map[string]bool{},
		stale: map[registry.Key]bool{},
	}
}

// run passes on what the source says until ctx ends. Only one of these things can happen at a time: the source says
// something, Addresses can be asked, answers or has given what it gave to others, or it is time to go on without, or to ask again.
func (d *desk) run(ctx context.Context, from <-chan feed.Batch[registry.Instances], out chan<- feed.Batch[registry.Instances]) {
	patience, retry := time.NewTimer(0), time.NewTicker(d.cfg.Retry)
	defer patience.Stop()
	defer retry.Stop()
	for {
		in, asks, keys := from, d.asks, d.questions()
		if d.held != nil {
			in = nil
		}
		if len(keys) == 0 {
			asks = nil
		}
		select {
		case <-ctx.Done():
			return
		case b := <-in:
			d.take(b)
			patience.Reset(d.cfg.Patience)
		case asks <- keys:
			d.asking, d.again = true, false
		case a := <-d.answers:
			d.answer(a)
		case <-patience.C:
			d.spent = d.spent || d.held != nil
		case <-retry.C:
			d.again = true
		case <-d.cfg.Addresses.Losing():
			d.lose(d.cfg.Addresses.Lost())
		}
		d.letGo()
		d.tell()
		if !d.pass(ctx, out) {
			return
		}
	}
}

// questions are the keys to ask Addresses for now: all that are lacking, when one is new or those that were refused are
// asked for again; none while it has not answered.
func (d *desk) questions() []registry.Key {
	if d.asking || len(d.lacking) == 0 || !d.again && !d.fresh() {
		return nil
	}
	return slices.SortedFunc(maps.Keys(d.lacking), registry.Key.Compare)
}

// fresh says that Addresses was not asked yet for some of what is lacking, or has not answered.
func (d *desk) fresh() bool {
	for _, l := range d.lacking {
		if l.refused == nil {
			return true
		}
	}
	return false
}

// take takes in what the source says. What Addresses refused stays refused.
func (d *desk) take(b feed.Batch[registry.Instances]) {
	var before []*group
	if b.Full {
		before = slices.Collect(maps.Values(d.groups))
		clear(d.groups)
		clear(d.late)
	}
	for _, u := range b.Updates {
		if old, had := d.groups[u.Group]; had {
			before = append(before, old)
		}
		delete(d.groups, u.Group)
		delete(d.late, u.Group)
		d.note(u)
	}
	for _, g := range before {
		d.release(g)
	}
	d.held = &b
}

// note takes in what a group wants.
func (d *desk) note(u feed.Update[registry.Instances]) {
	keys := wanted(u)
	if len(keys) == 0 {
		return
	}
	d.groups[u.Group] = &group{update: u, wanted: keys}
	for _, k := range keys {
		if d.users[k]++; d.known[k] == nil && d.lacking[k] == nil {
			d.lacking[k] = &lack{}
		}
	}
}

// release takes back what note took in.
func (d *desk) release(g *group) {
	for _, k := range g.wanted {
		if d.users[k]--; d.users[k] == 0 {
			delete(d.users, k)
			delete(d.lacking, k)
			delete(d.known, k)
			d.left = append(d.left, k)
		}
	}
}

// letGo tells Addresses what nobody wants any more. Not while it is asked, which may be for the same.
func (d *desk) letGo() {
	if d.asking || len(d.left) == 0 {
		return
	}
	d.cfg.Addresses.Release(slices.DeleteFunc(d.left, func(k registry.Key) bool { return d.users[k] > 0 }))
	d.left = nil
}

// leave lets go of everything.
func (d *desk) leave() {
	d.cfg.Addresses.Release(append(d.left, slices.Collect(maps.Keys(d.users))...))
}

// lose has keys asked for anew. Their services go without until the answer: their addresses are others' by now.
func (d *desk) lose(keys []registry.Key) {
	lost := map[registry.Key]bool{}
	for _, k := range keys {
		if d.users[k] == 0 {
			continue
		}
		if d.known[k] == nil {
			d.stale[k] = d.asking
			continue
		}
		delete(d.known, k)
		d.lacking[k], lost[k] = &lack{}, true
	}
	d.delay(lost)
}

// delay has groups with services of keys passed on again.
func (d *desk) delay(keys map[registry.Key]bool) {
	if len(keys) == 0 {
		return
	}
	for name, g := range d.groups {
		if slices.ContainsFunc(g.wanted, func(k registry.Key) bool { return keys[k] }) {
			d.late[name] = true
		}
	}
}

// wanted are the keys of a group's services that want addresses.
func wanted(u feed.Update[registry.Instances]) []registry.Key {
	var out []registry.Key
	for _, in := range u.Items {
		if in.Service.WantsAddress() {
			out = append(out, in.Service.Key)
		}
	}
	return out
}

// answer takes in what Addresses said.
func (d *desk) answer(a answer) {
	d.asking, d.spent = false, false
	changed := map[registry.Key]bool{}
	for _, k := range a.keys {
		l := d.lacking[k]
		if l == nil || d.stale[k] {
			continue
		}
		if addresses := a.got[k]; len(addresses) > 0 {
			d.known[k], changed[k] = addresses, true
			delete(d.lacking, k)
			continue
		}
		l.refused = a.err
	}
	clear(d.stale)
	d.delay(changed)
}

// pass passes on what does not wait any more; false: ctx has ended.
func (d *desk) pass(ctx context.Context, out chan<- feed.Batch[registry.Instances]) bool {
	if d.held != nil && !d.waits(*d.held) {
		b := *d.held
		d.held, d.started = nil, d.started || b.Full
		if !d.send(ctx, out, b) {
			return false
		}
	}
	if d.held != nil || len(d.late) == 0 {
		return true
	}
	b := feed.Batch[registry.Instances]{Source: d.cfg.Source.Name()}
	for _, name := range slices.Sorted(maps.Keys(d.late)) {
		b.Updates = append(b.Updates, d.groups[name].update)
	}
	return d.send(ctx, out, b)
}

// waits says that a batch waits for addresses that may come soon. The first one that has everything waits for all that
// were not refused.
func (d *desk) waits(b feed.Batch[registry.Instances]) bool {
	if d.spent && (d.started || !b.Full) {
		return false
	}
	for _, u := range b.Updates {
		for _, k := range wanted(u) {
			if l := d.lacking[k]; l != nil && l.refused == nil {
				return true
			}
		}
	}
	return false
}

// send sends a batch with the addresses that there are; false: ctx has ended.
func (d *desk) send(ctx context.Context, out chan<- feed.Batch[registry.Instances], b feed.Batch[registry.Instances]) bool {
	b.Updates = slices.Clone(b.Updates)
	for _, u := range b.Updates {
		d.goWithout(d.groups[u.Group])
	}
	d.tell()
	for i, u := range b.Updates {
		b.Updates[i] = d.filled(u)
		delete(d.late, u.Group)
		if g := d.groups[u.Group]; g != nil {
			g.update = b.Updates[i] // what there was before is not kept twice
			g.update.Problems = u.Problems
		}
	}
	select {
	case out <- b:
		return true
	case <-ctx.Done():
		return false
	}
}

// filled is a group whose services have the addresses that are known, and no others.
func (d *desk) filled(u feed.Update[registry.Instances]) feed.Update[registry.Instances] {
	g := d.groups[u.Group]
	if g == nil {
		return u
	}
	u.Items = slices.Clone(u.Items)
	for i, in := range u.Items {
		if !slices.Contains(g.wanted, in.Service.Key) {
			continue
		}
		addresses := d.known[in.Service.Key]
		if addresses == nil && in.Service.AutoAddresses == nil {
			continue
		}
		s := *in.Service
		s.AutoAddresses = addresses
		u.Items[i].Service = &s
	}
	if u.Group == d.lacks.group {
		u.Problems = append(slices.Clone(u.Problems), d.lacks.problem)
	}
	return u
}
