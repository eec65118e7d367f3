package mcp

import (
	"cmp"
	"errors"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/feed"
)

const (
	// maxRefused bounds the problems that a verdict holds, and those of one object.
	maxRefused = 20
	// revisionLabel says for which control plane an object is. Source: Istio, label.IoIstioRev.
	revisionLabel = "istio.io/rev"
)

// run takes in the word, which was said on a stream, and says what became of it.
func (t *taking) run(stream uint64) verdict {
	l, had := t.at, len(t.at.strange) > 0 || t.at.over != nil
	if over := t.tooMuch(); over != nil {
		t.refuse(1, *over)
		t.owe(over)
		t.changed[l.besides()] = true
		t.stayAll() // who knows what it named
		return t.done()
	}
	for i := range t.word.items {
		t.item(&t.word.items[i])
	}
	if len(t.seen) > 0 {
		t.alive(stream)
	}
	t.sweep(stream)
	for _, name := range t.word.removed {
		t.remove(name)
	}
	t.paid()
	t.oddities()
	if had || len(l.strange) > 0 {
		t.changed[l.besides()] = true
	}
	return t.done()
}

// alive notes that the server listed something. What it came back without stands under this name now, when it is of the same
// kind, or has to be missing for a while from then on.
func (t *taking) alive(stream uint64) {
	if t.at.listed == stream {
		return
	}
	hollow := t.hollow()
	for _, l := range t.lists {
		if !l.emptied || l == t.at {
			continue
		}
		moved := t.rules.aliases && l.kind.Kind == t.at.kind.Kind
		if moved {
			l.lapse.forget()
		}
		if moved || hollow {
			leaveAll(l, t.believed(l))
		}
		l.emptied = !moved
	}
	t.at.listed = stream
	t.at.lapse.forget()
}

// done is the verdict with all that changed.
func (t *taking) done() verdict {
	t.verdict.changed = slices.SortedFunc(maps.Keys(t.changed), group.compare)
	return t.verdict
}

// nameOf is the name of a key within its kind.
func nameOf(k config.Key) string { return k.Namespace + "/" + k.Name }

// item takes in one resource.
func (t *taking) item(it *item) {
	l, sum := t.at, it.sum(t.seed)
	if name, ok := l.sums[sum]; ok && (it.name == "" || it.name == name) {
		t.again(name, l.entries[name])
		return
	}
	key, unread := it.read()
	if unread != nil {
		told := false
		if key, told = it.outside(); !told || errors.Is(unread, errTwoNames) {
			t.untold(it, unread)
			return
		}
	}
	key.Kind = l.kind.Kind
	name := nameOf(key)
	if t.seen[name] {
		l.entries[name].object = t.prior[name] // neither counts
		t.put(name, it, nil, []feed.Problem{{Severity: feed.Error, Object: key.String(), Text: "it stands twice in one answer, with different contents: remove one of the two"}}, false)
		delete(l.sums, sum) // alone it is well
		return
	}
	t.seen[name] = true
	if e := l.entries[name]; e != nil {
		t.prior[name] = e.object
	}
	if unread != nil {
		t.put(name, it, nil, []feed.Problem{{Severity: feed.Error, Object: key.String(), Text: "it was refused: " + unread.Error()}}, false)
		return
	}
	if t.foreign(it.res.GetMetadata().GetLabels()) {
		t.put(name, it, nil, nil, true)
		return
	}
	o, problems, ok := draft(t.rules.source, key, l.kind, it.res)
	if e := l.entries[name]; ok && e.good() && equal(e.object, o) {
		t.resum(name, e, it)
		t.again(name, e)
		return
	}
	if ok {
		problems, ok = config.Accept(o)
	}
	t.put(name, it, o, problems, ok)
}

// good says that what was read last counts.
func (e *entry) good() bool {
	return e != nil && e.object != nil && !slices.ContainsFunc(e.problems, feed.Problem.IsError)
}

// resum notes what an entry was read from.
func (t *taking) resum(name string, e *entry, it *item) {
	delete(t.at.sums, e.sum)
	t.bytes += len(it.raw) - e.bytes
	e.sum, e.bytes = it.sum(t.seed), len(it.raw)
	t.at.sums[e.sum] = name
}

// again notes that an entry is as it was.
func (t *taking) again(name string, e *entry) {
	t.seen[name], t.prior[name] = true, e.object
	t.stays(name)
	if slices.ContainsFunc(e.problems, feed.Problem.IsError) {
		t.refuse(1, e.problems...)
	}
}

// put is what was read of an entry. What is not good leaves the last good object where it is.
func (t *taking) put(name string, it *item, o *config.Object, problems []feed.Problem, good bool) {
	l := t.at
	e := l.entries[name]
	if e == nil {
		e = &entry{}
		l.entries[name] = e
		t.total++
	}
	t.resum(name, e, it)
	if good {
		e.asOf = t.now
		if o == nil || e.object == nil || e.object.Hash != o.Hash {
			e.object = o
		}
	} else {
		t.refuse(1, problems...)
	}
	problems = few(problems)
	for i := range problems {
		problems[i].Stale, problems[i].Since = !good && e.object != nil, t.now
	}
	e.problems = problems
	t.stays(name)
	t.changed[group{kind: l.kind.Kind, name: name}] = true
}

// few are the first of many problems of an object, errors before warnings: a server must not fill the memory with them.
func few(problems []feed.Problem) []feed.Problem {
	if len(problems) <= maxRefused {
		return problems
	}
	problems = slices.Clone(problems)
	slices.SortStableFunc(problems, func(a, b feed.Problem) int { return cmp.Compare(a.Severity, b.Severity) })
	return slices.Clone(problems[:maxRefused])
}

// refuse counts what is not taken.
func (t *taking) refuse(count int, problems ...feed.Problem) {
	t.verdict.count += count
	for _, p := range problems {
		t.verdict.sum = t.verdict.sum*31 + maphash.String(t.seed, p.Object+p.Field+p.Text)
		if len(t.verdict.refused) < maxRefused && p.IsError() {
			t.verdict.refused = append(t.verdict.refused, p)
		}
	}
}
