package push

import (
	"cmp"
	"fmt"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

// standHeld has people told of an object that is held, and that one is not any more when o is nil.
func (a *Assembler) standHeld(k config.Key, o *config.Object) {
	if o == nil {
		a.stand(heldPlace(k.String()), nil)
		return
	}
	h := a.use.held[k]
	a.standWaiting(heldPlace(k.String()), h.problem(o, "stays in use"), h.waits != "")
}

// standWaiting has people told of a problem at a place. What waits for a source alone is in the list, and nobody is called for it: after
// a start that is so for a moment.
func (a *Assembler) standWaiting(at place, p feed.Problem, waits bool) {
	found := []finding{{problem: p}}
	if !waits {
		a.stand(at, found)
		return
	}
	a.found.set(at, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.between[at] = found
}

// heldPlace is where it stands that an object, by its name, is held.
func heldPlace(object string) place { return place{group: "held " + object} }

// problem is what operators are told of an object that is held; does is what that has it do.
func (h staying) problem(o *config.Object, does string) feed.Problem {
	return feed.Problem{
		Severity: feed.Warning, Source: o.Origin.Source, Object: o.Key.String(), File: o.Origin.File, Stale: true,
		Text: fmt.Sprintf(string(h.why), does, h.beside.Group+" of "+h.beside.Source, h.waits),
	}
}

// standTold has people told of an object of ours that is held for those who are told, where it is no more than that: a foreign source
// has it too, and that one is in use.
func (a *Assembler) standTold(k config.Key) {
	at := place{group: "told " + k.String()}
	h, items := a.own.objects.held[k], a.objects.Items(k)
	if h.why == "" || len(items) == 0 {
		a.stand(at, nil)
		return
	}
	p := h.problem(a.own.objects.objects.At(k), "is still told to others")
	p.Text += "; in use is that of " + items[0].Origin.Source
	if stood := a.between[at]; len(stood) == 0 || stood[0].problem.Text != p.Text {
		a.standWaiting(at, p, h.waits != "")
	}
}

// enforce completes a problem of an object that should protect, and of which its source has no version that could: another
// one may be in use. The caller holds mu.
func (a *Assembler) enforce(p *feed.Problem) {
	if !p.Unenforced {
		return
	}
	if _, held := a.between[heldPlace(p.Object)]; held {
		p.Stale = true
		p.Text += "; until then its last good version stays in use"
		return
	}
	if items := a.objects.Items(config.ParseKey(p.Object)); len(items) > 0 {
		p.Text += fmt.Sprintf("; until then the one in %s is in use", cmp.Or(placeOutside(items[0], p.Source), items[0].Origin.Source))
		return
	}
	p.Text += "; nothing is enforced for it until it is mended"
}
