package crd

import (
	"maps"
	"slices"
	"sync"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// problems holds what a part cannot do, for operators. Safe for concurrent use.
type problems struct {
	source string // immutable

	mu    sync.Mutex
	texts map[string]string // guarded by mu; by topic
}

// set replaces the problem of a topic; nil means that there is none.
func (p *problems) set(topic string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.texts, topic)
		return
	}
	if p.texts == nil {
		p.texts = map[string]string{}
	}
	p.texts[topic] = err.Error()
}

// clear removes all problems.
func (p *problems) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.texts)
}

// Problems returns what the part cannot do. There are none on replicas that do not lead.
func (p *problems) Problems() []feed.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []feed.Problem
	for _, topic := range slices.Sorted(maps.Keys(p.texts)) {
		out = append(out, feed.Problem{Severity: feed.Warning, Source: p.source, Text: p.texts[topic]})
	}
	return out
}
