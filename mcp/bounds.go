package mcp

import (
	"cmp"
	"fmt"
	"maps"

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
