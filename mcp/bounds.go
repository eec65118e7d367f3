package mcp

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// tooMuch refuses a word that would make the content too large.
func (t *taking) tooMuch() *feed.Problem {
	if n := t.bytes + t.growth(); t.rules.bytes > 0 && n > t.rules.bytes {
		return t.refusal(fmt.Sprintf("%d bytes, more than %d: raise maxMessage, of which it is four times", n, t.rules.bytes))
	}
	return t.tooMany()
}

// growth is by how many bytes a word makes the content larger.
func (t *taking) growth() (n int) {
	if t.word.whole {
		for _, e := range t.at.entries {
			n -= e.bytes
		}
	}
	for i := range t.word.items {
		it := &t.word.items[i]
		n += len(it.raw)
		if e := t.at.entries[cmp.Or(t.at.sums[it.sum(t.seed)], it.name)]; e != nil && !t.word.whole {
			n -= e.bytes
		}
	}
	return n
}

// refusal is the problem of a word that is refused whole.
func (t *taking) refusal(why string) *feed.Problem {
	return &feed.Problem{Severity: feed.Error, Stale: true, Since: t.now, Text: fmt.Sprintf("%s: the answer was refused, there would be %s, or ask for fewer kinds", t.at.name, why)}
}

// tooMany refuses a word that would make too many objects.
func (t *taking) tooMany() *feed.Problem {
	held := t.total
	if t.word.whole {
		held -= len(t.at.entries)
	}
	if held+len(t.word.items) <= t.rules.most {
		return nil
	}
	names := map[string]bool{}
	for i := range t.word.items {
		it := &t.word.items[i]
		if name, ok := t.at.sums[it.sum(t.seed)]; ok {
			names[name] = true
		} else if key, err := it.read(); err == nil {
			names[nameOf(key)] = true
		} else if _, told := it.outside(); told {
			names[it.name] = true
		}
	}
	if !t.word.whole {
		maps.DeleteFunc(names, func(name string, _ bool) bool { return t.at.entries[name] != nil })
	}
	if held+len(names) <= t.rules.most {
		return nil
	}
	return t.refusal(fmt.Sprintf("%d objects, more than %d: raise maxObjects", held+len(names), t.rules.most))
}

// owe notes what stood in an answer that was refused whole: that is a problem until each of it is said again, or gone.
func (t *taking) owe(over *feed.Problem) {
	l := t.at
	l.over = over
	if t.word.whole || l.owed == nil {
		l.owed = map[uint64]bool{}
	}
	for name := range t.word.names() {
		l.owed[maphash.String(t.seed, name)] = true
	}
	if slices.ContainsFunc(t.word.items, func(it item) bool { return it.name == "" }) || len(l.owed) > 2*max(t.rules.most, maxRefused) {
		l.owed = map[uint64]bool{0: true} // until all is said again
	}
}

// paid notes what is said, of what was refused before.
func (t *taking) paid() {
	l := t.at
	if l.over == nil {
		return
	}
	for name := range t.word.names() {
		delete(l.owed, maphash.String(t.seed, name))
	}
	if t.word.whole || len(l.owed) == 0 {
		l.over, l.owed = nil, nil
	}
}
