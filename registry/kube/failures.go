package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ashore-mesh/ashore/internal/feed"
)

// Failures are what failed last, by what it is about. Safe for concurrent use.
type Failures struct {
	mu   sync.Mutex
	last map[string]failure // guarded by mu; by key
}

type failure struct {
	text  string
	since time.Time
}

// Note records the latest result of what a key stands for.
func (f *Failures) Note(key string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.last, key)
		return
	}
	if f.last == nil {
		f.last = map[string]failure{}
	}
	since := time.Now()
	if was, ok := f.last[key]; ok {
		since = was.since
	}
	f.last[key] = failure{err.Error(), since}
}

// Clear forgets all failures.
func (f *Failures) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = nil
}

// Problems are the failures, each with what follows from it.
func (f *Failures) Problems(source, consequence string) (out []feed.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	byText := func(a, b failure) int { return strings.Compare(a.text, b.text) }
	for _, x := range slices.SortedFunc(maps.Values(f.last), byText) {
		out = append(out, feed.Problem{Severity: feed.Error, Source: source, Since: x.since, Text: x.text + consequence})
	}
	return out
}
