package filestore

import (
	"path/filepath"

	"github.com/ashore-mesh/ashore/config"
)

// index finds the few files that a change of another one may concern. Looking at all of them for
// each change would take a time that grows with the square of their number.
type index struct {
	wrong        map[string]bool     // files with an error
	withRetained map[string]bool     // files with retained objects (guests)
	missing      map[string]bool     // files with objects that seem to have gone
	claimed      map[config.Key]bool // keys whose claims have changed since the last batch
}

func newIndex() index {
	return index{
		wrong: map[string]bool{}, withRetained: map[string]bool{}, missing: map[string]bool{},
		claimed: map[config.Key]bool{},
	}
}

// update brings a file up to date.
func (i index) update(x *file) {
	mark(i.wrong, x.name, x.wrong)
	mark(i.withRetained, x.name, len(x.guests) > 0)
}

// leave notes that a file seems to have gone; nil: it was not known.
func (i index) leave(x *file) {
	if x != nil && len(x.objects) > 0 {
		i.missing[x.name] = true
	}
}

// drop forgets a file.
func (i index) drop(name string) {
	delete(i.wrong, name)
	delete(i.withRetained, name)
	delete(i.missing, name)
}

func mark(set map[string]bool, name string, is bool) {
	if is {
		set[name] = true
	} else {
		delete(set, name)
	}
}

// parents are the folders of files, "." included when there is a file.
func parents(files map[string]*file) map[string]bool {
	out := map[string]bool{}
	for name := range files {
		for dir := filepath.Dir(name); !out[dir]; dir = filepath.Dir(dir) {
			out[dir] = true
		}
	}
	return out
}

// nameQueue are names in the order in which they were added, each once.
type nameQueue struct {
	names []string
	in    map[string]bool
}

func (q *nameQueue) add(name string) {
	if q.in == nil {
		q.in = map[string]bool{}
	}
	if !q.in[name] {
		q.names = append(q.names, name)
	}
	q.in[name] = true
}

// remove takes a name out, wherever it stands.
func (q *nameQueue) remove(name string) { delete(q.in, name) }

// take empties the queue.
func (q *nameQueue) take() []string {
	var out []string
	for _, name := range q.names {
		if q.in[name] {
			out = append(out, name)
			delete(q.in, name)
		}
	}
	q.names = nil
	return out
}
