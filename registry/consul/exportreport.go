package consul

import (
	"fmt"
	"strings"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// report tells what stands in Consul, and what does not.
func (w *writer) report() {
	var list []feed.Problem
	add := func(object, text string) {
		list = append(list, feed.Problem{Severity: feed.Warning, Source: w.e.source(), Object: object, Text: text})
	}
	for r, ids := range byRefusal(w.refused) {
		text := fmt.Sprintf("is not written at %d of its addresses, where it stays as it was: Consul refuses it (%s)", ids, r.why)
		if strings.Contains(r.why, "Permission denied") {
			text += ": give the token in tokenFile service:write for it, or leave it out by export.except"
		}
		add("Consul service "+r.name, text)
	}
	for name := range w.natives {
		if keys := w.offers.keys[name]; len(keys) > 0 && !w.removes {
			add("service "+keys[0].Namespace+"/"+keys[0].Host, fmt.Sprintf("is not registered in Consul: there is a service %q of somebody else; set export.name, or leave it out by export.except", name))
		}
	}
	for _, ps := range w.offers.problems {
		for _, p := range ps {
			add(p.Object, p.Text)
		}
	}
	feed.SortProblems(list)
	entries := 0
	for _, ids := range w.there {
		entries += len(ids)
	}
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	was := map[string]feed.Problem{}
	for _, p := range w.e.status.Problems {
		was[p.Object+"\x00"+p.Text] = p
	}
	_, trouble := splitTrouble(w.e.status.Problems)
	for i, p := range list {
		if old, ok := was[p.Object+"\x00"+p.Text]; ok {
			list[i].Since = old.Since
			continue
		}
		list[i].Since = time.Now()
		w.e.cfg.Log.Warn("a service of the mesh is not registered in Consul", "problem", p.String())
	}
	if trouble != nil {
		list = append(list, *trouble)
	}
	w.e.status.Problems, w.e.status.Entries = list, entries
	w.e.status.Writes += w.sent
	w.sent = 0
}

// byRefusal counts entries.
func byRefusal(refused map[string]refusal) map[refusal]int {
	out := make(map[refusal]int, len(refused))
	for _, r := range refused {
		out[r]++
	}
	return out
}
